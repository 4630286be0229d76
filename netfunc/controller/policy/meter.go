package policy

import (
	"fmt"
	"time"
)

// meter tracks the uplink packets of one viewer as seen by one edge.
type meter struct {
	last     int64     // last packet counted, on the edge's clock, ns
	seen     time.Time // last packet, on our clock
	packets  int       // packets counted, up to Trigger.Live
	run      int       // consecutive long intervals
	good     int       // consecutive short intervals, up to Trigger.Live
	interval time.Duration
	silent   bool // the current silence has fired
}

// observe adds a packet and returns why the trigger fires, "" if it does not. A gap of at least end
// starts over: the viewer was away.
func (m *meter) observe(t Trigger, end time.Duration, at int64, now time.Time) string {
	m.seen, m.silent = now, false
	gap := time.Duration(at - m.last)
	switch {
	case m.packets == 0 || gap >= end || gap <= -end:
		// The first packet, the first in a long time, or one of an edge that restarted.
		m.last, m.packets, m.run, m.good, m.interval = at, 1, 0, 0, 0
		return ""
	case gap < t.Merge: // may be negative: records of two CPUs may be swapped
		return ""
	}
	m.last, m.interval = at, gap
	m.packets = min(m.packets+1, t.Live)
	if gap <= t.Interval {
		m.run, m.good = 0, min(m.good+1, t.Live)
		return ""
	}
	m.run, m.good = m.run+1, 0
	if m.run < t.Count {
		return ""
	}
	m.run = 0
	return fmt.Sprintf("%s between uplink packets, above %s for the %s time in a row", ms(gap), ms(t.Interval),
		ordinal(t.Count))
}

// silence returns why the trigger fires at now for lack of packets, "" if it does not.
func (m *meter) silence(t Trigger, now time.Time) string {
	if d := m.silentAt(t); d.IsZero() || now.Before(d) {
		return ""
	}
	m.silent, m.run, m.good = true, 0, 0
	return fmt.Sprintf("no uplink packet of a live flow for %s", ms(now.Sub(m.seen)))
}

// silentAt returns when silence fires the trigger; zero = never.
func (m *meter) silentAt(t Trigger) time.Time {
	if t.Silence == 0 || m.silent || m.packets < t.Live {
		return time.Time{}
	}
	return m.seen.Add(t.Silence)
}

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
