package connect

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// Back-off between attempts.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// moveLimit is how long a session that was moved to may take to settle before the one before
// it is left all the same.
const moveLimit = 15 * time.Second

// moveOverlap is how long a session is still used beside the settled one that takes its place:
// what was sent to it before that is under way.
const moveOverlap = time.Second

// ErrMoved is the cause of the end of a session's context when another session has taken its
// place: the relay asked for that (GOAWAY), or is about to close.
var ErrMoved = errors.New("the relay asked to move the session")

// Keep connects, calls use with the session, and connects again when the session
// is lost, until ctx ends, use returns nil or an error made by Final, or the relay
// takes no token of ours. use
// returns when it is done with the session, at the latest when that ends, and soon after its
// context has ended. The log
// warns of each reason once, until another comes or a session lasts.
//
// Where the relay asks to move elsewhere (GOAWAY, §3.6), the session is left and one where it
// said is used.
func (t Target) Keep(ctx context.Context, h moqt.Handler, cfg moqt.Config, use func(context.Context, *moqt.Session) error) error {
	return t.keep(ctx, h, cfg, use, false)
}

// KeepMoving is Keep for a use that may run twice at a time: when the relay asks to move, the
// new session is used before the old one is left, so that nothing is lost in between. use
// calls Settled once the new session does what the old one did; the old one's context ends
// soon afterwards with the cause ErrMoved.
func (t Target) KeepMoving(ctx context.Context, h moqt.Handler, cfg moqt.Config, use func(context.Context, *moqt.Session) error) error {
	return t.keep(ctx, h, cfg, use, true)
}

// Use is one turn of Keep, or with moving of KeepMoving: it connects once, moves where the relay
// asks for that, and returns what use returned for the last session.
func (t Target) Use(ctx context.Context, h moqt.Handler, cfg moqt.Config, moving bool, use func(context.Context, *moqt.Session) error) error {
	l, err := t.link(ctx, h, cfg, use)
	if err != nil {
		return err
	}
	return t.follow(ctx, l, h, cfg, use, moving)
}

func (t Target) keep(ctx context.Context, h moqt.Handler, cfg moqt.Config, use func(context.Context, *moqt.Session) error, moving bool) error {
	wait := firstRetry
	var reported string
	for {
		t.renew()
		l, err := t.link(ctx, h, cfg, use)
		if err == nil {
			began := time.Now()
			err = t.follow(ctx, l, h, cfg, use, moving)
			if time.Since(began) > lastRetry {
				wait, reported = firstRetry, ""
			}
		}
		var final finalError
		switch {
		case err == nil, ctx.Err() != nil:
			return err
		case errors.As(err, &final):
			return t.explain(final.error)
		case t.refused(err):
			return t.explain(err)
		}
		level := slog.LevelWarn
		if err.Error() == reported {
			level = slog.LevelDebug
		}
		reported = err.Error()
		slog.Log(ctx, level, "trying again until the relay answers", "relay", t.Address(), "in", wait.Round(time.Millisecond), "reason", err)
		if !backOff(ctx, nil, &wait) {
			return err
		}
	}
}

// renew takes what may have changed since the last attempt.
func (t *Target) renew() {
	if t.Renew != nil {
		next := t.Renew()
		t.Token, t.Client, t.CertificateHash, t.Insecure = next.Token, next.Client, next.CertificateHash, next.Insecure
	}
}

// backOff waits, longer at each time; false when ctx or over ended.
func backOff(ctx context.Context, over <-chan struct{}, wait *time.Duration) bool {
	timer := time.NewTimer(*wait)
	defer timer.Stop()
	*wait = min(2**wait, lastRetry)
	*wait += rand.N(*wait / 4) // so that many clients do not return together
	select {
	case <-timer.C:
		return true
	case <-over:
	case <-ctx.Done():
	}
	return false
}

// link is a session in use.
type link struct {
	cancel  context.CancelCauseFunc
	settled chan struct{} // closed by Settled
	goaway  chan string   // where the relay wants us
	done    chan struct{} // closed when use has returned err
	err     error
}

type settledKey struct{}

// Settled says that the session whose use has ctx does what the one before it did; see
// KeepMoving. It may be called more than once.
func Settled(ctx context.Context) {
	if settle, ok := ctx.Value(settledKey{}).(func()); ok {
		settle()
	}
}

// link connects and begins to use the session.
func (t Target) link(ctx context.Context, h moqt.Handler, cfg moqt.Config, use func(context.Context, *moqt.Session) error) (*link, error) {
	l := &link{settled: make(chan struct{}), goaway: make(chan string, 1), done: make(chan struct{})}
	told := h.Goaway
	h.Goaway = func(uri string, timeout time.Duration) {
		l.goaway <- uri // once a session
		if told != nil {
			told(uri, timeout)
		}
	}
	s, err := t.Dial(ctx, h, cfg)
	if err != nil {
		return nil, err
	}
	ctx = context.WithValue(ctx, settledKey{}, sync.OnceFunc(func() { close(l.settled) }))
	ctx, l.cancel = context.WithCancelCause(ctx)
	go func() {
		defer close(l.done)
		defer l.cancel(nil)
		l.err = use(ctx, s)
		if why := s.Err(); t.refused(why) {
			l.err = Final(why)
		}
		s.Close(wire.NoError, "")
	}()
	return l, nil
}

// follow waits for the end of l, or of the session that the relay moved it to last.
func (t Target) follow(ctx context.Context, l *link, h moqt.Handler, cfg moqt.Config, use func(context.Context, *moqt.Session) error, moving bool) error {
	var left sync.WaitGroup
	defer left.Wait()
	for {
		var uri string
		select {
		case <-l.done:
			return l.err
		case uri = <-l.goaway:
		}
		from := t.Address()
		t = t.at(uri)
		slog.Info("the relay asks to move", "relay", from, "to", t.Address())
		old := l
		if !moving {
			old.cancel(ErrMoved)
			<-old.done
			t.renew()
			next, err := t.link(ctx, h, cfg, use)
			if err != nil {
				return err
			}
			l = next
			continue
		}
		next := t.beside(ctx, old, h, cfg, use)
		if next == nil {
			<-old.done
			return old.err
		}
		left.Go(func() {
			select {
			case <-time.After(moveOverlap):
			case <-old.done:
			case <-ctx.Done():
			}
			old.cancel(ErrMoved)
			<-old.done
		})
		l = next
	}
}

// beside opens a session while old is in use, and returns it when it has settled, or old has
// ended; nil when it cannot be had.
func (t Target) beside(ctx context.Context, old *link, h moqt.Handler, cfg moqt.Config, use func(context.Context, *moqt.Session) error) *link {
	wait := firstRetry
	for {
		t.renew()
		next, err := t.link(ctx, h, cfg, use)
		if err == nil {
			limit := time.NewTimer(moveLimit)
			select {
			case <-next.settled:
			case <-old.done:
			case <-limit.C:
			case <-next.done:
				err = next.err
			}
			limit.Stop()
			if err == nil {
				return next
			}
		}
		if IsFinal(err) && !errors.As(err, new(*NoSessionError)) || t.refused(err) {
			slog.Warn("the relay that the session is to move to does not take it", "relay", t.Address(), "reason", err)
			return nil
		}
		slog.Debug("not moved yet", "relay", t.Address(), "reason", err)
		if !backOff(ctx, old.done, &wait) {
			return nil
		}
	}
}

// at is the session where a GOAWAY says: what uri leaves out is as before, and so is whom we
// trust and what authorizes us. A token of the URL moves with it, as it comes before what Renew
// returns.
func (t Target) at(uri string) Target {
	u, err := url.Parse(uri)
	if uri == "" || err != nil || u.Host == "" || u.Scheme != "moqt" && u.Scheme != "https" {
		return t
	}
	address, token := t.split()
	if was, err := url.Parse(address); err == nil && (u.Path == "" || u.Path == "/") {
		u.Path = was.Path
	}
	if _, theirs := (Target{URL: uri}).split(); token != "" && theirs == "" {
		u.Fragment, u.RawFragment = "", ""
		t.URL = u.String() + "#" + url.Values{tokenParameter: {token}}.Encode()
		return t
	}
	t.URL = u.String()
	return t
}
