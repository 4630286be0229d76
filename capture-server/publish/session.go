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

// clockPatience bounds the wait for the relay's clock before the namespace is published,
// so that the first capture times are on it already.
const clockPatience = 10 * clock.Interval

var errGoaway = errors.New("the relay sent GOAWAY")

// keepSession publishes the namespace at the relay and reconnects as needed. It returns nil
// when ctx ends, and an error only where reconnecting would not help.
func (p *Publisher) keepSession(ctx context.Context, target connect.Target) error {
	h := p.Handler()
	h.Goaway = func(string, time.Duration) {
		select {
		case p.goaway <- struct{}{}:
		default:
		}
	}
	err := target.Keep(ctx, h, moqt.Config{Log: p.log}, p.serveSession)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // ctx ended it, it did not fail
	}
	return err
}

func (p *Publisher) serveSession(ctx context.Context, s *moqt.Session) error {
	select { // a GOAWAY of the session before
	case <-p.goaway:
	default:
	}
	known := make(chan struct{})
	go p.followClock(s, known)
	select {
	case <-known:
	case <-time.After(clockPatience):
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
	p.log.Info("publishing", "namespace", p.namespace.String(), "relay", s.RemoteAddr().String(), "implementation", s.Implementation())
	p.session.Store(s)
	defer p.session.Store(nil)
	select {
	case <-ns.Done():
		return ns.Err()
	case <-p.goaway:
		return errGoaway
	case <-ctx.Done():
		return ctx.Err()
	}
}

// followClock follows the relay's clock while the session lasts. It closes known once the
// clock is known, or the relay turns out to have none.
func (p *Publisher) followClock(s *moqt.Session, known chan<- struct{}) {
	var once sync.Once
	learned := func() { once.Do(func() { close(known) }) }
	defer learned()
	err := connect.FollowClock(s.Context(), s, &p.relayTime, func(moqt.Stats) { learned() })
	if err != nil && s.Context().Err() == nil {
		p.log.Warn("the relay has no clock track: capture times are on this machine's clock", "err", err)
	}
}
