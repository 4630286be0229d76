package congestion

import (
	"time"

	"holocast/internal/congestion"
)

// sampleEvery is the time between the points of a series.
const sampleEvery = 100 * time.Millisecond

// series holds samples of a flow over time.
type series []point

type point struct {
	at      time.Duration // since the flows began
	arrived int64         // total, as flow.arrived
	mbps    float64       // application data since the previous point
	est     congestion.Estimates
}
