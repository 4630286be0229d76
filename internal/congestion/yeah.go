package congestion

import "time"

// Constants of the YeAH paper, §III.
const (
	yeahMaxQueue  = 80 // Q_max, packets
	yeahPhi       = 8  // limit of the round's queueing delay: base RTT / yeahPhi
	yeahEpsilon   = 2  // at most cwnd / yeahEpsilon is drained from the queue
	yeahDelta     = 8  // a loss reduces cwnd by at least cwnd / yeahDelta
	yeahRho       = 16 // rounds in Slow mode after which a competing flow counts as greedy
	yeahZeta      = 50 // rounds in Fast mode after which the competing flow is forgotten
	yeahFastAcked = 100
)

// YeAH implements YeAH-TCP: A. Baiocchi, A. P. Castellani and F. Vacirca, "YeAH-TCP: Yet Another
// Highspeed TCP", PFLDnet 2007, §III. While its estimated queue is short it grows like Scalable TCP
// (Fast mode); otherwise it grows like Reno (Slow mode) and drains its own queue (precautionary
// decongestion).
type YeAH struct {
	window
	round delayRound

	renoCwnd   int64 // window of an equivalent Reno flow
	slow       bool
	slowRounds int // consecutive rounds in Slow mode
	fastRounds int
	queued     float64 // estimated queue of the latest round, packets
	credit     int64
}

// NewYeAH starts YeAH in slow start.
func NewYeAH(c *State) *YeAH {
	return &YeAH{window: newWindow(c), renoCwnd: minWindowPackets * c.MaxDatagramSize}
}

// OnLoss reduces the window by the estimated queue, or by half if a competing flow is greedy (§III-C
// of the paper).
func (y *YeAH) OnLoss(_ time.Duration, l *Loss) {
	if l.Episode {
		y.saveUndo()
		y.reduce()
	}
}

// OnECN treats CE marks like a loss.
func (y *YeAH) OnECN(_ time.Duration, _ *Sample, episode bool) {
	if episode {
		y.reduce()
	}
}

func (y *YeAH) reduce() {
	reduction := y.cwnd / 2
	if y.slowRounds < yeahRho {
		held := int64(y.queued * float64(y.c.MaxDatagramSize))
		reduction = min(max(held, y.cwnd/yeahDelta), y.cwnd/2)
	}
	y.renoCwnd = max(y.renoCwnd/2, y.minWindow())
	y.slowRounds, y.fastRounds = 0, 0
	y.reduceTo(y.cwnd - reduction)
}

// OnAck grows the window as the mode of the latest round requires.
func (y *YeAH) OnAck(_ time.Duration, s *Sample) {
	queued, rtt, ok := y.round.update(y.c, y.cwnd, s)
	if ok && !y.c.InRecovery {
		y.endRound(queued, rtt)
	}
	switch {
	case !y.grows():
	case y.inSlowStart():
		y.cwnd += s.NewlyAcked
	case y.slow:
		y.additive(s.NewlyAcked)
	default: // Scalable TCP: 1 % of the acknowledged data
		y.credit += s.NewlyAcked
		y.cwnd += y.credit / yeahFastAcked
		y.credit %= yeahFastAcked
	}
}

func (y *YeAH) endRound(queued float64, rtt time.Duration) {
	y.queued = queued
	smss := y.c.MaxDatagramSize
	y.slow = queued > yeahMaxQueue || rtt-y.round.baseRTT > y.round.baseRTT/yeahPhi
	if !y.slow {
		y.fastRounds++
		if y.fastRounds > yeahZeta {
			y.renoCwnd, y.fastRounds = y.minWindow(), 0
		}
		y.slowRounds = 0
		return
	}
	if queued > yeahMaxQueue && y.cwnd > y.renoCwnd {
		reduction := min(int64(queued*float64(smss)), y.cwnd/yeahEpsilon)
		y.cwnd = max(y.cwnd-reduction, y.renoCwnd, y.minWindow())
		y.ssthresh = y.cwnd
	}
	if y.renoCwnd <= y.minWindow() {
		y.renoCwnd = max(y.cwnd/2, y.minWindow())
	} else {
		y.renoCwnd = min(y.renoCwnd+smss, maxWindow)
	}
	y.slowRounds++
	y.fastRounds = 0
}

// OnSpuriousLoss restores the window.
func (y *YeAH) OnSpuriousLoss(time.Duration) { y.undo() }

// OnPersistentCongestion restarts from the minimum window.
func (y *YeAH) OnPersistentCongestion(time.Duration) {
	y.collapse()
	y.renoCwnd = y.minWindow()
	y.slow, y.slowRounds, y.fastRounds, y.credit = false, 0, 0, 0
}
