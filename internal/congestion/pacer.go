package congestion

import "time"

const (
	// quantumTime and maxQuantum bound one burst to one millisecond at the pacing rate, and to one
	// UDP segmentation-offload buffer (draft-ietf-ccwg-bbr §5.6.3).
	quantumTime = time.Millisecond
	maxQuantum  = 64 << 10
	// The pacer makes up for late wake-ups by up to catchUpLeast, or by up to half the minimum RTT
	// if that is longer, but never by more than catchUpMost. Go's timers are up to a millisecond
	// late in a sleeping process. On a busy machine a process waits tens of milliseconds for a
	// processor, and without catching up the lost time would lower the estimate of the path's rate.
	// In simulation with delays of 20 to 70 ms and a process stopped for 10 of every 20 ms, the
	// longer limit raises the rate from 60–280 Mbit/s to 330–380.
	catchUpLeast = 2 * time.Millisecond
	catchUpMost  = 25 * time.Millisecond
)

// pacer is a token bucket that holds one quantum. Once empty it waits for a whole quantum, so that
// a burst fills an offload buffer instead of leaving packet by packet as ACKs arrive.
type pacer struct {
	rate    float64 // bytes/s
	smss    int64
	credit  float64 // bytes
	updated time.Duration
	waiting bool // the bucket lacked credit for the last packet
	catchUp time.Duration
}

// quantum returns C.send_quantum in bytes.
func (p *pacer) quantum() float64 {
	return max(min(p.rate*quantumTime.Seconds(), maxQuantum), float64(2*p.smss))
}

// resumeAt returns the credit that ends waiting: a quantum, or one packet if a packet takes longer
// than quantumTime.
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
		need = p.resumeAt() - 1 // tolerates the rounding of nextSend
	}
	p.waiting = p.credit < need
	return !p.waiting
}

func (p *pacer) sent(now time.Duration, size int64) {
	p.advance(now)
	p.credit -= float64(size)
	// A packet sent without budget, such as a probe, must not block the next for long.
	p.credit = max(p.credit, -p.quantum())
}

// nextSend returns the time at which there is budget again.
func (p *pacer) nextSend() time.Duration {
	lack := p.resumeAt() - p.credit
	if lack <= 0 || p.rate <= 0 {
		return p.updated
	}
	return p.updated + time.Duration(lack/p.rate*1e9) + 1
}
