package connect

import (
	"context"
	"sync"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Lazy is a session that is dialed on first use, and again after it has ended. A relay uses it for
// its upstream (router.Upstream).
type Lazy struct {
	Target Target
	// Open, if set, dials instead of Target.
	Open func(context.Context) (*moqt.Session, error)

	mu sync.Mutex
	s  *moqt.Session
}

// String returns the relay's address.
func (l *Lazy) String() string { return l.Target.Address() }

// Session returns the session, dialing it first if necessary.
func (l *Lazy) Session(ctx context.Context) (*moqt.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.s != nil && l.s.Err() == nil {
		return l.s, nil
	}
	open := l.Open
	if open == nil {
		open = func(ctx context.Context) (*moqt.Session, error) {
			return l.Target.Dial(ctx, moqt.Handler{}, moqt.Config{})
		}
	}
	s, err := open(ctx)
	if err != nil {
		return nil, err
	}
	l.s = s
	return s, nil
}

// Close ends the session.
func (l *Lazy) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.s != nil {
		l.s.Close(wire.NoError, "")
	}
}
