package points

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// governor thins the frames of all cameras equally while the machine is overloaded, so that points
// are lost before frames. Its input is the time from a capture's delivery to its publication, in
// frame periods. Above 1, a camera loses captures.
//
// Thinning takes effect immediately. The governor reduces it on trial; each failed trial doubles
// the wait for the next.
type governor struct {
	log   *slog.Logger
	every atomic.Int32 // frames keep one row in this many

	mu      sync.Mutex
	cameras []load
	changed time.Time // last change of every
	trial   bool      // the last change reduced thinning
	wait    time.Duration
}

// load is a camera's smoothed processing time, as a fraction of its frame period.
type load struct {
	share float64
	seen  time.Time
}

const (
	overload  = 0.85            // load above which frames are thinned
	underload = 0.5             // load below which less thinning is tried
	smoothing = 0.2             // weight of the newest frame
	settling  = time.Second / 2 // minimum time between changes
	stale     = time.Second     // age at which a load is ignored
	probation = 5 * time.Second // duration of a trial
	firstWait = 2 * time.Second // first wait before a trial
	lastWait  = time.Minute
	mostRows  = 4 // maximum of every, which is 1, 2 or 4
)

// lostShare is the load reported for a dropped capture.
const lostShare = 2

func newGovernor(log *slog.Logger, cameras int) *governor {
	g := &governor{log: log, cameras: make([]load, cameras), wait: firstWait}
	g.every.Store(1)
	return g
}

// observe records the processing time of a camera's capture, as a fraction of the frame period.
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
		g.log.Info("no longer overloaded; frames keep all points again")
	case g.trial:
		g.log.Info("frames keep more rows of points", "rows_kept", 1/float64(every))
	default:
		g.log.Warn("overloaded; frames keep only some rows of points. Use fewer cameras, a lower fps, a crop box or "+
			"NV12 colour", "rows_kept", 1/float64(every))
	}
}
