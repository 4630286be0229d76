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

// moveLimit bounds the wait for Settled on a new session, after which the old session is closed
// anyway.
const moveLimit = 15 * time.Second

// moveOverlap is how long the old session stays open after the new one has settled, to receive data
// in flight.
const moveOverlap = time.Second

// ErrMoved is the cancellation cause of a session's context when another session replaces it, because
// the relay sent GOAWAY or is about to close.
var ErrMoved = errors.New("the relay asked to move the session")

// Keep connects and calls use with the session. It reconnects when the session is lost, until ctx
// is done, use returns nil or an error marked by Final, or the relay denies access. use must return
// when the session ends, and soon after its context is done. A failure is logged at warn level, or at
// debug level if the last one had the same reason and no session has lasted for lastRetry since.
//
// After a GOAWAY (§3.6), Keep closes the session and connects to the address in the GOAWAY.
func (t Target) Keep(
	ctx context.Context,
	h moqt.Handler,
	cfg moqt.Config,
	use func(context.Context, *moqt.Session) error,
) error {
	return t.keep(ctx, h, cfg, use, false)
}

// KeepMoving is like Keep, but use may run for two sessions at a time. After a GOAWAY it uses the
// new session before it closes the old one, so that no data is lost. use must call Settled once the
// new session has taken over. Soon afterwards the context of the old session is cancelled with the
// cause ErrMoved.
func (t Target) KeepMoving(
	ctx context.Context,
	h moqt.Handler,
	cfg moqt.Config,
	use func(context.Context, *moqt.Session) error,
) error {
	return t.keep(ctx, h, cfg, use, true)
}

// Use is one iteration of Keep, or of KeepMoving if moving is set: it connects once, follows
// GOAWAYs, and returns the result of use for the last session.
func (t Target) Use(
	ctx context.Context,
	h moqt.Handler,
	cfg moqt.Config,
	moving bool,
	use func(context.Context, *moqt.Session) error,
) error {
	l, err := t.link(ctx, h, cfg, use)
	if err != nil {
		return err
	}
	return t.follow(ctx, l, h, cfg, use, moving)
}

func (t Target) keep(
	ctx context.Context,
	h moqt.Handler,
	cfg moqt.Config,
	use func(context.Context, *moqt.Session) error,
	moving bool,
) error {
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
		slog.Log(
			ctx,
			level,
			"trying again until the relay answers",
			"relay",
			t.Address(),
			"in",
			wait.Round(time.Millisecond),
			"reason",
			err,
		)
		if !backOff(ctx, nil, &wait) {
			return err
		}
	}
}

// renew updates the credentials from Renew.
func (t *Target) renew() {
	if t.Renew != nil {
		next := t.Renew()
		t.Token, t.Client, t.CertificateHash, t.Insecure = next.Token, next.Client, next.CertificateHash, next.Insecure
	}
}

// backOff waits with exponential back-off. It returns false if ctx is done or over is closed.
func backOff(ctx context.Context, over <-chan struct{}, wait *time.Duration) bool {
	timer := time.NewTimer(*wait)
	defer timer.Stop()
	*wait = min(2**wait, lastRetry)
	*wait += rand.N(*wait / 4) // jitter, so that many clients do not return at the same time
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
	goaway  chan string   // URI in a GOAWAY
	done    chan struct{} // closed after use has returned err
	err     error
}

type settledKey struct{}

// Settled reports that the session whose use received ctx has taken over from the previous one; see
// KeepMoving. It may be called repeatedly.
func Settled(ctx context.Context) {
	if settle, ok := ctx.Value(settledKey{}).(func()); ok {
		settle()
	}
}

// link connects and starts use with the session.
func (t Target) link(
	ctx context.Context,
	h moqt.Handler,
	cfg moqt.Config,
	use func(context.Context, *moqt.Session) error,
) (*link, error) {
	l := &link{settled: make(chan struct{}), goaway: make(chan string, 1), done: make(chan struct{})}
	next := h.Goaway
	h.Goaway = func(uri string, timeout time.Duration) {
		l.goaway <- uri // at most once per session
		if next != nil {
			next(uri, timeout)
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

// follow waits until l or, after GOAWAYs, its last successor ends.
func (t Target) follow(
	ctx context.Context,
	l *link,
	h moqt.Handler,
	cfg moqt.Config,
	use func(context.Context, *moqt.Session) error,
	moving bool,
) error {
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
		t = t.moveTo(uri)
		slog.Info("relay sent GOAWAY", "relay", from, "to", t.Address())
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
		next := t.connectBeside(ctx, old, h, cfg, use)
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

// connectBeside opens a session while old is in use. It returns the session once it has settled, old
// has ended or moveLimit has passed, or nil if it fails.
func (t Target) connectBeside(
	ctx context.Context,
	old *link,
	h moqt.Handler,
	cfg moqt.Config,
	use func(context.Context, *moqt.Session) error,
) *link {
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
			slog.Warn("relay named in GOAWAY refused the session", "relay", t.Address(), "reason", err)
			return nil
		}
		slog.Debug("retrying move after GOAWAY", "relay", t.Address(), "reason", err)
		if !backOff(ctx, old.done, &wait) {
			return nil
		}
	}
}

// moveTo returns the target that a GOAWAY names. Parts missing from uri, trust and credentials stay
// the same. A token in the URL stays too, because it takes precedence over Renew.
func (t Target) moveTo(uri string) Target {
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
