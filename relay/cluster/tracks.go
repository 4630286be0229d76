package cluster

import (
	"context"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/pause"
)

// followRetry is the pause after a failed or lost SUBSCRIBE_TRACKS.
const followRetry = time.Second

// follow asks the other relays for the tracks that clients of this relay want to be published to them,
// such as receipts for a monitor. It starts and ends requests as relays and interests come and go. The
// caller holds c.mu.
func (c *Cluster) follow() {
	wanted := map[string]bool{}
	interests := c.host.Router.Interests()
	for id := range c.table.members {
		for _, prefix := range interests {
			key := id + "\x00" + prefix.String()
			wanted[key] = true
			if c.follows[key] != nil {
				continue
			}
			var ctx context.Context
			ctx, c.follows[key] = context.WithCancel(c.ctx)
			up := c.upstream(id)
			c.wg.Go(func() { c.followTracks(ctx, up, prefix) })
		}
	}
	for key, stop := range c.follows {
		if !wanted[key] {
			stop()
			delete(c.follows, key)
		}
	}
}

func (c *Cluster) followTracks(ctx context.Context, up *upstream, prefix moqt.Namespace) {
	for ctx.Err() == nil {
		s, err := up.Session(ctx)
		if err == nil {
			err = s.SubscribeTracks(ctx, prefix)
		}
		if err == nil {
			select {
			case <-s.Context().Done():
				err = s.Err()
			case <-ctx.Done():
				return
			}
		}
		c.log.Debug("cluster: tracks of another relay are not followed", "relay", up.text, "prefix", prefix.String(),
			"err", err)
		_ = pause.For(ctx, followRetry)
	}
}
