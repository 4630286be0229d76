//go:build linux && (amd64 || arm64)

package fastpath

import (
	"math"
	"time"
)

const (
	// patience is how long user space may take to catch up with what the kernel left to it.
	// Beyond that the machine or the path is too busy for two ways of sending.
	patience = 30 * time.Millisecond
	minAway  = time.Second // how long the viewer is handed over then, to begin with
	maxAway  = 8 * time.Second

	never = math.MaxUint64
)

// handover is how far user space is with what the kernel left to it of one viewer, and whether
// the viewer is handed to user space for a while.
//
// The kernel goes on once user space has sent all that it has; groups of one object wait for nothing. Where that takes too long, user
// space sends everything for a second, twice as long where the kernel falls behind soon after that:
// on a machine without processor time to spare two ways cost more than one.
type handover struct {
	passed     uint64        // objects that the kernel left and user space passed on
	behind     time.Duration // since when user space has something to send; 0 = it has not
	handed     bool
	until      time.Duration // when that ends
	away       time.Duration // how long it was the last time
	returned   uint64        // objects that the kernel had left when it ended; never = it has left others since
	returnedAt time.Duration
}

func newHandover() handover { return handover{returned: never} }

// look tells whether the kernel may send. left is how many objects it has left so far, several
// that the last of them is not its group's first; unsent says that datagrams of user space wait.
func (h *handover) look(now time.Duration, left uint64, several, unsent bool) bool {
	if h.handed {
		if now < h.until {
			return false
		}
		h.handed, h.returned, h.returnedAt = false, left, now
	}
	switch {
	case several && (unsent || h.passed != left): // groups of one object wait for nothing
		if h.behind == 0 {
			h.behind = now
		}
		if now-h.behind > patience {
			h.handOver(now)
		}
		return false
	case h.returned == left:
		return false // the socket may hold what came while the kernel did not look
	}
	h.behind, h.returned = 0, never
	return true
}

func (h *handover) handOver(now time.Duration) {
	if h.away > 0 && now-h.returnedAt < h.away {
		h.away = min(2*h.away, maxAway)
	} else {
		h.away = minAway
	}
	h.handed, h.until, h.behind = true, now+h.away, 0
}
