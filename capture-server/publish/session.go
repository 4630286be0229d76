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

// clockPatience is how long the namespace waits for the relay's time, so that the
// first frames' capture times are on its clock already.
const clockPatience = 10 * clock.Interval

var errGoaway = errors.New("the relay asked to reconnect")

// keepSession offers the tracks to the relay, connecting again whenever that went
// away. It returns nil when ctx ends, and an error early only for what the user must
// mend.
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

// followClock listens to the relay's clock as long as the session lasts. known is
// closed when its time is known, or when the relay has none to tell.
func (p *Publisher) followClock(s *moqt.Session, known chan<- struct{}) {
	var once sync.Once
	learned := func() { once.Do(func() { close(known) }) }
	defer learned()
	err := connect.FollowClock(s.Context(), s, &p.relayTime, func(moqt.Stats) { learned() })
	if err != nil && s.Context().Err() == nil {
		p.log.Warn("the relay tells no time, so capture times are on this machine's clock", "err", err)
	}
}
