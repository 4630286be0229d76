package viewselect

import (
	"math"
	"slices"
	"time"
)

const (
	// watch and enough are the minimum time and number of frames to observe before a change.
	watch  = 4 * time.Second
	enough = 20
	// The level is lowered if more than these shares of the frames are not shown or lost. It is not
	// raised while either share exceeds few.
	manyUnshown = 0.6
	manyLost    = 0.2
	few         = 0.05
	// retryAfter is the time without trouble before the next better level is tried. It doubles with
	// each failed try.
	retryAfter    = 15 * time.Second
	maxRetryAfter = 4 * time.Minute
)

// Counts are frame counts since the start.
type Counts struct {
	Frames  uint64 // received
	Unshown uint64 // of these, dropped because decoding or drawing was busy
	Lost    uint64 // in transit
}

// Cost is the cost of a level over all cameras.
type Cost struct {
	Points  float64
	Bitrate float64 // bit/s; 0 = unknown
}

// Level lowers and raises the quality of a session by the share of frames that are not shown. Level 0
// is the best quality. The zero value is ready to use.
type Level struct {
	now      int
	since    time.Time
	counts   Counts
	good     time.Time // start of the current period without trouble, or zero
	raised   time.Time
	patience time.Duration
}

// Update adds the counts at a time and returns the level. costs lists the cost of each level, best
// first, at least one.
func (l *Level) Update(now time.Time, counts Counts, costs []Cost) int {
	l.now = min(l.now, len(costs)-1)
	if l.since.IsZero() {
		l.since, l.counts, l.patience = now, counts, retryAfter
	}
	frames := float64(counts.Frames - l.counts.Frames)
	lost := float64(counts.Lost - l.counts.Lost)
	if now.Sub(l.since) < watch || frames+lost < enough {
		return l.now
	}
	unshown := float64(counts.Unshown-l.counts.Unshown) / math.Max(1, frames)
	missing := lost / (frames + lost)
	began := l.since
	l.since, l.counts = now, counts
	switch {
	case unshown > manyUnshown && l.lower(now, costs, func(c Cost) float64 { return c.Points }):
	case missing > manyLost && l.lower(now, costs, func(c Cost) float64 { return c.Bitrate }):
	case unshown > few || missing > few:
		l.good = time.Time{}
	default:
		if l.good.IsZero() {
			l.good = began
		}
		if l.now > 0 && now.Sub(l.good) >= l.patience {
			l.now--
			l.raised, l.good = now, time.Time{}
		}
	}
	return l.now
}

// lower selects the best level with a lower or unknown cost, and reports whether there is one.
func (l *Level) lower(now time.Time, costs []Cost, of func(Cost) float64) bool {
	present := of(costs[l.now])
	i := slices.IndexFunc(costs[l.now+1:], func(c Cost) bool { return of(c) < present || of(c) == 0 })
	if i < 0 {
		return false
	}
	l.good = time.Time{}
	if !l.raised.IsZero() && now.Sub(l.raised) < 2*retryAfter {
		l.patience = min(2*l.patience, maxRetryAfter)
	}
	l.now += i + 1
	return true
}
