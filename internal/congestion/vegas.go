package congestion

import "time"

// Targets of Vegas for the number of its packets queued in the path: between vegasAlpha and
// vegasBeta in congestion avoidance, at most vegasGamma in slow start.
const (
	vegasAlpha = 2
	vegasBeta  = 4
	vegasGamma = 1
)

// delayRound estimates a flow's queue in the path once per round trip, from the RTTs of the round.
type delayRound struct {
	end     int64 // value of State.Delivered that ends the round
	baseRTT time.Duration
	minRTT  time.Duration // lowest of the round
	samples int
}

// update processes an ACK. At the end of a round with enough samples, ok is true, queued is the
// flow's queue in packets (the window beyond the bandwidth-delay product at the base RTT), and rtt
// is the lowest RTT of the round.
func (d *delayRound) update(c *State, cwnd int64, s *Sample) (queued float64, rtt time.Duration, ok bool) {
	if s.RTT > 0 {
		if d.baseRTT == 0 || s.RTT < d.baseRTT {
			d.baseRTT = s.RTT
		}
		if d.samples == 0 || s.RTT < d.minRTT {
			d.minRTT = s.RTT
		}
		d.samples++
	}
	if s.PriorDelivered < d.end {
		return 0, 0, false
	}
	d.end = c.Delivered
	rtt, samples := d.minRTT, d.samples
	d.samples = 0
	if samples < 3 { // too few with delayed ACKs
		return 0, 0, false
	}
	queued = float64(cwnd) / float64(c.MaxDatagramSize) * (rtt - d.baseRTT).Seconds() / rtt.Seconds()
	return queued, rtt, true
}

// Vegas implements TCP Vegas: L. S. Brakmo and L. L. Peterson, "TCP Vegas: End to End Congestion
// Avoidance on a Global Internet", IEEE JSAC 13(8), 1995, §III-C and §III-D. It keeps a few packets
// queued and adjusts by one packet per round trip.
type Vegas struct {
	window
	round delayRound
}

// NewVegas starts Vegas in slow start.
func NewVegas(c *State) *Vegas { return &Vegas{window: newWindow(c)} }

// OnLoss responds as NewReno does.
func (v *Vegas) OnLoss(_ time.Duration, l *Loss) {
	if l.Episode {
		v.saveUndo()
		v.reduceTo(int64(renoBeta * float64(v.cwnd)))
	}
}

// OnECN treats CE marks like a loss.
func (v *Vegas) OnECN(_ time.Duration, _ *Sample, episode bool) {
	if episode {
		v.reduceTo(int64(renoBeta * float64(v.cwnd)))
	}
}

// OnAck compares the round's RTT with the base RTT.
func (v *Vegas) OnAck(_ time.Duration, s *Sample) {
	queued, _, ok := v.round.update(v.c, v.cwnd, s)
	if v.c.InRecovery {
		return
	}
	smss := v.c.MaxDatagramSize
	if v.inSlowStart() {
		switch {
		case ok && queued > vegasGamma: // the window without the queue, plus one
			v.reduceTo(min(v.cwnd, v.cwnd-int64(queued*float64(smss))+smss))
		case v.grows():
			v.cwnd += s.NewlyAcked / 2 // slower than Reno, to leave time for the RTT to react
		}
		return
	}
	switch {
	case !ok:
	case queued > vegasBeta:
		v.cwnd = max(v.cwnd-smss, v.minWindow())
		v.ssthresh = min(v.ssthresh, v.cwnd)
	case queued < vegasAlpha && v.grows():
		v.cwnd += smss
	}
}

// OnSpuriousLoss restores the window.
func (v *Vegas) OnSpuriousLoss(time.Duration) { v.undo() }

// OnPersistentCongestion restarts from the minimum window.
func (v *Vegas) OnPersistentCongestion(time.Duration) {
	v.collapse()
	v.round = delayRound{end: v.round.end}
}
