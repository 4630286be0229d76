package congestion

import (
	"math"
	"time"
)

// minWindowPackets is kMinimumWindow of RFC 9002 §7.2.
const minWindowPackets = 2

// maxWindow bounds a window without losses to prevent overflow.
const maxWindow = int64(1) << 40

// window is the common part of the window-based controllers: slow start, the response to persistent
// congestion, pacing and undo.
type window struct {
	c        *State
	cwnd     int64
	ssthresh int64
	acked    int64 // bytes towards the next additive increase

	undoCwnd, undoSsthresh int64
}

func newWindow(c *State) window {
	return window{c: c, cwnd: c.initialWindow(), ssthresh: math.MaxInt64}
}

// Window returns the congestion window in bytes.
func (w *window) Window() int64 { return w.cwnd }

func (w *window) inSlowStart() bool { return w.cwnd < w.ssthresh }

func (w *window) minWindow() int64 { return minWindowPackets * w.c.MaxDatagramSize }

// PacingRate returns the window over the smoothed RTT, times 2 in slow start and 1.25 afterwards
// (RFC 9002 §7.7), so that pacing does not limit the flow.
func (w *window) PacingRate() float64 {
	gain := 1.25
	if w.inSlowStart() {
		gain = 2
	}
	return gain * float64(w.cwnd) / max(w.c.SmoothedRTT, time.Millisecond).Seconds()
}

// Bandwidth returns the window over the smoothed RTT, or 0 if unknown.
func (w *window) Bandwidth() float64 {
	if w.c.SmoothedRTT <= 0 {
		return 0
	}
	return float64(w.cwnd) / w.c.SmoothedRTT.Seconds()
}

// Phase returns slow_start, recovery or congestion_avoidance.
func (w *window) Phase() string {
	switch {
	case w.c.InRecovery:
		return "recovery"
	case w.inSlowStart():
		return "slow_start"
	}
	return "congestion_avoidance"
}

// OnSend implements Controller; it does nothing.
func (w *window) OnSend(time.Duration) {}

// grows reports whether an ACK may raise the window: not in recovery (RFC 9002 §7.3.2), and only if
// the window limited the flow (§7.8).
func (w *window) grows() bool {
	return !w.c.InRecovery && w.c.CwndLimited && w.cwnd < maxWindow
}

// additive raises the window by one packet per window acknowledged (RFC 9002 §7.3.3).
func (w *window) additive(newlyAcked int64) {
	w.acked += newlyAcked
	if w.acked >= w.cwnd {
		w.acked -= w.cwnd
		w.cwnd += w.c.MaxDatagramSize
	}
	w.acked = min(w.acked, w.cwnd)
}

// saveUndo saves the window for undo.
func (w *window) saveUndo() { w.undoCwnd, w.undoSsthresh = w.cwnd, w.ssthresh }

// undo restores the saved window, unless the window is larger now.
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

// collapse responds to persistent congestion (RFC 9002 §7.6.2).
func (w *window) collapse() {
	w.ssthresh = max(w.cwnd/2, w.minWindow())
	w.cwnd = w.minWindow()
	w.acked, w.undoCwnd = 0, 0
}
