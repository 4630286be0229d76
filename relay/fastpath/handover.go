//go:build linux && (amd64 || arm64)

package fastpath

import (
	"math"
	"time"
)

const (
	// maxCatchUp is how long user space may take to catch up with the fallbacks. If it takes
	// longer, the machine or path is too busy to send from both the kernel and user space.
	maxCatchUp  = 30 * time.Millisecond
	minHandover = time.Second // initial duration of a handover
	maxHandover = 8 * time.Second

	never = math.MaxUint64
)

// handover tracks user space's progress with one viewer's fallbacks, and hands the viewer over to
// user space for a while if that takes too long.
//
// The kernel continues once user space has sent everything queued; groups of one object never wait.
// If that takes longer than maxCatchUp, user space sends everything for a second. The time doubles
// whenever user space falls behind again soon, because on a machine without spare CPU time, sending
// from both places costs more than sending from one.
type handover struct {
	passed      uint64        // fallbacks passed on by user space
	behindSince time.Duration // time since which user space has datagrams to send; 0 = none
	handed      bool
	until       time.Duration // end of the handover
	duration    time.Duration // duration of the last handover
	returned    uint64        // number of fallbacks when the handover ended; never = there have been new ones
	returnedAt  time.Duration
}

func newHandover() handover { return handover{returned: never} }

// check reports whether the kernel may send. left is the number of objects left to user space so
// far. several means that the last of them is not the first object of its group; unsent means that
// user space has datagrams queued.
func (h *handover) check(now time.Duration, left uint64, several, unsent bool) bool {
	if h.handed {
		if now < h.until {
			return false
		}
		h.handed, h.returned, h.returnedAt = false, left, now
	}
	switch {
	case several && (unsent || h.passed != left): // groups of one object never wait
		if h.behindSince == 0 {
			h.behindSince = now
		}
		if now-h.behindSince > maxCatchUp {
			h.handOver(now)
		}
		return false
	case h.returned == left:
		return false // the socket may hold packets the kernel has not seen
	}
	h.behindSince, h.returned = 0, never
	return true
}

func (h *handover) handOver(now time.Duration) {
	if h.duration > 0 && now-h.returnedAt < h.duration {
		h.duration = min(2*h.duration, maxHandover)
	} else {
		h.duration = minHandover
	}
	h.handed, h.until, h.behindSince = true, now+h.duration, 0
}
