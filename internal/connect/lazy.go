package connect

import (
	"context"
	"sync"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Lazy is a session with a relay that is dialled when it is first asked for, and again when it
// has ended: what a relay has from another one (router.Upstream).
type Lazy struct {
	Target Target

	mu sync.Mutex
	s  *moqt.Session
}

// String is the relay's address.
func (l *Lazy) String() string { return l.Target.Address() }

// Session returns the session, a new one where there is none.
func (l *Lazy) Session(ctx context.Context) (*moqt.Session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.s != nil && l.s.Err() == nil {
		return l.s, nil
	}
	s, err := l.Target.Dial(ctx, moqt.Handler{}, moqt.Config{})
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
