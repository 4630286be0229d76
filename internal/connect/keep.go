package connect

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/devcert"
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
// After a GOAWAY (§3.6), Keep closes the session and connects to the address in the GOAWAY. If the relay
// falls silent or cannot be reached, Keep continues at another relay of its cluster, which it knows from
// the relay's roster or Relays.
func (t Target) Keep(
	ctx context.Context,
	h moqt.Handler,
	cfg moqt.Config,
	use func(context.Context, *moqt.Session) error,
) error {
	return newKeeper(t, h, cfg, use, false).keep(ctx)
}

// KeepMoving is like Keep, but use may run for two sessions at a time. When it moves to another relay, it
// uses the new session before it closes the old one, to lose no data. use must call Settled once
// the new session has taken over. Soon afterwards the context of the old session is cancelled with the
// cause ErrMoved.
func (t Target) KeepMoving(
	ctx context.Context,
	h moqt.Handler,
	cfg moqt.Config,
	use func(context.Context, *moqt.Session) error,
) error {
	return newKeeper(t, h, cfg, use, true).keep(ctx)
}

// keeper keeps a session.
type keeper struct {
	home   Target
	h      moqt.Handler
	cfg    moqt.Config
	use    func(context.Context, *moqt.Session) error
	moving bool
	others others
	pace   pace
	open   func(context.Context, Target, moqt.Handler) (*moqt.Session, error)
	began  bool           // use was called
	late   sync.WaitGroup // dials that are no longer needed
}

func newKeeper(
	t Target, h moqt.Handler, cfg moqt.Config, use func(context.Context, *moqt.Session) error, moving bool,
) *keeper {
	k := &keeper{home: t, h: h, cfg: cfg, use: use, moving: moving}
	k.open = func(ctx context.Context, t Target, h moqt.Handler) (*moqt.Session, error) {
		return t.Dial(ctx, h, k.cfg)
	}
	return k
}

func (k *keeper) keep(ctx context.Context) error {
	defer k.late.Wait()
	wait := firstRetry
	var reported string
	at := k.home // the relay in use, or the first to try
	hops := 0    // changes of the relay since the last pause
	for {
		began := time.Now()
		at.renew()
		others := k.others.of(k.home, at)
		targets := append([]Target{at}, others...)
		if hops > 0 {
			targets = append(others, at) //nolint:gocritic // the lost relay comes last
		}
		l, err := k.dialAny(ctx, targets)
		lost := false
		if err == nil {
			l.start(ctx, k)
			at, lost, err = k.follow(ctx, l)
			if time.Since(began) > lastRetry {
				wait, reported, hops = firstRetry, "", 0
			}
		}
		var final finalError
		switch {
		case err == nil, ctx.Err() != nil:
			return err
		case errors.As(err, &final):
			return at.explain(final.error)
		case at.refused(err):
			return at.explain(err)
		case k.home.Impatient && !k.began:
			return err
		}
		if known := len(k.others.of(k.home, at)); lost && hops < known {
			hops++
			slog.Warn("relay lost; trying the others", "relay", at.Address(), "others", known, "reason", err)
			continue
		}
		hops = 0
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
			at.Address(),
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
	t       Target
	s       *moqt.Session
	began   time.Time
	cancel  context.CancelCauseFunc
	settled chan struct{} // closed by Settled
	goaway  chan string   // URI in a GOAWAY
	quiet   chan struct{} // receives while the relay is silent
	silent  atomic.Int64  // time.Duration for which it has been silent
	done    chan struct{} // closed after use has returned err
	err     error
	lost    bool // the session ended before use returned
}

type settledKey struct{}

// Settled reports that the session whose use received ctx has taken over from the previous one; see
// KeepMoving. It may be called repeatedly.
func Settled(ctx context.Context) {
	if settle, ok := ctx.Value(settledKey{}).(func()); ok {
		settle()
	}
}

// dial opens a session. If early is set, it may return before the relay answers.
func (k *keeper) dial(ctx context.Context, t Target, early bool) (*link, error) {
	l := &link{
		t: t, settled: make(chan struct{}), goaway: make(chan string, 1), quiet: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	h, next := k.h, k.h.Goaway
	h.Goaway = func(uri string, timeout time.Duration) {
		l.goaway <- uri // at most once per session
		if next != nil {
			next(uri, timeout)
		}
	}
	var err error
	l.t.renew()
	l.t.early = early
	l.s, err = k.open(ctx, l.t, h)
	l.t.early = false
	l.began = time.Now()
	return l, err
}

// dialAny dials the targets one after the other, stagger apart, and returns the first session. If all
// fail, it returns the error of the first target.
func (k *keeper) dialAny(ctx context.Context, targets []Target) (*link, error) {
	if len(targets) == 1 {
		return k.dial(ctx, targets[0], true)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		l   *link
		err error
		i   int
	}
	results := make(chan result)
	started, ended := 0, 0
	start := func() {
		if i := started; i < len(targets) {
			started++
			go func() {
				l, err := k.dial(ctx, targets[i], false)
				results <- result{l, err, i}
			}()
		}
	}
	tick := time.NewTicker(stagger)
	defer tick.Stop()
	start()
	var failed error
	for {
		select {
		case <-tick.C:
			start()
		case r := <-results:
			ended++
			switch {
			case r.err == nil:
				cancel()
				k.late.Go(func() {
					for range started - ended {
						if late := <-results; late.err == nil {
							late.l.s.Close(wire.NoError, "")
						}
					}
				})
				return r.l, nil
			case r.i == 0:
				failed = r.err
			}
			if start(); ended == len(targets) {
				return nil, failed
			}
		}
	}
}

// start starts use with the session.
func (l *link) start(ctx context.Context, k *keeper) {
	k.began = true
	ctx = context.WithValue(ctx, settledKey{}, sync.OnceFunc(func() { close(l.settled) }))
	ctx, l.cancel = context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { k.others.learn(ctx, l.s) })
	watching.Go(func() { l.watch(ctx, &k.others) })
	go func() {
		defer close(l.done)
		defer watching.Wait()
		defer l.cancel(nil)
		l.err = k.use(ctx, l.s)
		why := l.s.Err()
		if l.lost = why != nil; l.t.refused(why) {
			l.err = Final(why)
		}
		l.s.Close(wire.NoError, "")
	}()
}

// follow waits until l or, after moves, its last successor ends. It returns the last relay, and whether
// the session with it was lost.
func (k *keeper) follow(ctx context.Context, l *link) (at Target, lost bool, err error) {
	var left sync.WaitGroup
	defer left.Wait()
	var move <-chan time.Time // fires when it is time to follow a GOAWAY
	var to Target
	for {
		var next *link
		select {
		case <-l.done:
			at = l.t
			if move != nil {
				at = to
			}
			select {
			case uri := <-l.goaway:
				at = k.moveTo(at, uri)
			default:
			}
			return at, l.lost, l.err
		case uri := <-l.goaway:
			to = k.moveTo(l.t, uri)
			delay := k.pace.delay(time.Since(l.began))
			slog.Info("relay sent GOAWAY", "relay", l.t.Address(), "to", to.Address(), "in", delay.Round(time.Millisecond))
			move = time.After(delay)
			continue
		case <-move:
			move = nil
			if !k.moving {
				l.cancel(ErrMoved)
				<-l.done
				if next, err = k.dial(ctx, to, true); err != nil {
					return to, true, err
				}
				next.start(ctx, k)
				l = next
				continue
			}
			var refused bool
			if next, refused = k.connectBeside(ctx, l, to); next == nil {
				<-l.done
				if refused {
					to = l.t
				}
				return to, l.lost, l.err
			}
		case <-l.quiet:
			if next = k.outlive(ctx, l); next == nil {
				continue
			}
			move = nil
			slog.Warn("relay does not answer; continuing at another one", "relay", l.t.Address(),
				"to", next.t.Address(), "silent", time.Duration(l.silent.Load()).Round(time.Millisecond))
			if !k.moving {
				l.cancel(ErrMoved)
				<-l.done
				next.start(ctx, k)
				l = next
				continue
			}
			next.start(ctx, k)
			if err := k.settle(l, next); err != nil {
				slog.Debug("move to another relay failed", "relay", next.t.Address(), "reason", err)
				continue
			}
		}
		old := l
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

// settle waits until next has settled, old has ended or moveLimit has passed. The error means that next
// has ended.
func (k *keeper) settle(old, next *link) error {
	limit := time.NewTimer(moveLimit)
	defer limit.Stop()
	select {
	case <-next.settled:
	case <-old.done:
	case <-limit.C:
	case <-next.done:
		return next.err
	}
	return nil
}

// connectBeside opens a session while old is in use. It returns the session once it has settled, old
// has ended or moveLimit has passed, or nil if it fails. After a failure it tries the other relays too.
// refused means that the relay denies the session.
func (k *keeper) connectBeside(ctx context.Context, old *link, to Target) (next *link, refused bool) {
	wait := firstRetry
	targets := []Target{to}
	for {
		next, err := k.dialAny(ctx, targets)
		if err == nil {
			next.start(ctx, k)
			if err = k.settle(old, next); err == nil {
				return next, false
			}
		}
		if IsFinal(err) && !errors.As(err, new(*NoSessionError)) || to.refused(err) {
			slog.Warn("relay named in GOAWAY refused the session", "relay", to.Address(), "reason", err)
			return nil, true
		}
		if len(targets) == 1 {
			left := func(t Target) bool { return t.host() == old.t.host() }
			others := slices.DeleteFunc(k.others.of(k.home, to), left)
			if targets = append(targets, others...); len(others) > 0 {
				continue
			}
		}
		slog.Debug("retrying move after GOAWAY", "relay", to.Address(), "reason", err)
		if !backOff(ctx, old.done, &wait) {
			return nil, false
		}
	}
}

// moveTo returns the target that a GOAWAY names. Its certificate is the one whose SHA-256 in hex is the
// URI's fragment, or the one in the roster.
func (k *keeper) moveTo(t Target, uri string) Target {
	address, fragment, _ := strings.Cut(uri, "#")
	if _, err := devcert.ParseHash(fragment); err != nil {
		address, fragment = uri, ""
	}
	to := t.moveTo(address)
	if to.host() != t.host() {
		to.pin = cmp.Or(fragment, k.others.hash(to.host()))
	}
	return to
}

// moveTo returns the target at uri. Parts missing from uri, trust and credentials stay the same. A token
// in the URL stays too, because it takes precedence over Renew.
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
