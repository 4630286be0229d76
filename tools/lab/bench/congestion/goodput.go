//go:build linux

package congestion

import (
	"context"
	"time"
)

// A goodput tells how much application data has arrived, in whatever order. What the
// application has read is not that: behind a gap it gets nothing, and when the gap is
// filled all that came since, which in a few seconds can be more than the path carries.
// So what has arrived is counted where it arrives, by the packet, and converted with the
// share of it that is new application data: what the application has read of it at the
// moment when that is most, which is when no gap is open.
type goodput struct{ share float64 }

// lookEvery is how often a goodput looks for a moment without a gap. Over path 1 a gap
// begins every 60 ms and lasts a round trip.
const lookEvery = 10 * time.Millisecond

// look takes note of what the application has read, in bytes, and of what has arrived, in
// any unit.
func (g *goodput) look(read, arrived int64) {
	if arrived > 0 {
		g.share = max(g.share, float64(read)/float64(arrived))
	}
}

// mbps is the application data in what arrived in d.
func (g *goodput) mbps(arrived int64, d time.Duration) float64 {
	return g.share * float64(arrived) * 8e-6 / d.Seconds()
}

// watch samples flows until ctx ends, and looks at them for their goodputs from warmup
// on: until its first losses nothing of a flow comes twice.
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
