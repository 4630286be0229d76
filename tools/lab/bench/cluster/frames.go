package cluster

import (
	"fmt"
	"slices"
	"time"

	"holocast/tools/lab/bench/internal/quantile"
)

// Times are UNIX nanoseconds of this machine's clock, which all processes share.

// sentFrame is a frame that the publisher sent.
type sentFrame struct {
	frame uint64
	at    int64
}

// arrival is a frame that a viewer received completely.
type arrival struct {
	frame    uint64
	sent, at int64
}

// inFlight bounds the time from a frame's capture to its arrival if nothing fails.
const inFlight = time.Second

// outage is a fault's effect on one viewer.
type outage struct {
	lost      int           // frames
	gap       time.Duration // longest time between two frames, or until the end of the observation
	after     time.Duration // from the beginning of the fault until the gap
	recovered bool          // a frame sent after the fault has arrived
}

// outageOf returns the outage of a viewer from a fault that began and ended at these times. The
// observation ends at until. Frames of the last second, which may be in flight, are not counted as
// lost.
func outageOf(sent []sentFrame, got []arrival, began, ended, until int64) (o outage) {
	first := map[uint64]int64{} // arrival by frame
	for _, a := range got {
		if at, ok := first[a.frame]; a.at <= until && (!ok || a.at < at) {
			first[a.frame] = a.at
		}
		o.recovered = o.recovered || a.sent >= ended && a.at <= until
	}
	for _, f := range sent {
		if _, ok := first[f.frame]; !ok && f.at >= began-int64(inFlight) && f.at < until-int64(inFlight) {
			o.lost++
		}
	}
	times := make([]int64, 0, len(first)+1)
	before := began
	for _, at := range first {
		if at > began {
			times = append(times, at)
		}
	}
	for _, at := range first {
		if at <= began && (before == began || at > before) {
			before = at
		}
	}
	slices.Sort(times)
	for _, at := range append(times, until) {
		if gap := time.Duration(at - before); gap > o.gap {
			o.gap, o.after = gap, time.Duration(before-began)
		}
		before = at
	}
	return o
}

// hopDelays returns, for each frame that arrived at both places, the difference of its delays there.
// Several viewers at a place count as the fastest of them.
func hopDelays(near, far []arrival) (list []time.Duration) {
	fastest := func(all []arrival) map[uint64]int64 {
		m := map[uint64]int64{}
		for _, a := range all {
			if at, ok := m[a.frame]; !ok || a.at < at {
				m[a.frame] = a.at
			}
		}
		return m
	}
	there := fastest(far)
	for frame, at := range fastest(near) {
		if later, ok := there[frame]; ok {
			list = append(list, time.Duration(later-at))
		}
	}
	return list
}

// between returns the arrivals of frames sent from from until before to.
func between(all []arrival, from, to int64) (list []arrival) {
	for _, a := range all {
		if a.sent >= from && a.sent < to {
			list = append(list, a)
		}
	}
	return list
}

// copies returns how often a relay received each byte that the publisher's relay received.
func copies(publisher, relay float64) float64 {
	if publisher == 0 {
		return 0
	}
	return relay / publisher
}

// milliseconds returns the q-quantile in milliseconds.
func milliseconds(d []time.Duration, q float64) float64 {
	return float64(quantile.Of(d, q).Microseconds()) / 1000
}

// add adds a fault's effect on one viewer, affected or not.
func (f *Failover) add(affected bool, o outage) {
	if affected {
		f.atAll = append(f.atAll, o)
	} else {
		f.othersAll = append(f.othersAll, o)
	}
}

// summarize computes the figures.
func (f *Failover) summarize() {
	quantiles := func(list []outage) (*Outages, int) {
		if len(list) == 0 {
			return nil, 0
		}
		lost, gaps, unrecovered := make([]int, len(list)), make([]time.Duration, len(list)), 0
		for i, o := range list {
			lost[i], gaps[i] = o.lost, o.gap
			if !o.recovered {
				unrecovered++
			}
		}
		return &Outages{
			Samples: len(list), LostP50: quantile.Of(lost, 0.5), LostP95: quantile.Of(lost, 0.95),
			GapP50: milliseconds(gaps, 0.5), GapP95: milliseconds(gaps, 0.95),
		}, unrecovered
	}
	var a, b int
	f.at, a = quantiles(f.atAll)
	f.others, b = quantiles(f.othersAll)
	f.NotRecovered = a + b
	if len(f.settled) > 0 {
		f.OneOwner = milliseconds(f.settled, 0.95)
	}
}

// String describes what happened to a viewer.
func (o outage) String() string {
	return fmt.Sprintf("%d lost, %d ms at %+d ms", o.lost, o.gap.Milliseconds(), o.after.Milliseconds())
}
