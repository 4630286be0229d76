package policy

import (
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// Constants of the rule Lateness.
const (
	// rhythm is the number of intervals whose median is the frame interval, and among which late
	// intervals are counted. enoughRhythm of them suffice for a verdict.
	rhythm, enoughRhythm = 64, 16
	// lateCount is the number of late intervals that fire the trigger. A single change of a path's delay
	// causes only one.
	lateCount = 2
	// silentIntervals is the minimum silence, in frame intervals, that fires the trigger.
	silentIntervals = 4
)

// meter tracks the uplink packets of one viewer as seen by one edge.
type meter struct {
	last     int64     // last packet counted, on the edge's clock, ns
	seen     time.Time // last packet, on our clock
	packets  int       // packets counted, up to Trigger.Live
	run      int       // consecutive long intervals
	good     int       // consecutive short intervals, up to Trigger.Live
	interval time.Duration
	gaps     [rhythm]time.Duration // the newest intervals, a ring
	counted  int                   // intervals since the start
	late     uint64                // bit mask of late intervals, newest in bit 0
	silent   bool                  // the current silence has passed its limit
	fired    bool                  // the current silence has fired
}

// strain is the state of the paths that carry a flow, relative to their own minimum round-trip
// time, as measured by the edges' probes.
type strain struct {
	known  bool          // the path and its probes are known
	excess time.Duration // mean RTT of the last two seconds minus the minimum of the newest 128 probes
	lossy  bool          // probes are lost
	mute   bool          // no probe is answered
	path   string        // description
}

// frame returns the flow's frame interval, which is the median of the newest intervals, or 0 if it is
// not known yet. Neither delayed frames nor the bursts after them change it much.
func (m *meter) frame() time.Duration {
	n := min(m.counted, rhythm)
	if n < enoughRhythm {
		return 0
	}
	sorted := m.gaps
	slices.Sort(sorted[:n])
	return sorted[n/2]
}

// tolerance returns the tolerated lateness of a packet.
func (t Trigger) tolerance(frame time.Duration) time.Duration {
	return max(time.Duration(float64(frame)/t.Sensitivity), t.Merge, time.Millisecond)
}

// observe adds a packet and returns the reason if the trigger fires, or "". After a gap of at least
// end it starts over, since the viewer was away.
func (m *meter) observe(t Trigger, p strain, end time.Duration, at int64, now time.Time) string {
	m.seen, m.silent, m.fired = now, false, false
	gap := time.Duration(at - m.last)
	switch {
	case m.packets == 0 || gap >= end || gap <= -end:
		// This is the first packet, the first in a long time, or from an edge that restarted.
		*m = meter{last: at, seen: now, packets: 1}
		return ""
	case gap < t.Merge: // may be negative, as records of two CPUs may be swapped
		return ""
	}
	m.last, m.interval = at, gap
	m.packets = min(m.packets+1, t.Live)
	frame := m.frame()
	m.gaps[m.counted%rhythm] = gap
	m.counted++
	if t.Rule == Lateness && p.known {
		return m.lateness(t, p, gap, frame)
	}
	if !m.count(gap > t.Interval, t) || m.run < t.Count {
		return ""
	}
	m.run = 0
	return fmt.Sprintf("%s between uplink packets, above %s for the %s time in a row", ms(gap), ms(t.Interval),
		ordinal(t.Count))
}

// count records whether an interval is long, and returns long.
func (m *meter) count(long bool, t Trigger) bool {
	if long {
		m.run, m.good = m.run+1, 0
	} else {
		m.run, m.good = 0, min(m.good+1, t.Live)
	}
	return long
}

// lateness compares an interval with the frame interval. A late packet alone proves nothing, as the
// viewer may decode slowly or its own network may be bad. The trigger therefore fires only while the
// path loses probes or is delayed by more than half the tolerance.
func (m *meter) lateness(t Trigger, p strain, gap, frame time.Duration) string {
	if frame == 0 {
		m.count(gap > t.Interval, t)
		return ""
	}
	tolerance := t.tolerance(frame)
	m.late <<= 1
	if m.count(gap > frame+tolerance, t) {
		m.late |= 1
	}
	n := bits.OnesCount64(m.late)
	if n < lateCount || !p.lossy && !p.mute && p.excess <= tolerance/2 {
		return ""
	}
	m.late = 0
	return fmt.Sprintf("%d of %d uplink packets, one every %s, are more than %s late, and %s", n, rhythm, ms(frame),
		ms(tolerance), p.path)
}

// silence returns the reason if the trigger fires at now for lack of packets, or "". With the rule
// Lateness, a viewer's silence does not count while probes are answered on its path.
func (m *meter) silence(t Trigger, p strain, now time.Time) string {
	if m.fired || t.Silence == 0 || m.packets < t.Live || now.Before(m.seen.Add(m.patience(t))) {
		return ""
	}
	m.silent = true
	if t.Rule == Lateness && p.known && !p.mute {
		return ""
	}
	m.fired, m.run, m.good = true, 0, 0
	return fmt.Sprintf("no uplink packet of a live flow for %s", ms(now.Sub(m.seen)))
}

// patience returns the minimum length of a silence that counts.
func (m *meter) patience(t Trigger) time.Duration {
	if t.Rule == Lateness {
		return max(t.Silence, silentIntervals*m.frame())
	}
	return t.Silence
}

// silentAt returns the time from which the current silence counts, or zero if it does not.
func (m *meter) silentAt(t Trigger) time.Time {
	if t.Silence == 0 || m.silent || m.packets < t.Live {
		return time.Time{}
	}
	return m.seen.Add(m.patience(t))
}

// calm restarts the count of long intervals.
func (m *meter) calm() { m.run, m.late = 0, 0 }

// ms formats a duration in milliseconds for reasons.
func ms(d time.Duration) string {
	return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
}

func ordinal(n int) string {
	switch {
	case n%100 >= 11 && n%100 <= 13:
		return fmt.Sprintf("%dth", n)
	case n%10 == 1:
		return fmt.Sprintf("%dst", n)
	case n%10 == 2:
		return fmt.Sprintf("%dnd", n)
	case n%10 == 3:
		return fmt.Sprintf("%drd", n)
	}
	return fmt.Sprintf("%dth", n)
}
