package congestion

import (
	"math"
	"time"
)

// Constants of RFC 9438 §4.1 and §4.6.
const (
	cubicC    = 0.4 // packets per second³
	cubicBeta = 0.7
)

// cubicAlpha makes W_est as aggressive as Reno with cubicBeta (RFC 9438 §4.3).
const cubicAlpha = 3 * (1 - cubicBeta) / (1 + cubicBeta)

// Cubic implements CUBIC (RFC 9438) with HyStart++ (RFC 9406).
type Cubic struct {
	window
	hystart hystart

	inEpoch    bool
	epochStart time.Duration
	k          float64 // seconds
	wMax       float64 // packets
	wEst       float64 // packets
	cwndPrior  float64 // packets, before the latest reduction
	credit     float64 // fraction of a packet to add

	limitedAt time.Duration // last ACK while the application limited the flow
	undoWMax  float64
}

// NewCubic starts CUBIC in slow start.
func NewCubic(c *State) *Cubic { return &Cubic{window: newWindow(c), hystart: newHystart()} }

// OnLoss implements the multiplicative decrease (RFC 9438 §4.6) with fast convergence (§4.7).
func (u *Cubic) OnLoss(_ time.Duration, l *Loss) {
	if l.Episode {
		u.saveUndo()
		u.undoWMax = u.wMax
		u.reduce()
	}
}

// OnECN treats CE marks like a loss (RFC 9438 §4.6).
func (u *Cubic) OnECN(_ time.Duration, _ *Sample, episode bool) {
	if episode {
		u.reduce()
	}
}

func (u *Cubic) reduce() {
	cwnd := u.packets()
	if cwnd < u.wMax {
		u.wMax = cwnd * (1 + cubicBeta) / 2
	} else {
		u.wMax = cwnd
	}
	u.cwndPrior = cwnd
	u.reduceTo(int64(cubicBeta * float64(u.cwnd)))
	u.inEpoch = false
}

func (u *Cubic) packets() float64 { return float64(u.cwnd) / float64(u.c.MaxDatagramSize) }

// OnAck implements slow start and the cubic increase of RFC 9438 §4.2 to §4.5.
func (u *Cubic) OnAck(now time.Duration, s *Sample) {
	if !u.grows() {
		if u.inEpoch && !u.c.CwndLimited && u.limitedAt != 0 {
			u.epochStart += now - u.limitedAt // §4.2: idle time does not count as growth time
		}
		u.limitedAt = now
		return
	}
	u.limitedAt = 0
	if u.inSlowStart() {
		increase, done := u.hystart.update(u.c, s)
		u.cwnd = min(u.cwnd+increase, u.ssthresh)
		if done {
			u.ssthresh = u.cwnd
		}
		return
	}
	cwnd := u.packets()
	if !u.inEpoch {
		u.inEpoch, u.epochStart = true, now
		u.wEst, u.credit = cwnd, 0
		if cwnd < u.wMax {
			u.k = math.Cbrt((u.wMax - cwnd) / cubicC)
		} else {
			u.k, u.wMax = 0, cwnd
		}
	}
	acked := float64(s.NewlyAcked) / float64(u.c.MaxDatagramSize)
	alpha := cubicAlpha
	if u.wEst >= u.cwndPrior {
		alpha = 1
	}
	u.wEst += alpha * acked / cwnd

	t := (now - u.epochStart).Seconds()
	wCubic := func(t float64) float64 {
		d := t - u.k
		return cubicC*d*d*d + u.wMax
	}
	if wCubic(t) < u.wEst { // the Reno-friendly region (§4.3)
		u.cwnd = max(u.cwnd, clampVolume(u.wEst*float64(u.c.MaxDatagramSize)))
		u.cwnd = min(u.cwnd, maxWindow)
		return
	}
	target := wCubic(t + u.c.SmoothedRTT.Seconds())
	target = min(max(target, cwnd), 1.5*cwnd)
	u.credit += (target - cwnd) / cwnd * acked
	whole := math.Floor(u.credit)
	u.credit -= whole
	u.cwnd = min(u.cwnd+int64(whole)*u.c.MaxDatagramSize, maxWindow)
}

// OnSpuriousLoss implements RFC 9438 §4.9.
func (u *Cubic) OnSpuriousLoss(time.Duration) {
	if u.undoCwnd > u.cwnd {
		u.wMax = u.undoWMax
		u.inEpoch = false
	}
	u.undo()
}

// OnPersistentCongestion implements RFC 9438 §4.8.
func (u *Cubic) OnPersistentCongestion(time.Duration) {
	u.wMax = u.packets()
	u.cwndPrior = u.wMax
	u.collapse()
	u.inEpoch = false
	u.hystart = newHystart()
}
