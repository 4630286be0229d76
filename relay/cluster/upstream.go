package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"holocast/internal/connect"
	"holocast/internal/devcert"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/pause"
)

// upstream is another relay as a router.Upstream. Its session is dialled on first use.
type upstream struct {
	connect.Lazy
	id, text string
	began    time.Time
	live     atomic.Pointer[moqt.Session] // the last session
	silence  connect.Silence              // of that session
	failed   atomic.Int64                 // time of the last failed dial, in UNIX nanoseconds
	cluster  *Cluster
	logged   atomic.Value    // Info with which the last dial failed; zero if it succeeded
	moving   atomic.Bool     // the relay asked to reconnect (GOAWAY)
	ctx      context.Context // ends when the relay is gone
	cancel   context.CancelFunc
}

// newUpstream returns the upstream of a member. The caller holds c.mu.
func (c *Cluster) newUpstream(id string) *upstream {
	u := &upstream{id: id, text: id, began: time.Now(), cluster: c, silence: connect.Silence{ProbeAfter: probeAfter}}
	if o := c.table.members[id]; o != nil {
		u.text = o.Name + " " + o.URL
	}
	u.ctx, u.cancel = context.WithCancel(context.Background())
	u.Open = func(ctx context.Context) (*moqt.Session, error) { return c.dial(ctx, u) }
	return u
}

// String names the relay in logs.
func (u *upstream) String() string { return u.text }

// open returns the session, or nil if none is open.
func (u *upstream) open() *moqt.Session {
	if s := u.live.Load(); s != nil && s.Err() == nil {
		return s
	}
	return nil
}

// A relay that has not been heard on the bus for unheard is not alive unless its session answers within
// sessionWait.
const (
	unheard     = 2*Heartbeat + 100*time.Millisecond
	sessionWait = 300 * time.Millisecond
)

// Alive implements router.Claimant: it reports whether the relay keeps its publishers. A relay that leaves
// does not, nor does one that is heard neither on the bus nor on its session.
func (u *upstream) Alive(ctx context.Context) bool {
	answers := make(chan bool, 1)
	go func() {
		s := u.open()
		answers <- s != nil && s.Alive(ctx, sessionWait)
	}()
	for began := time.Now(); ; {
		u.cluster.mu.Lock()
		o := u.cluster.table.members[u.id]
		there := o != nil && !o.Leaving
		var seen time.Time
		if there {
			seen = o.seen
		}
		u.cluster.mu.Unlock()
		switch {
		case !there, seen.After(began):
			return there
		case time.Since(seen) > unheard:
			return <-answers
		case pause.For(ctx, tick) != nil:
			return true
		}
	}
}

func (u *upstream) close() {
	u.cancel()
	if s := u.live.Load(); s != nil {
		s.Close(wire.NoError, "the relay has left the cluster")
	}
}

// dial opens a session with a relay, which is authenticated by the certificate hash in its messages.
func (c *Cluster) dial(ctx context.Context, u *upstream) (*moqt.Session, error) {
	if err := u.ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s has left the cluster", u)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(u.ctx, cancel)()
	c.mu.Lock()
	o := c.table.members[u.id]
	var info Info
	if o != nil {
		info = o.Info
	}
	c.mu.Unlock()
	if o == nil {
		return nil, fmt.Errorf("%s has left the cluster", u)
	}
	token, err := c.secret.mint(c.id, c.name, u.id, time.Now())
	if err != nil {
		return nil, err
	}
	h, bind := c.host.Router.Member()
	h.Goaway = func(string, time.Duration) { u.moving.Store(true) }
	s, err := moqt.Dial(ctx, info.URL, devcert.Pinned(info.Hash), h, moqt.Config{
		Log: c.log, Congestion: c.host.Congestion, Tokens: []wire.Token{token},
	})
	if err != nil {
		u.failed.Store(time.Now().UnixNano())
		level := slog.LevelWarn
		if u.logged.Swap(info) == info {
			level = slog.LevelDebug
		}
		c.log.Log(ctx, level, "cluster: relay is unreachable", "relay", u.text, "err", err)
		return nil, err
	}
	u.logged.Store(Info{})
	bind(s)
	u.live.Store(s)
	if u.ctx.Err() != nil {
		s.Close(wire.NoError, "the relay has left the cluster")
	}
	c.log.Info("cluster: session with relay open", "relay", u.text)
	context.AfterFunc(s.Context(), func() {
		c.log.Info("cluster: session with relay ended", "relay", u.text, "reason", s.Err())
	})
	return s, nil
}
