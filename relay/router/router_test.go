package router

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holocast/internal/clock/clocktest"
	"holocast/internal/connect"
	"holocast/internal/devcert"
	"holocast/internal/leaktest"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var (
	session = moqt.Namespace{"holocast", "test"}
	points  = moqt.TrackName{Namespace: session, Name: "points"}
	quiet   = moqt.Config{Log: slog.New(slog.DiscardHandler)}
)

// relay is a router and its listener.
type relay struct {
	*Router
	t    *testing.T
	ctx  context.Context
	url  string
	tls  *tls.Config
	hash [32]byte // of the certificate

	entriesRead atomic.Int32 // objects that viewers read from FETCHes
}

func start(t *testing.T, cfg Config) *relay {
	t.Helper()
	return startWith(t, cfg, newCertificate(t))
}

func newCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	cert, err := devcert.Generate(time.Now(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func startWith(t *testing.T, cfg Config, cert tls.Certificate) *relay {
	t.Helper()
	ln, err := moqt.Listen("127.0.0.1:0", moqt.ListenConfig{
		Config: quiet,
		TLS:    &tls.Config{Certificates: []tls.Certificate{cert}},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Log = cmp.Or(cfg.Log, quiet.Log)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	hash := devcert.Hash(cert)
	r := &relay{
		Router: New(cfg), t: t, ctx: ctx, url: "moqt://" + ln.Addr().String(), tls: devcert.Pinned(hash),
		hash: hash,
	}
	var wg sync.WaitGroup
	wg.Go(func() { r.ServeAll(ctx, ln) })
	t.Cleanup(func() {
		cancel()
		_ = ln.Close()
		wg.Wait()
		// Unused tracks leave no state behind.
		r.eventually("no state is left", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			indexed := len(r.offersAt.all) + len(r.offersUnder.all) + len(r.tracksUnder.all) + len(r.discoveries.all)
			return len(r.tracks)+len(r.closing)+len(r.clients)+len(r.offers)+indexed == 0
		})
	})
	return r
}

func (r *relay) eventually(what string, ok func() bool) {
	r.t.Helper()
	for range 3000 {
		if ok() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	r.t.Errorf("did not happen: %s", what)
}

func (r *relay) dial(h moqt.Handler) *moqt.Session {
	r.t.Helper()
	s, err := moqt.Dial(r.ctx, r.url, r.tls, h, quiet)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { s.Close(wire.NoError, "") })
	return s
}

// publisher offers tracks in its own session.
type publisher struct {
	*moqt.Session
	ns *moqt.PublishedNamespace
}

func (r *relay) publish(tracks ...*origin.Track) *publisher {
	r.t.Helper()
	var set origin.Set
	for _, t := range tracks {
		set.Add(t)
	}
	s := r.dial(set.Handler())
	ns, err := s.PublishNamespace(r.ctx, session)
	if err != nil {
		r.t.Fatal(err)
	}
	return &publisher{s, ns}
}

func (r *relay) subscribe(s *moqt.Session) *moqt.Subscription {
	r.t.Helper()
	sub, err := s.Subscribe(r.ctx, points, moqt.SubscribeOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return sub
}

func newPoints() *origin.Track { return origin.NewTrack(points, nil, origin.Limits{}) }

func (r *relay) write(tr *origin.Track, group uint64, text string) {
	r.t.Helper()
	h := wire.SubgroupHeader{Group: group, FirstObject: true}
	if err := tr.WriteObject(h, moqt.Object{}, []byte(text)); err != nil {
		r.t.Fatal(err)
	}
}

// read reads the next subgroup, which has one object.
func (r *relay) read(sub *moqt.Subscription) (group uint64, text string) {
	r.t.Helper()
	sg, err := sub.AcceptSubgroup(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := sg.NextObject(); err != nil {
		r.t.Fatal(err)
	}
	b, err := sg.ReadPayload(nil, 1<<20)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := sg.NextObject(); err != io.EOF {
		r.t.Fatal(err)
	}
	return sg.Group, string(b)
}

func (r *relay) expect(sub *moqt.Subscription, group uint64, text string) {
	r.t.Helper()
	if g, s := r.read(sub); g != group || s != text {
		r.t.Fatalf("group %d %q, want %d %q", g, s, group, text)
	}
}

// upstreams returns the number of upstream subscriptions to the track points.
func (r *relay) upstreams() int {
	r.mu.Lock()
	t := r.tracks[points.String()]
	r.mu.Unlock()
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.upstreams)
}

func short() Config { return Config{Linger: 20 * time.Millisecond, Grace: 10 * time.Second} }

// backups configures several publishers per namespace.
func backups() Config { c := short(); c.Backups = true; return c }

// TestTwoPublishers checks that, with backups, viewers receive a track of two publishers once, and that
// either publisher may leave.
func TestTwoPublishers(t *testing.T) {
	r := start(t, backups())
	a, b := newPoints(), newPoints()
	first := r.publish(a)
	sub := r.subscribe(r.dial(moqt.Handler{}))
	second := r.publish(b)
	r.eventually("both are subscribed to", func() bool { return r.upstreams() == 2 })
	for i := range uint64(5) {
		r.write(a, i, "same")
		r.write(b, i, "same")
		r.expect(sub, i, "same")
	}
	first.Close(wire.NoError, "")
	r.write(b, 10, "of the second")
	r.expect(sub, 10, "of the second")
	second.Close(wire.NoError, "")
	r.eventually("both are gone", func() bool { return r.upstreams() == 0 })
	third := newPoints()
	r.publish(third)
	r.eventually("the third is subscribed to", func() bool { return third.Viewers() == 1 })
	r.write(third, 0, "counts anew")
	r.expect(sub, 0, "counts anew")
}

// TestPublisherIsReplaced replaces a publisher that left while viewers are subscribed. A late
// joiner receives the new publisher's newest group, although it was published before the relay
// subscribed.
func TestPublisherIsReplaced(t *testing.T) {
	r := start(t, short())
	before := newPoints()
	first := r.publish(before)
	sub := r.subscribe(r.dial(moqt.Handler{}))
	r.write(before, 1, "of the first")
	r.expect(sub, 1, "of the first")
	first.Close(wire.NoError, "")
	r.eventually("the first is gone", func() bool { return r.upstreams() == 0 })
	after := newPoints()
	r.write(after, 7, "of the second")
	r.publish(after)
	late, err := r.dial(moqt.Handler{}).Subscribe(r.ctx, points, moqt.SubscribeOptions{Join: true})
	if err != nil {
		t.Fatal(err)
	}
	f, err := late.Joined(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	o, err := f.Next()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := f.ReadPayload(nil, 100); err != nil || o.Group != 7 || string(b) != "of the second" {
		t.Errorf("group %d %q, %v", o.Group, b, err)
	}
	r.write(after, 8, "goes on")
	r.expect(sub, 8, "goes on")
	r.expect(late, 8, "goes on")
}

// TestReplacementStartsNewGroup checks that if the track has dynamic groups, viewers of the previous
// publisher receive the replacement's current content in a new group.
func TestReplacementStartsNewGroup(t *testing.T) {
	for _, c := range []struct {
		name         string
		gone         bool   // the first publisher disconnects before the second publishes
		group, again uint64 // the second publisher's group, and the group requested from it
	}{
		{"after the first is gone", true, 7, 8},
		{"after the first left, with new group IDs", true, 0, 1},
		{"before the first is missed", false, 7, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, backups())
			dynamic := func() *origin.Track {
				return origin.NewTrack(points,
					wire.AppendKeyValues(nil, wire.KeyValue{Type: wire.PropertyDynamicGroups, Int: 1}), origin.Limits{})
			}
			before := dynamic()
			first := r.publish(before)
			sub := r.subscribe(r.dial(moqt.Handler{}))
			r.write(before, 1, "of the first")
			r.expect(sub, 1, "of the first")
			if c.gone {
				first.Close(wire.NoError, "")
				r.eventually("the first is gone", func() bool { return r.upstreams() == 0 })
			}
			after := dynamic()
			after.NewGroup = func(group uint64) { r.write(after, group, "once more") }
			r.write(after, c.group, "of the second")
			r.publish(after)
			r.expect(sub, c.again, "once more")
		})
	}
}

// TestSelfSubscription checks that a session may subscribe to its own tracks.
func TestSelfSubscription(t *testing.T) {
	r := start(t, short())
	tr := newPoints()
	p := r.publish(tr)
	sub := r.subscribe(p.Session)
	r.write(tr, 1, "to myself")
	r.expect(sub, 1, "to myself")
}

// TestNamespaceWithdrawn checks that after a namespace is withdrawn, existing subscriptions
// continue and new ones are refused.
func TestNamespaceWithdrawn(t *testing.T) {
	r := start(t, Config{Linger: 20 * time.Millisecond})
	tr := newPoints()
	p := r.publish(tr)
	s := r.dial(moqt.Handler{})
	sub := r.subscribe(s)
	p.ns.Withdraw()
	r.eventually("the namespace is gone", func() bool { return len(r.Namespaces()) == 0 })
	r.write(tr, 1, "goes on")
	r.expect(sub, 1, "goes on")
	other := moqt.TrackName{Namespace: session, Name: "other"}
	var e *moqt.RequestError
	if _, err := s.Subscribe(r.ctx, other, moqt.SubscribeOptions{}); !errors.As(err, &e) ||
		e.Code != wire.RequestDoesNotExist {
		t.Errorf("subscribe after the withdrawal: %v", err)
	}
}

// blockingHandler blocks records with a given message until they are released.
type blockingHandler struct {
	slog.Handler
	message           string
	blocked, released chan struct{}
}

func (h blockingHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h blockingHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }

func (h blockingHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.message {
		h.blocked <- struct{}{}
		<-h.released
	}
	return nil
}

// TestLogBlocks checks that a blocked log stops only the goroutine that logs, since the router holds no
// lock.
func TestLogBlocks(t *testing.T) {
	for name, message := range map[string]string{
		"session opens":       "session open",
		"namespace published": "namespace published",
		"subscription begins": "subscribed",
		"publisher lost":      "publisher lost",
		"namespace withdrawn": "namespace withdrawn",
		"session closes":      "session closed",
	} {
		t.Run(name, func(t *testing.T) {
			h := blockingHandler{slog.DiscardHandler, message, make(chan struct{}, 100), make(chan struct{})}
			cfg := short()
			cfg.Log = slog.New(h)
			r := start(t, cfg)
			released := sync.OnceFunc(func() { close(h.released) })
			t.Cleanup(released) // before the router's
			works := make(chan struct{})
			go func() {
				defer close(works)
				p := r.publish(newPoints())
				_ = r.subscribe(r.dial(moqt.Handler{}))
				p.Close(wire.NoError, "")
			}()
			<-h.blocked
			r.Stats()
			r.Sessions()
			r.upstreams()
			released()
			<-works
		})
	}
}

// TestGrace checks that subscriptions end if their publisher does not return. A new subscription
// does not extend the grace period.
func TestGrace(t *testing.T) {
	r := start(t, Config{
		Linger: 20 * time.Millisecond, Grace: 300 * time.Millisecond,
		Limits: origin.Limits{MaxAge: 50 * time.Millisecond},
	})
	p := r.publish(newPoints())
	s := r.dial(moqt.Handler{})
	sub := r.subscribe(s)
	p.Close(wire.NoError, "")
	r.eventually("the publisher is gone", func() bool { return r.upstreams() == 0 })
	if _, err := r.dial(moqt.Handler{}).Subscribe(r.ctx, points, moqt.SubscribeOptions{}); err == nil {
		t.Error("subscribed at a publisher that is gone")
	}
	<-sub.Done()
	var done *moqt.DoneError
	if !errors.As(sub.Err(), &done) || done.Reason != "the publisher is gone" {
		t.Errorf("subscription ended with %v", sub.Err())
	}
}

// TestTrackEnds checks that a publisher's regular end of track reaches viewers after all objects.
func TestTrackEnds(t *testing.T) {
	r := start(t, Config{Linger: 20 * time.Millisecond, Limits: origin.Limits{MaxAge: 50 * time.Millisecond}})
	tr := newPoints()
	r.publish(tr)
	sub := r.subscribe(r.dial(moqt.Handler{}))
	r.write(tr, 1, "last")
	tr.End(wire.DoneTrackEnded, "the show is over")
	r.expect(sub, 1, "last")
	<-sub.Done()
	var done *moqt.DoneError
	if !errors.As(sub.Err(), &done) || done.Code != wire.DoneTrackEnded || done.Reason != "the show is over" {
		t.Errorf("subscription ended with %v", sub.Err())
	}
}

// TestRendezvous checks that a subscription waits for its publisher for the requested time.
func TestRendezvous(t *testing.T) {
	r := start(t, short())
	s := r.dial(moqt.Handler{})
	var e *moqt.RequestError
	_, err := s.Subscribe(r.ctx, points, moqt.SubscribeOptions{RendezvousTimeout: 30 * time.Millisecond})
	if !errors.As(err, &e) || e.Code != wire.RequestTimeout {
		t.Errorf("without a publisher: %v", err)
	}
	got := make(chan *moqt.Subscription, 1)
	go func() {
		sub, err := s.Subscribe(r.ctx, points, moqt.SubscribeOptions{RendezvousTimeout: 10 * time.Second})
		if err != nil {
			t.Error(err)
		}
		got <- sub
	}()
	tr := newPoints()
	r.publish(tr)
	sub := <-got
	r.write(tr, 1, "came")
	r.expect(sub, 1, "came")
}

// TestUnusedTrackUnsubscribed checks that the relay unsubscribes from a track without viewers.
func TestUnusedTrackUnsubscribed(t *testing.T) {
	r := start(t, short())
	tr := newPoints()
	r.publish(tr)
	sub := r.subscribe(r.dial(moqt.Handler{}))
	r.eventually("the subscription upstream begins", func() bool { return tr.Viewers() == 1 })
	sub.Cancel()
	r.eventually("the subscription upstream ends", func() bool { return tr.Viewers() == 0 })
}

// TestSubscriptionNotAdopted checks that adopt cancels a subscription that is refused or whose
// track was removed meanwhile, and returns its quota.
func TestSubscriptionNotAdopted(t *testing.T) {
	refused := errors.New("too many tracks")
	for _, c := range []struct {
		name    string
		refused error
		removed bool
	}{
		{"refused", refused, false},
		{"track removed", nil, true},
		{"refused and track removed", refused, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, short())
			r.publish(newPoints())
			s := r.dial(moqt.Handler{})
			sub := r.subscribe(s)
			other := r.hold(moqt.TrackName{Namespace: session, Name: "other"})
			defer other.release()
			if c.removed {
				r.mu.Lock()
				other.mu.Lock()
				other.remove(0)
				other.mu.Unlock()
				r.mu.Unlock()
			}
			released := 0
			if got := other.adopt(peer{&client{r: r.Router, s: s}}, sub, false, func() { released++ }, c.refused); got != nil {
				t.Error("the track has the subscription")
			}
			if sub.Err() == nil {
				t.Error("the subscription was not cancelled")
			}
			if released != 1 {
				t.Errorf("quota released %d times", released)
			}
			other.mu.Lock()
			defer other.mu.Unlock()
			if len(other.upstreams) != 0 || !errors.Is(other.lastErr, c.refused) {
				t.Errorf("%d upstreams, last error %v", len(other.upstreams), other.lastErr)
			}
		})
	}
}

// TestNewGroupRequest checks that the requests of all viewers are merged into one upstream request if
// the track has dynamic groups.
func TestNewGroupRequest(t *testing.T) {
	r := start(t, short())
	asked := make(chan uint64, 1000)
	props := moqt.Properties(wire.AppendKeyValues(nil, wire.KeyValue{Type: wire.PropertyDynamicGroups, Int: 1}))
	p := r.dial(moqt.Handler{Subscribe: func(req *moqt.SubscribeRequest) {
		_, _ = req.Accept(moqt.TrackInfo{
			Properties: props, NewGroup: func(g uint64) { asked <- g },
			Largest: func() (moqt.Location, bool) { return moqt.Location{Group: 4}, true },
		})
	}})
	if _, err := p.PublishNamespace(r.ctx, session); err != nil {
		t.Fatal(err)
	}
	ask := func(s *moqt.Subscription, groups ...uint64) {
		for _, g := range groups {
			if _, err := s.Update(r.ctx, moqt.Parameters{NewGroupRequest: &g}); err != nil {
				t.Fatal(err)
			}
		}
	}
	one, other := r.subscribe(r.dial(moqt.Handler{})), r.subscribe(r.dial(moqt.Handler{}))
	ask(one, 3, 5, 5) // 3 is cached; the second 5 is pending
	for g := range uint64(20) {
		ask(other, 6+g, 1<<40+g)
	}
	select {
	case g := <-asked:
		if g != 5 {
			t.Errorf("asked upstream for %d, want 5", g)
		}
	case <-r.ctx.Done():
		t.Fatal("nothing was asked upstream")
	}
	select {
	case g := <-asked:
		t.Errorf("asked for %d, too", g)
	case <-time.After(3 * groupRequestInterval):
	}
}

// TestOldFetchGoesUpstream checks that groups older than the cache are fetched from the publisher.
func TestOldFetchGoesUpstream(t *testing.T) {
	r := start(t, short())
	tr := origin.NewTrack(points, nil, origin.Limits{MaxAge: time.Hour})
	for i := range uint64(5) {
		r.write(tr, i, fmt.Sprint("old ", i))
	}
	r.publish(tr)
	f, err := r.dial(moqt.Handler{}).Fetch(r.ctx, points, moqt.Location{Group: 1}, moqt.Location{Group: 3},
		moqt.FetchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); ; i++ {
		o, err := f.Next()
		if err == io.EOF {
			if i != 4 {
				t.Errorf("response ends before group %d", i)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := f.ReadPayload(nil, 100)
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprint("old ", i); o.Group != i || string(b) != want {
			t.Errorf("group %d %q, want %q", o.Group, b, want)
		}
	}
}

// TestDiscovery checks that a prefix subscriber learns of namespaces that appear and disappear, even if
// another subscriber does not read.
func TestDiscovery(t *testing.T) {
	r := start(t, short())
	events, err := r.dial(moqt.Handler{}).SubscribeNamespace(r.ctx, moqt.Namespace{"holocast"})
	if err != nil {
		t.Fatal(err)
	}
	// This subscriber's events are never read.
	if _, err := r.dial(moqt.Handler{}).SubscribeNamespace(r.ctx, moqt.Namespace{"holocast"}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		p := r.publish(newPoints())
		if e := <-events; !e.Added || !e.Namespace.Equal(session) {
			t.Errorf("%+v, want it added", e)
		}
		p.ns.Withdraw()
		if e := <-events; e.Added || !e.Namespace.Equal(session) {
			t.Errorf("%+v, want it gone", e)
		}
	}
}

// publishTrack sends PUBLISH for points in a session of its own.
func (r *relay) publishTrack() *origin.Track {
	r.t.Helper()
	tr := newPoints()
	v := origin.NewQueue(0).Attach(tr)
	pub, err := r.dial(moqt.Handler{}).Publish(r.ctx, points, v.Info())
	if err != nil {
		r.t.Fatal(err)
	}
	go func() { _ = v.Serve(origin.Publication{Publication: pub}) }()
	return tr
}

// dialAccepting returns a client that accepts every PUBLISH.
func (r *relay) dialAccepting() (*moqt.Session, <-chan *moqt.Subscription) {
	taken := make(chan *moqt.Subscription, 2)
	return r.dial(moqt.Handler{Publish: func(req *moqt.PublishRequest) {
		sub, err := req.Accept(moqt.SubscribeOptions{})
		if err != nil {
			r.t.Error(err)
		}
		taken <- sub
	}}), taken
}

// TestPublishedTrack checks that a PUBLISHed track reaches both SUBSCRIBE_TRACKS and SUBSCRIBE
// subscribers.
func TestPublishedTrack(t *testing.T) {
	r := start(t, short())
	all, taken := r.dialAccepting()
	if err := all.SubscribeTracks(r.ctx, session); err != nil {
		t.Fatal(err)
	}
	tr := r.publishTrack()
	given := <-taken
	asked := r.subscribe(r.dial(moqt.Handler{}))
	r.write(tr, 1, "unasked")
	r.expect(given, 1, "unasked")
	r.expect(asked, 1, "unasked")
}

// dialled is an upstream that connects on first use and counts its connections.
type dialled struct {
	connect.Lazy
	mu    sync.Mutex
	s     *moqt.Session
	dials int
}

func dials(r *relay) *dialled {
	return &dialled{Lazy: connect.Lazy{Target: connect.Target{
		URL:             r.url,
		CertificateHash: hex.EncodeToString(r.hash[:]),
	}}}
}

func (d *dialled) Session(ctx context.Context) (*moqt.Session, error) {
	s, err := d.Lazy.Session(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil && s != d.s {
		d.s = s
		d.dials++
	}
	return s, err
}

// TestOfferDialsLater checks that the relay connects to an offered namespace's upstream on the first
// request for a track, and again after losing the session.
func TestOfferDialsLater(t *testing.T) {
	far := start(t, Config{})
	near := start(t, short())
	up := dials(far)
	withdraw := near.Offer(session, up)
	defer withdraw()
	tr := newPoints()
	far.publish(tr)
	up.mu.Lock()
	if up.dials != 0 {
		t.Error("connected before any track was asked for")
	}
	up.mu.Unlock()
	sub := near.subscribe(near.dial(moqt.Handler{}))
	near.eventually("the near relay subscribes", func() bool { return tr.Viewers() == 1 })
	near.write(tr, 1, "from afar")
	near.expect(sub, 1, "from afar")

	up.mu.Lock()
	up.s.Close(wire.NoError, "lost")
	up.mu.Unlock()
	near.eventually("the near relay dials again", func() bool {
		up.mu.Lock()
		defer up.mu.Unlock()
		return up.dials == 2
	})
	near.eventually("the near relay subscribes again", func() bool { return near.upstreams() == 1 })
	near.write(tr, 2, "again")
	near.expect(sub, 2, "again")
	up.mu.Lock()
	defer up.mu.Unlock()
	up.s.Close(wire.NoError, "")
}

// TestOfferWithoutSession checks that viewers of a track whose upstream is unreachable receive an error
// with a retry interval.
func TestOfferWithoutSession(t *testing.T) {
	far := start(t, Config{})
	near := start(t, Config{})
	far.url = "moqt://127.0.0.1:0" // sending fails immediately; with a closed port the handshake would have to time out
	defer near.Offer(session, dials(far))()
	_, err := near.dial(moqt.Handler{}).Subscribe(near.ctx, points, moqt.SubscribeOptions{})
	var refused *moqt.RequestError
	if !errors.As(err, &refused) || refused.Code != wire.RequestDoesNotExist || refused.RetryInterval == 0 {
		t.Errorf("refused with %v", err)
	}
}

// TestChurn checks that viewers and publishers that come and go at random leave no state behind (start
// checks this). If a namespace can have only one owner, publishers may be refused.
func TestChurn(t *testing.T) {
	for name, backups := range map[string]bool{"backups": true, "one owner": false} {
		t.Run(name, func(t *testing.T) {
			r := start(t, Config{
				Linger: time.Millisecond, Grace: 5 * time.Millisecond,
				Limits: origin.Limits{MaxAge: 5 * time.Millisecond}, Backups: backups,
			})
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					for range 10 {
						tr := newPoints()
						var set origin.Set
						set.Add(tr)
						p := r.dial(set.Handler())
						_, err := p.PublishNamespace(r.ctx, session)
						var refused *moqt.RequestError
						if err != nil && (backups || !errors.As(err, &refused) ||
							refused.Code != wire.RequestUninterested) {
							t.Error(err)
						}
						for i := range uint64(5) {
							r.write(tr, i, "x")
						}
						p.Close(wire.NoError, "")
					}
				})
				wg.Go(func() {
					s := r.dial(moqt.Handler{})
					for range 60 {
						sub, err := s.Subscribe(r.ctx, points,
							moqt.SubscribeOptions{RendezvousTimeout: 50 * time.Millisecond})
						if err != nil {
							continue
						}
						if f, err := s.FetchJoining(r.ctx, sub, 0, moqt.FetchOptions{}); err == nil {
							f.Cancel()
						}
						sub.Cancel()
					}
				})
			}
			wg.Wait()
		})
	}
}

// publisherOf returns the client that offers a namespace.
func (r *relay) publisherOf(ns moqt.Namespace) *client {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for o := range r.offersAt.get(ns) {
		return o.up.(peer).c
	}
	r.t.Fatal("no publisher of the namespace")
	return nil
}

// TestUnreadFetches checks that viewers that fetch groups older than the cache without reading them do
// not block fetches of the newest group and, after a while, do not block fetches of old groups either.
func TestUnreadFetches(t *testing.T) {
	r := start(t, short())
	old := origin.NewTrack(points, nil, origin.Limits{MaxAge: time.Hour, MaxBytes: 1 << 30})
	// Unread groups exceed a stream's receive window of 2 MiB; a slow machine transfers group 3 in time.
	for i, size := range []int{4 << 20, 4 << 20, 4 << 20, 1000, 1000} {
		if err := old.WriteObject(wire.SubgroupHeader{Group: uint64(i), FirstObject: true}, moqt.Object{},
			make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	const attempts = 3 // the machine may stall during some of them
	tracks := []*origin.Track{old}
	for i := range attempts {
		tracks = append(tracks, origin.NewTrack(moqt.TrackName{Namespace: session, Name: fmt.Sprint("other ", i)}, nil,
			origin.Limits{}))
	}
	r.publish(tracks...)
	ask := func() {
		s := r.dial(moqt.Handler{})
		for range 5 {
			go func() {
				_, _ = s.Fetch(r.ctx, points, moqt.Location{}, moqt.Location{Group: 2}, moqt.FetchOptions{})
			}()
		}
	}
	from := r.publisherOf(session).slots.oldFrom
	newest := func(other *origin.Track) time.Duration {
		for i := 0; i < 4 && len(from) < maxOldFetches; i++ { // most fetches of an attempt remain for the next one
			ask()
		}
		r.eventually("fetches wait for their viewers", func() bool { return len(from) == maxOldFetches })
		viewer := r.dial(moqt.Handler{})
		r.write(other, 7, "the newest")
		began := time.Now()
		sub, err := viewer.Subscribe(r.ctx, other.Name(), moqt.SubscribeOptions{Join: true})
		if err != nil {
			t.Fatal(err)
		}
		f, err := sub.Joined(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Next(); err != nil {
			t.Fatal(err)
		}
		if b, err := f.ReadPayload(nil, 100); err != nil || string(b) != "the newest" {
			t.Errorf("%q, %v", b, err)
		}
		return time.Since(began)
	}
	for i := 1; ; i++ {
		took := newest(tracks[i])
		if took <= origin.SourceStall {
			break
		}
		if i == attempts {
			t.Fatalf("the newest group took %s", took)
		}
	}
	honest := r.dial(moqt.Handler{})
	had := func() bool {
		f, err := honest.Fetch(r.ctx, points, moqt.Location{Group: 3}, moqt.Location{Group: 3}, moqt.FetchOptions{})
		if err != nil {
			return false
		}
		defer f.Cancel()
		o, err := f.Next()
		return err == nil && o.Group == 3 && o.PayloadLength == 1000
	}
	// Earlier fetches run two at a time, and each is dropped only once it has stalled.
	for end := time.Now().Add(60 * origin.SourceStall); !had(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("an honest viewer has no old groups")
		}
	}
}

// TestClockIsMonotonic checks that a step of the wall clock does not change the relay's clock track.
func TestClockIsMonotonic(t *testing.T) {
	for _, step := range []time.Duration{time.Hour, -time.Hour} {
		began := clocktest.Step(time.Now(), -step) // read before the wall clock was stepped
		before := time.Now()
		told := monotonicNow(began).Round(0).Sub(began.Round(0))
		if least, most := before.Sub(began), time.Since(began); told < least || told > most {
			t.Errorf("set by %v: %v have passed, told %v", step, most, told)
		}
	}
}
