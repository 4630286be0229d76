package points

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// governor thins the frames of all cameras alike while this machine is too slow to make
// them whole, so that fewer points are lost before frames are. It goes by the time from a
// capture's delivery to its publication, in frame periods: a camera loses captures once
// that is more than one.
//
// Thinning takes effect at once and is undone on trial: a trial that fails is repeated
// after twice the time.
type governor struct {
	log   *slog.Logger
	every atomic.Int32 // rows, of which frames keep one

	mu      sync.Mutex
	cameras []load
	changed time.Time // when every was
	trial   bool      // it became less then
	wait    time.Duration
}

// load is a camera's recent share of its frame period, smoothed.
type load struct {
	share float64
	seen  time.Time
}

const (
	overload  = 0.85            // share above which frames are thinned,
	underload = 0.5             // and below which more points are tried
	smoothing = 0.2             // weight of the newest frame
	settling  = time.Second / 2 // after a change, before the next
	stale     = time.Second     // age of a load that means nothing
	probation = 5 * time.Second // after which a trial has succeeded
	firstWait = 2 * time.Second // before a trial
	lastWait  = time.Minute
	mostRows  = 4 // every is 1, 2 or 4
)

// lostShare stands for a capture that was not published.
const lostShare = 2

func newGovernor(log *slog.Logger, cameras int) *governor {
	g := &governor{log: log, cameras: make([]load, cameras), wait: firstWait}
	g.every.Store(1)
	return g
}

// observe takes the share of its frame period that a camera's capture took.
func (g *governor) observe(camera int, share float64, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := &g.cameras[camera]
	c.share += smoothing * (min(share, lostShare) - c.share)
	c.seen = now
	worst := 0.0
	for _, c := range g.cameras {
		if now.Sub(c.seen) < stale {
			worst = max(worst, c.share)
		}
	}
	since, every := now.Sub(g.changed), g.every.Load()
	switch {
	case worst > overload && every < mostRows && since >= settling:
		if g.trial && since < probation {
			g.wait = min(2*g.wait, lastWait)
		} else {
			g.wait = firstWait
		}
		g.set(2*every, now)
	case worst < underload && every > 1 && since >= g.wait:
		g.set(every/2, now)
	}
}

func (g *governor) set(every int32, now time.Time) {
	g.trial = every < g.every.Load()
	g.changed = now
	g.every.Store(every)
	switch {
	case every == 1:
		g.log.Info("frames have all their points again")
	case g.trial:
		g.log.Info("frames have more of their points again", "rows_kept", 1/float64(every))
	default:
		g.log.Warn("this machine is too slow for all points of all cameras: frames keep a part of their rows; see low, crop, depthMax and colorMode",
			"rows_kept", 1/float64(every))
	}
}
