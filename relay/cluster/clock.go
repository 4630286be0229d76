package cluster

import (
	"context"
	"time"

	"holocast/internal/clock"
	"holocast/internal/connect"
	"holocast/internal/pause"
)

// The relays of a cluster share the clock of its oldest member. Capture and display of a frame may thus be
// measured at different relays.
const (
	// clockStep is the deviation above which a relay sets its clock; below, it slews by clockSlew a second.
	clockStep = 20 * time.Millisecond
	clockSlew = 200 * time.Microsecond
	// clockStamps is the number of stamps needed for the first correction.
	clockStamps = 5
)

// follower estimates the clock of another relay.
type follower struct {
	id     string
	stop   context.CancelFunc
	est    clock.Estimator
	behind time.Duration // of this relay's clock, at the last correction
}

// keepTime follows the reference's clock. The caller holds c.mu.
func (c *Cluster) keepTime() {
	id := c.table.Reference()
	if c.time != nil && c.time.id != id {
		c.time.stop()
		c.time = nil
	}
	if id == "" {
		return
	}
	if c.time == nil {
		f := &follower{id: id}
		var ctx context.Context
		ctx, f.stop = context.WithCancel(c.ctx)
		up := c.upstream(id)
		c.wg.Go(func() { f.run(ctx, up) })
		c.time = f
	}
	now := time.Now()
	e := c.time.est.Estimate(now)
	if e.Samples < clockStamps {
		return
	}
	c.time.behind = c.time.est.At(now).Sub(c.host.Router.Now())
	by := min(max(c.time.behind, -clockSlew), clockSlew)
	if c.time.behind.Abs() > clockStep {
		by = c.time.behind
		c.log.Info("cluster: clock set by the reference relay", "by", by, "relay", id)
	}
	c.host.Router.AdjustClock(by)
}

func (f *follower) run(ctx context.Context, up *upstream) {
	for ctx.Err() == nil {
		s, err := up.Session(ctx)
		if err == nil {
			_ = connect.FollowClock(ctx, s, &f.est, nil)
		}
		_ = pause.For(ctx, followRetry)
	}
}

// clockError bounds the difference between this relay's clock and the reference's.
func (f *follower) clockError(now time.Time) time.Duration {
	if f == nil {
		return 0
	}
	e := f.est.Estimate(now)
	if e.Samples == 0 {
		return 0
	}
	return e.Error + f.behind.Abs()
}
