package congestion

import "time"

const (
	// quantumTime and maxQuantum size one burst: what the rate sends in a
	// millisecond, at most one UDP segmentation-offload buffer
	// (draft-ietf-ccwg-bbr §5.6.3).
	quantumTime = time.Millisecond
	maxQuantum  = 64 << 10
	// catchUpLeast is how much of a late wake-up is made up for: Go's timers are up
	// to a millisecond late when the process sleeps. Half a round trip, up to
	// catchUpMost, is where that is longer: on a busy machine a process waits for a
	// processor for tens of milliseconds, and a rate that is not made up for is
	// taken for the path's. In simulation with delays of 20 to 70 ms and a process
	// stopped half of the time, 10 ms each, it makes 60 to 280 Mbit/s 330 to 380.
	catchUpLeast = 2 * time.Millisecond
	catchUpMost  = 25 * time.Millisecond
)

// pacer spreads packets in time. It is a token bucket that holds one quantum: out
// of tokens, it waits until there is a whole quantum again, so that a burst fills
// an offload buffer instead of leaving packet by packet as ACKs come in.
type pacer struct {
	rate    float64 // bytes/s
	smss    int64
	credit  float64 // bytes
	updated time.Duration
	waiting bool // out of tokens since the last packet
	catchUp time.Duration
}

// quantum is C.send_quantum in bytes.
func (p *pacer) quantum() float64 {
	return max(min(p.rate*quantumTime.Seconds(), maxQuantum), float64(2*p.smss))
}

// resumeAt is the credit that ends waiting: a quantum, or one packet where a
// packet takes longer than quantumTime.
func (p *pacer) resumeAt() float64 {
	return max(min(p.rate*quantumTime.Seconds(), maxQuantum), float64(p.smss))
}

func (p *pacer) advance(now time.Duration) {
	dt := now - p.updated
	if dt <= 0 {
		return
	}
	p.updated = now
	limit := p.quantum()
	if p.waiting {
		limit += p.rate * max(p.catchUp, catchUpLeast).Seconds()
	}
	p.credit = max(p.credit, min(limit, p.credit+p.rate*dt.Seconds()))
}

func (p *pacer) hasBudget(now time.Duration) bool {
	p.advance(now)
	need := float64(p.smss)
	if p.waiting {
		need = p.resumeAt() - 1 // rounding of nextSend
	}
	p.waiting = p.credit < need
	return !p.waiting
}

func (p *pacer) sent(now time.Duration, size int64) {
	p.advance(now)
	p.credit -= float64(size)
	// A packet that needed no budget (a probe) must not block the next for long.
	p.credit = max(p.credit, -p.quantum())
}

// nextSend is when there is budget again.
func (p *pacer) nextSend() time.Duration {
	lack := p.resumeAt() - p.credit
	if lack <= 0 || p.rate <= 0 {
		return p.updated
	}
	return p.updated + time.Duration(lack/p.rate*1e9) + 1
}
