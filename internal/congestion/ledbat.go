package congestion

import (
	"math"
	"time"
)

// Constants of draft-irtf-iccrg-ledbat-plus-plus-01. The draft's target is 60 ms. BBR queues less
// than that, and a flow with that target would not yield to it.
const (
	ledbatTarget   = 15 * time.Millisecond // queueing delay
	ledbatMaxGain  = 16                    // inverse of the least gain
	ledbatBases    = 10                    // minutes over which the base delay is a minimum
	ledbatRecent   = 4                     // RTT samples in the current delay, a minimum
	ledbatCalm     = 9                     // time between slowdowns, in durations of a slowdown
	ledbatSlowRTTs = 2                     // duration of a slowdown at the least window

	// With fewer packets in flight, receivers delay acknowledgments, which would look like a queue.
	ledbatMinPackets = 4
)

// LEDBAT implements LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus), for background transfers that
// yield to all others. It keeps the queueing delay of the path below a target, and at intervals
// sends nearly nothing, to measure the delay without its own queue.
type LEDBAT struct {
	window

	bases  [ledbatBases]time.Duration // least RTT of each minute, newest first
	minute time.Duration              // start of the newest
	recent [ledbatRecent]time.Duration
	turn   int

	started   bool          // the first slow start is over
	slowAt    time.Duration // start of the next slowdown; 0 = none planned
	slowBegan time.Duration // start of the current one
	slowUntil time.Duration // end of its time at the least window
	slow      bool          // in a slowdown, including the return to the former window
	credit    float64       // change of the window, in bytes, not yet applied
}

// NewLEDBAT starts LEDBAT++ in slow start.
func NewLEDBAT(c *State) *LEDBAT {
	l := &LEDBAT{window: newWindow(c)}
	l.cwnd = l.least()
	return l
}

// least is the least window.
func (l *LEDBAT) least() int64 { return ledbatMinPackets * l.c.MaxDatagramSize }

// observe takes an RTT and returns the base and the queueing delay.
func (l *LEDBAT) observe(now, rtt time.Duration) (base, queued time.Duration) {
	if now-l.minute >= time.Minute {
		copy(l.bases[1:], l.bases[:])
		l.bases[0], l.minute = rtt, now
	}
	if l.bases[0] == 0 || rtt < l.bases[0] {
		l.bases[0] = rtt
	}
	l.recent[l.turn%ledbatRecent] = rtt
	l.turn++
	least := func(list []time.Duration) time.Duration {
		m := time.Duration(math.MaxInt64)
		for _, d := range list {
			if d > 0 {
				m = min(m, d)
			}
		}
		return m
	}
	base = least(l.bases[:])
	return base, least(l.recent[:]) - base
}

// OnAck adjusts the window to the queueing delay.
func (l *LEDBAT) OnAck(now time.Duration, s *Sample) {
	if s.RTT <= 0 {
		return
	}
	base, queued := l.observe(now, s.RTT)
	if l.slow {
		if now < l.slowUntil {
			return
		}
		if !l.inSlowStart() {
			l.slow = false
			l.slowAt = now + ledbatCalm*(now-l.slowBegan)
		}
	}
	if l.slowAt > 0 && now >= l.slowAt {
		l.slowAt = 0
		l.slow, l.slowBegan, l.slowUntil = true, now, now+ledbatSlowRTTs*l.c.SmoothedRTT
		l.ssthresh = l.cwnd
		l.cwnd = l.least()
		l.credit = 0
		return
	}
	gain := 1 / min(ledbatMaxGain, math.Ceil(2*ledbatTarget.Seconds()/base.Seconds()))
	acked, cwnd, smss := float64(s.NewlyAcked), float64(l.cwnd), float64(l.c.MaxDatagramSize)
	if l.inSlowStart() {
		if queued > ledbatTarget*3/4 {
			l.ssthresh = l.cwnd
			if !l.started {
				l.endStart(now)
			}
		} else if l.grows() {
			l.apply(gain * acked)
		}
		return
	}
	if queued < ledbatTarget {
		if l.grows() {
			l.apply(gain * smss * acked / cwnd)
		}
		return
	}
	excess := queued.Seconds()/ledbatTarget.Seconds() - 1
	l.apply(max(gain*smss-cwnd*excess, -cwnd/2) * acked / cwnd)
	l.ssthresh = min(l.ssthresh, l.cwnd)
}

// endStart plans the first slowdown.
func (l *LEDBAT) endStart(now time.Duration) {
	l.started = true
	l.slowAt = now + ledbatSlowRTTs*l.c.SmoothedRTT
}

// apply changes the window by whole bytes.
func (l *LEDBAT) apply(bytes float64) {
	l.credit += bytes
	whole := math.Trunc(l.credit)
	l.credit -= whole
	l.cwnd = max(l.cwnd+int64(whole), l.least())
}

// OnLoss halves the window.
func (l *LEDBAT) OnLoss(now time.Duration, loss *Loss) {
	if loss.Episode {
		l.saveUndo()
		l.halve(now)
	}
}

// OnECN treats CE marks like a loss.
func (l *LEDBAT) OnECN(now time.Duration, _ *Sample, episode bool) {
	if episode {
		l.halve(now)
	}
}

func (l *LEDBAT) halve(now time.Duration) {
	l.reduceTo(max(l.cwnd/2, l.least()))
	if !l.started {
		l.endStart(now)
	}
}

// OnSpuriousLoss restores the window.
func (l *LEDBAT) OnSpuriousLoss(time.Duration) { l.undo() }

// OnPersistentCongestion restarts from the minimum window.
func (l *LEDBAT) OnPersistentCongestion(now time.Duration) {
	l.collapse()
	if !l.started {
		l.endStart(now)
	}
}
