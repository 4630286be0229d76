package policy

import (
	"fmt"
	"time"
)

// meter watches the uplink packets of one viewer as one edge sees them.
type meter struct {
	last     int64     // the last packet counted, on the edge's clock, ns
	seen     time.Time // the last packet, on ours
	packets  int       // counted, up to Trigger.Live
	run      int       // intervals too long, running
	good     int       // intervals short enough, running, up to Trigger.Live
	interval time.Duration
	silent   bool // the silence under way has fired
}

// observe adds a packet and returns why the trigger fires, "" when it does not.
// A gap of end or more starts over: the viewer was away.
func (m *meter) observe(t Trigger, end time.Duration, at int64, now time.Time) string {
	m.seen, m.silent = now, false
	gap := time.Duration(at - m.last)
	switch {
	case m.packets == 0 || gap >= end || gap <= -end:
		// First of all, first in a long time, or of an edge that started over.
		m.last, m.packets, m.run, m.good, m.interval = at, 1, 0, 0, 0
		return ""
	case gap < t.Merge: // negative ones too: two processors' records may swap places
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
	return fmt.Sprintf("%s between uplink packets, above %s for the %s time running", ms(gap), ms(t.Interval), ordinal(t.Count))
}

// silence returns why the trigger fires at now because no packets arrive, "" when it does not.
func (m *meter) silence(t Trigger, now time.Time) string {
	if d := m.silentAt(t); d.IsZero() || now.Before(d) {
		return ""
	}
	m.silent, m.run, m.good = true, 0, 0
	return fmt.Sprintf("no uplink packet of a live flow for %s", ms(now.Sub(m.seen)))
}

// silentAt is when silence will have lasted long enough; zero = never.
func (m *meter) silentAt(t Trigger) time.Time {
	if t.Silence == 0 || m.silent || m.packets < t.Live {
		return time.Time{}
	}
	return m.seen.Add(t.Silence)
}

// ms writes a duration in milliseconds, as reasons give it.
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
