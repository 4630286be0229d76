package congestion

import "time"

// Reno is NewReno as RFC 9002 §7 describes it.
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

// OnECN responds as to loss (RFC 9002 §7.1).
func (r *Reno) OnECN(_ time.Duration, _ *Sample, episode bool) {
	if episode {
		r.reduceTo(int64(renoBeta * float64(r.cwnd)))
	}
}

// OnAck is slow start (RFC 9002 §7.3.1) or congestion avoidance (§7.3.3).
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

// OnPersistentCongestion starts again from the minimum window.
func (r *Reno) OnPersistentCongestion(time.Duration) { r.collapse() }
