package points

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// governor thins the frames of all cameras alike while the machine is overloaded, so that
// points are lost before frames are. Its input is the time from a capture's delivery to
// its publication in frame periods: beyond one, a camera loses captures.
//
// Thinning takes effect at once. It is undone on trial, and after a failed trial the wait
// for the next doubles.
type governor struct {
	log   *slog.Logger
	every atomic.Int32 // frames keep one of so many rows

	mu      sync.Mutex
	cameras []load
	changed time.Time // when every was
	trial   bool      // the last change undid thinning
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
	stale     = time.Second     // age at which a load is ignored
	probation = 5 * time.Second // after which a trial has succeeded
	firstWait = 2 * time.Second // before a trial
	lastWait  = time.Minute
	mostRows  = 4 // every is 1, 2 or 4
)

// lostShare is the share of a capture that was dropped.
const lostShare = 2

func newGovernor(log *slog.Logger, cameras int) *governor {
	g := &governor{log: log, cameras: make([]load, cameras), wait: firstWait}
	g.every.Store(1)
	return g
}

// observe records how much of its frame period a camera's capture took.
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
		g.log.Info("no longer overloaded: frames keep all points")
	case g.trial:
		g.log.Info("less overloaded: frames keep more rows", "rows_kept", 1/float64(every))
	default:
		g.log.Warn("overloaded: frames keep only some rows of points; fewer cameras, a lower fps, a crop box or NV12 colour would help",
			"rows_kept", 1/float64(every))
	}
}
