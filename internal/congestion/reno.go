package congestion

import "time"

// Reno implements NewReno (RFC 9002 §7).
type Reno struct{ window }

// NewReno starts NewReno in slow start.
func NewReno(c *State) *Reno { return &Reno{newWindow(c)} }

// renoBeta is kLossReductionFactor of RFC 9002 §B.1.
const renoBeta = 0.5

// OnLoss halves the window once per round trip (RFC 9002 §7.3.2).
func (r *Reno) OnLoss(_ time.Duration, l *Loss) {
	if l.Episode {
		r.saveUndo()
		r.reduceTo(int64(renoBeta * float64(r.cwnd)))
	}
}

// OnECN treats CE marks like a loss (RFC 9002 §7.1).
func (r *Reno) OnECN(_ time.Duration, _ *Sample, episode bool) {
	if episode {
		r.reduceTo(int64(renoBeta * float64(r.cwnd)))
	}
}

// OnAck implements slow start (RFC 9002 §7.3.1) and congestion avoidance (§7.3.3).
func (r *Reno) OnAck(_ time.Duration, s *Sample) {
	switch {
	case !r.grows():
	case r.inSlowStart():
		r.cwnd += s.NewlyAcked
	default:
		r.additive(s.NewlyAcked)
	}
}

// OnSpuriousLoss restores the window.
func (r *Reno) OnSpuriousLoss(time.Duration) { r.undo() }

// OnPersistentCongestion restarts from the minimum window.
func (r *Reno) OnPersistentCongestion(time.Duration) { r.collapse() }
