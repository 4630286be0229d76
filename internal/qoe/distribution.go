package qoe

import (
	"math"
	"time"
)

// A distribution counts delays in bins of 10 µs from −0.5 s (clock estimates can be wrong) to 2 s,
// and in bins of 1 ms up to 60 s. Other delays count in the nearest bin. Its memory is constant.
type distribution struct {
	bins  []uint32
	count uint64
}

const (
	fineBin    = 10 * time.Microsecond
	fineFrom   = -500 * time.Millisecond
	fineTo     = 2 * time.Second
	fineBins   = int((fineTo - fineFrom) / fineBin)
	coarseBin  = time.Millisecond
	coarseTo   = time.Minute
	coarseBins = int((coarseTo - fineTo) / coarseBin)
)

func (d *distribution) add(delay time.Duration) {
	if d.bins == nil {
		d.bins = make([]uint32, fineBins+coarseBins)
	}
	var i int
	if delay < fineTo {
		i = max(0, int((delay-fineFrom)/fineBin))
	} else {
		i = fineBins + min(coarseBins-1, int((delay-fineTo)/coarseBin))
	}
	d.bins[i]++
	d.count++
}

// percentile returns the smallest delay in milliseconds that at least p percent of all delays do
// not exceed, or 0 without delays.
func (d *distribution) percentile(p int) float64 {
	rank := rankOf(d.count, p)
	var below uint64
	for i, n := range d.bins {
		if below += uint64(n); n > 0 && below >= rank {
			if i < fineBins {
				return milliseconds(fineFrom + time.Duration(i)*fineBin)
			}
			return milliseconds(fineTo + time.Duration(i-fineBins)*coarseBin)
		}
	}
	return 0
}

// nearestRank returns the percentile of a few sorted delays.
func nearestRank(sorted []time.Duration, p int) float64 {
	return milliseconds(sorted[rankOf(uint64(len(sorted)), p)-1])
}

func rankOf(n uint64, p int) uint64 { return (n*uint64(p) + 99) / 100 }

// milliseconds returns d in milliseconds, rounded down to 10 µs like the bins.
func milliseconds(d time.Duration) float64 {
	return math.Floor(float64(d)/float64(fineBin)) / 100
}
