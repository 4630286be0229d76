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
	at   time.Duration // since the flows began
	mbps float64       // received since the point before
	est  congestion.Estimates
}
