package congestion

import (
	"math"
	"time"
)

// minWindowPackets is kMinimumWindow of RFC 9002 §7.2.
const minWindowPackets = 2

// maxWindow keeps a window that is never limited by loss from overflowing.
const maxWindow = int64(1) << 40

// window is what the window-based controllers have in common: slow start,
// the response to persistent congestion, pacing and undo.
type window struct {
	c        *State
	cwnd     int64
	ssthresh int64
	acked    int64 // towards the next additive increase

	undoCwnd, undoSsthresh int64
}

func newWindow(c *State) window {
	return window{c: c, cwnd: c.initialWindow(), ssthresh: math.MaxInt64}
}

// Window is the congestion window in bytes.
func (w *window) Window() int64 { return w.cwnd }

func (w *window) inSlowStart() bool { return w.cwnd < w.ssthresh }

func (w *window) minWindow() int64 { return minWindowPackets * w.c.MaxDatagramSize }

// PacingRate is the window over the smoothed RTT, times 2 in slow start and 1.25
// after it (RFC 9002 §7.7), so that pacing is not what limits the flow.
func (w *window) PacingRate() float64 {
	gain := 1.25
	if w.inSlowStart() {
		gain = 2
	}
	return gain * float64(w.cwnd) / max(w.c.SmoothedRTT, time.Millisecond).Seconds()
}

// Bandwidth is the window over the smoothed RTT, 0 before there is one.
func (w *window) Bandwidth() float64 {
	if w.c.SmoothedRTT <= 0 {
		return 0
	}
	return float64(w.cwnd) / w.c.SmoothedRTT.Seconds()
}

// Phase is slow_start, recovery or congestion_avoidance.
func (w *window) Phase() string {
	switch {
	case w.c.InRecovery:
		return "recovery"
	case w.inSlowStart():
		return "slow_start"
	}
	return "congestion_avoidance"
}

// OnSend does nothing.
func (w *window) OnSend(time.Duration) {}

// grows tells whether an ACK may raise the window: not in recovery (RFC 9002
// §7.3.2) and only if the window was what limited the flow (§7.8).
func (w *window) grows() bool {
	return !w.c.InRecovery && w.c.CwndLimited && w.cwnd < maxWindow
}

// additive raises the window by one packet per window acknowledged (RFC 9002
// §7.3.3).
func (w *window) additive(newlyAcked int64) {
	w.acked += newlyAcked
	if w.acked >= w.cwnd {
		w.acked -= w.cwnd
		w.cwnd += w.c.MaxDatagramSize
	}
	w.acked = min(w.acked, w.cwnd)
}

// saveUndo remembers the window for undo.
func (w *window) saveUndo() { w.undoCwnd, w.undoSsthresh = w.cwnd, w.ssthresh }

// undo restores what saveUndo remembered, unless the window is larger by now.
func (w *window) undo() {
	if w.undoCwnd > w.cwnd {
		w.cwnd, w.ssthresh = w.undoCwnd, w.undoSsthresh
	}
	w.undoCwnd = 0
}

// reduceTo sets the window and the threshold after a congestion event.
func (w *window) reduceTo(cwnd int64) {
	w.cwnd = max(cwnd, w.minWindow())
	w.ssthresh = w.cwnd
	w.acked = 0
}

// collapse is the response to persistent congestion (RFC 9002 §7.6.2).
func (w *window) collapse() {
	w.ssthresh = max(w.cwnd/2, w.minWindow())
	w.cwnd = w.minWindow()
	w.acked, w.undoCwnd = 0, 0
}
