package publish

import (
	"context"
	"errors"
	"sync"
	"time"

	"holocast/internal/clock"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// clockTimeout bounds the wait for the relay's clock before the namespace is published. Thanks to
// this wait, even the first capture times follow the relay's clock.
const clockTimeout = 10 * clock.Interval

// keepSession publishes the namespace at the relay, reconnecting as needed. It returns nil when ctx
// is done, or an error that reconnecting cannot fix.
func (p *Publisher) keepSession(ctx context.Context, target connect.Target) error {
	err := target.KeepMoving(ctx, p.Handler(), moqt.Config{Log: p.log}, p.serveSession)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // canceled, not failed
	}
	return err
}

func (p *Publisher) serveSession(ctx context.Context, s *moqt.Session) error {
	known := make(chan struct{})
	go p.followClock(ctx, s, known)
	select {
	case <-known:
	case <-time.After(clockTimeout):
	case <-ctx.Done():
		return ctx.Err()
	}
	ns, err := s.PublishNamespace(ctx, p.namespace)
	if err != nil {
		var refused *moqt.RequestError
		if errors.As(err, &refused) && refused.Code == wire.RequestUnauthorized {
			return connect.Final(err)
		}
		return err
	}
	p.log.Info("publishing", "namespace", p.namespace.String(), "relay", s.RemoteAddr().String(), "implementation",
		s.Implementation())
	p.session.Store(s)
	defer p.session.CompareAndSwap(s, nil)
	connect.Settled(ctx)
	select {
	case <-ns.Done():
		return ns.Err()
	case <-ctx.Done():
	}
	if errors.Is(context.Cause(ctx), connect.ErrMoved) {
		p.log.Info("moved to another relay", "from", s.RemoteAddr().String())
		ns.Withdraw()
		leave(s)
	}
	return ctx.Err()
}

// leave keeps the session with the old relay open after a GOAWAY until that relay's subscriptions
// end, for at most leaveLimit: its viewers need time to move.
func leave(s *moqt.Session) {
	limit := time.NewTimer(leaveLimit)
	defer limit.Stop()
	tick := time.NewTicker(leavePoll)
	defer tick.Stop()
	for s.Publishing() > 0 {
		select {
		case <-tick.C:
		case <-limit.C:
			return
		case <-s.Context().Done():
			return
		}
	}
}

const (
	leaveLimit = 30 * time.Second
	leavePoll  = 100 * time.Millisecond
)

// followClock follows the relay's clock until ctx is done, the session ends or the relay turns out
// to have no clock track. It closes known at the first estimate, or on return if there was none.
func (p *Publisher) followClock(ctx context.Context, s *moqt.Session, known chan<- struct{}) {
	var once sync.Once
	learned := func() { once.Do(func() { close(known) }) }
	defer learned()
	err := connect.FollowClock(ctx, s, &p.relayTime, func(moqt.Stats) { learned() })
	if err != nil && s.Context().Err() == nil && ctx.Err() == nil {
		p.log.Warn("relay has no clock track; using local capture times", "err", err)
	}
}
