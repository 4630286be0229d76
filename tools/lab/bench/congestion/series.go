package congestion

import (
	"time"

	"holocast/internal/congestion"
)

// sampleEvery is the time between the points of a series.
const sampleEvery = 100 * time.Millisecond

// A series is what a flow did over time.
type series []point

type point struct {
	at      time.Duration // since the flows began
	arrived int64         // until then, as flow.arrived
	mbps    float64       // of application data, since the point before
	est     congestion.Estimates
}
