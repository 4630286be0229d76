//go:build linux

package congestion

import (
	"context"
	"time"
)

// goodput estimates the rate at which application data arrives, in any order. The rate at which the
// application reads is no substitute: during a gap the application reads nothing, and afterwards
// the whole backlog, which can exceed the path's rate even over a few seconds. goodput therefore
// multiplies the arrivals by their fraction of new application data. It takes this fraction from a
// moment without a gap, when read/arrived is highest.
type goodput struct{ share float64 }

// lookEvery is the interval between attempts to find a moment without a gap. Over path 1 a gap
// begins every 60 ms and lasts one round trip.
const lookEvery = 10 * time.Millisecond

// look records the bytes read by the application and the arrivals, in any unit.
func (g *goodput) look(read, arrived int64) {
	if arrived > 0 {
		g.share = max(g.share, float64(read)/float64(arrived))
	}
}

// mbps converts arrivals during d to the rate of application data.
func (g *goodput) mbps(arrived int64, d time.Duration) float64 {
	return g.share * float64(arrived) * 8e-6 / d.Seconds()
}

// watch samples flows until ctx is done. It updates their goodputs after warmup, because a flow has
// no duplicates before its first loss.
func watch(ctx context.Context, flows []*flow, warmup time.Duration) ([]series, []goodput) {
	lines, goodputs := make([]series, len(flows)), make([]goodput, len(flows))
	began, last := time.Now(), time.Duration(0)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		at := time.Since(began)
		sample := at-last >= sampleEvery-lookEvery/2
		if sample {
			last = at
		}
		for i, f := range flows {
			read, arrived := f.received.Load(), f.arrived()
			if at >= warmup {
				goodputs[i].look(read, arrived)
			}
			if !sample {
				continue
			}
			p := point{at: at, arrived: arrived}
			if f.estimates != nil {
				p.est, _ = f.estimates()
			}
			lines[i] = append(lines[i], p)
		}
	}
	for i, line := range lines {
		before := point{}
		for k, p := range line {
			line[k].mbps = goodputs[i].mbps(p.arrived-before.arrived, p.at-before.at)
			before = p
		}
	}
	return lines, goodputs
}
