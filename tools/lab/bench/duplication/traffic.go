package duplication

import "time"

const paths = 5

// traffic holds interface counters at one time of a run, or their difference, in bytes of Ethernet
// frames.
type traffic struct {
	at        time.Duration
	paths     [paths]uint64 // sent by both edges
	entered   uint64        // received by the edges from source and viewer
	delivered uint64        // sent to the viewer
}

// difference returns the traffic between two times, from the readings nearest to them.
func difference(counted []traffic, from, to time.Duration) traffic {
	if len(counted) == 0 {
		return traffic{}
	}
	nearest := func(t time.Duration) traffic {
		best := counted[0]
		for _, c := range counted {
			if (c.at - t).Abs() < (best.at - t).Abs() {
				best = c
			}
		}
		return best
	}
	a, b := nearest(from), nearest(to)
	d := traffic{at: b.at - a.at, entered: b.entered - a.entered, delivered: b.delivered - a.delivered}
	for i := range d.paths {
		d.paths[i] = b.paths[i] - a.paths[i]
	}
	return d
}

// mbps returns the rate delivered to the viewer.
func (t traffic) mbps() float64 {
	if t.at <= 0 {
		return 0
	}
	return float64(t.delivered) * 8e-6 / t.at.Seconds()
}

// cost returns the bytes sent over all paths per byte that entered the edges.
func (t traffic) cost() float64 {
	if t.entered == 0 {
		return 0
	}
	sum := uint64(0)
	for _, n := range t.paths {
		sum += n
	}
	return float64(sum) / float64(t.entered)
}
