// Package router connects a relay's publishers and subscribers: which upstream has
// which namespace, one upstream subscription per track and publisher for any number
// of viewers, namespace discovery, and what happens when either side goes away (draft-ietf-moq-transport-18 §9). The tracks themselves, with their cache
// and fan-out, are package origin's.
package router

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/clock"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/trace"
	"holocast/relay/auth"
	"holocast/relay/fastpath"
	"holocast/relay/limits"
)

// Config sets a router's limits; zero fields take the defaults.
type Config struct {
	Limits origin.Limits
	// Grace is how long viewers of a track keep their subscriptions while its
	// publisher is gone, waiting for it to come back. 15 s.
	Grace time.Duration
	// Linger is how long a track without viewers stays subscribed upstream. 5 s.
	Linger time.Duration
	// MaxRendezvous bounds how long a SUBSCRIBE may wait for a publisher. 30 s.
	MaxRendezvous time.Duration
	// MaxSessions bounds concurrent sessions. 4096. What each may have is its connection's
	// admission (limits.Peer).
	MaxSessions int
	// MaxOpen bounds the subgroups in flight to one session at a time.
	// origin.DefaultMaxOpen.
	MaxOpen int
	// Auth says who may do what; nil allows everything to everybody.
	Auth *auth.Authority
	// Backups lets several publishers have a namespace at a time: the same tracks from
	// all of them reach viewers once. Otherwise a second one is refused.
	Backups bool
	// FastPath forwards datagrams in the kernel; nil = off.
	FastPath *fastpath.Manager
	// Tracer reports traced frames; nil = none.
	Tracer *trace.Tracer
	Log    *slog.Logger
}

// Router routes. Make one with New.
type Router struct {
	config atomic.Pointer[Config]
	log    *slog.Logger

	mu          sync.Mutex
	sessions    map[*moqt.Session]*client
	offers      map[*offer]struct{}
	offersAt    exact[*offer]
	offersUnder index[*offer]
	tracks      map[string]*track
	tracksUnder index[*track]
	discoveries exact[*discovery]
	leaving     map[*track]struct{} // removed, some of it still in flight
	local       origin.Set          // the relay's own tracks
	gone        origin.Stats        // counters of removed tracks
	served      uint64              // sessions so far
	refused     map[wire.RequestCode]uint64

	dialled slots // of sessions that are not served
}

// client is a session being served.
type client struct {
	number  uint64
	access  *auth.Session             // nil = it may do anything
	subject string                    // who it has proved to be, "" for nobody
	ended   <-chan *moqt.SessionError // what it proved itself; nil = nothing
	bridge  bool                      // another process of the relay
	queue   *origin.Queue             // what is in flight to it
	slots   slots
}

// offer is a namespace that an upstream has.
type offer struct {
	ns moqt.Namespace
	up Upstream
}

// discovery is a SUBSCRIBE_NAMESPACE or SUBSCRIBE_TRACKS.
type discovery struct {
	s      *moqt.Session
	prefix moqt.Namespace
	tracks bool
	permit *permit
	a      *moqt.Announcer // once accepted
	params moqt.Parameters // what the tracks' subscriptions begin with
	paused bool            // PUBLISHes begin with forward state 0

	blocked map[string]bool           // tracks that it is not offered any more (§6.1)
	changed map[string]moqt.Namespace // under the prefix, since announce looked
	wake    chan struct{}             // signalled when there are some
}

// New returns an empty router.
func New(cfg Config) *Router {
	cfg = cfg.withDefaults()
	r := &Router{
		log:      cmp.Or(cfg.Log, slog.Default()),
		sessions: map[*moqt.Session]*client{}, leaving: map[*track]struct{}{},
		offers: map[*offer]struct{}{}, offersAt: newExact[*offer](), offersUnder: newIndex[*offer](),
		tracks: map[string]*track{}, tracksUnder: newIndex[*track](), discoveries: newExact[*discovery](),
		dialled: newSlots(), refused: map[wire.RequestCode]uint64{},
	}
	r.config.Store(&cfg)
	return r
}

func (c Config) withDefaults() Config {
	c.Grace = cmp.Or(c.Grace, 15*time.Second)
	c.Linger = cmp.Or(c.Linger, 5*time.Second)
	c.MaxRendezvous = cmp.Or(c.MaxRendezvous, 30*time.Second)
	c.MaxSessions = cmp.Or(c.MaxSessions, 4096)
	c.Limits.MaxAge = cmp.Or(c.Limits.MaxAge, 3*time.Second)
	return c
}

// cfg is the configuration in force.
func (r *Router) cfg() *Config { return r.config.Load() }

// SetLimits puts the limits of a configuration in force, for what exists as for what comes,
// but for MaxOpen, which is for sessions to come. More sessions than may be are not ended. The
// memory that tracks share stays the router's, and Backups, Auth and so on stay as they were.
func (r *Router) SetLimits(c Config) {
	next := *r.cfg()
	c = c.withDefaults()
	c.Limits.Memory = next.Limits.Memory
	next.Limits, next.Grace, next.Linger, next.MaxRendezvous = c.Limits, c.Grace, c.Linger, c.MaxRendezvous
	next.MaxSessions, next.MaxOpen = c.MaxSessions, c.MaxOpen
	r.mu.Lock()
	defer r.mu.Unlock()
	r.config.Store(&next)
	for _, t := range r.tracks {
		t.SetLimits(next.Limits)
		t.mu.Lock()
		t.arm() // Linger or Grace
		t.mu.Unlock()
	}
}

// AddLocal serves a track of the relay's own.
func (r *Router) AddLocal(t *origin.Track) { r.local.Add(t) }

// ServeAll serves the sessions that a listener accepts, until that is closed or ctx ends, and
// returns when the last of them has ended.
func (r *Router) ServeAll(ctx context.Context, ln *moqt.Listener) {
	var sessions sync.WaitGroup
	defer sessions.Wait()
	for {
		s, err := ln.Accept(ctx)
		if err != nil {
			return
		}
		sessions.Add(1)
		go r.Serve(s, sessions.Done)
	}
}

// Serve has the router answer a session. It calls done when the session has ended.
func (r *Router) Serve(s *moqt.Session, done func()) {
	c := &client{queue: origin.NewQueue(r.cfg().MaxOpen), slots: newSlots()}
	if !r.open(s, c) {
		done()
		return
	}
	s.Serve(moqt.Handler{
		Subscribe:          r.subscribe,
		TrackStatus:        r.trackStatus,
		Fetch:              r.fetch,
		Publish:            r.publish,
		PublishNamespace:   r.publishNamespace,
		SubscribeNamespace: r.discover,
		SubscribeTracks:    r.discover,
	})
	end := func() {
		r.mu.Lock()
		delete(r.sessions, s)
		r.mu.Unlock()
		if c.access != nil {
			c.access.Close()
		}
		r.logOf(s).Info("session closed", "reason", abridged(s.Err().Error()))
		done()
	}
	if c.access == nil || c.ended == nil && c.access.MayStay() {
		context.AfterFunc(s.Context(), end) // no goroutine, whose stack most idle sessions can do without
		return
	}
	go func() {
		c.stay(s)
		end()
	}()
}

// open admits a session, or closes it.
func (r *Router) open(s *moqt.Session, c *client) bool {
	log := r.logOf(s)
	if r.cfg().Tracer != nil {
		c.queue.OnDone = func(sent origin.Delivery) { r.traceSent(s, sent) }
	}
	if r.cfg().Auth != nil {
		access, err := r.cfg().Auth.Open(s)
		if refused := (*moqt.SessionError)(nil); errors.As(err, &refused) {
			log.Info("session refused", "reason", reason(err))
			s.Close(refused.Code, refused.Reason)
			return false
		}
		c.access, c.subject, c.ended = access, access.Subject(), access.Ended()
	}
	r.mu.Lock()
	full := len(r.sessions) >= r.cfg().MaxSessions
	if !full {
		r.served++
		c.number = r.served
		r.sessions[s] = c
	}
	r.mu.Unlock()
	if full {
		log.Warn("session refused: maxSessions reached", "sessions", r.cfg().MaxSessions)
		s.Close(wire.InternalError, "the relay is at its limit of sessions")
		if c.access != nil {
			c.access.Close()
		}
		return false
	}
	log.Info("session open", "implementation", abridged(s.Implementation()), "webtransport", s.WebTransport(), "path", abridged(withoutQuery(s.Path())), "subject", abridged(c.subject))
	return true
}

func (r *Router) logOf(s *moqt.Session) *slog.Logger {
	return r.log.With("peer", s.RemoteAddr().String())
}

// stay returns when the session has ended. It ends a session that may do nothing any more,
// or shows in time nothing by which it may. One that has renewed what its requests go on by
// stays as long as that is valid.
func (c *client) stay(s *moqt.Session) {
	ended := c.ended
	var unproven <-chan time.Time
	if !c.access.MayStay() {
		t := time.NewTimer(unprovenFor)
		defer t.Stop()
		unproven = t.C
	}
	var expired *moqt.SessionError // what the session itself proved
	var again <-chan time.Time
	for {
		select {
		case <-s.Context().Done():
			return
		case expired = <-ended:
			ended = nil
		case <-again:
		case <-unproven:
			if !c.access.MayStay() {
				s.Close(wire.Unauthorized, "a token is needed")
			}
		}
		switch {
		case expired == nil:
		case c.access.Renewed():
			again = time.After(renewedEvery)
		default:
			s.Close(expired.Code, expired.Reason)
		}
	}
}

// renewedEvery is how often a session is looked at that stays by tokens of its requests.
const renewedEvery = time.Second

// withoutQuery is a session's path without what may hold a token.
func withoutQuery(path string) string {
	path, _, _ = strings.Cut(path, "?")
	return path
}

// Sessions returns the open sessions by their unique numbers.
func (r *Router) Sessions() map[uint64]*moqt.Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := make(map[uint64]*moqt.Session, len(r.sessions))
	for s, c := range r.sessions {
		if !c.bridge {
			m[c.number] = s
		}
	}
	return m
}

// queue is what is in flight to a session.
func (r *Router) queue(s *moqt.Session) *origin.Queue {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.sessions[s]; c != nil {
		return c.queue
	}
	return origin.NewQueue(r.cfg().MaxOpen) // the session has just ended
}

// publishers lists where a track's namespace, or a prefix of it, is offered. r.mu is
// held.
func (r *Router) publishers(name moqt.TrackName) []Upstream {
	var list []Upstream
	for o := range r.offersAt.above(name.Namespace) {
		if !slices.Contains(list, o.up) {
			list = append(list, o.up)
		}
	}
	return list
}

// notify wakes those who wait for a publisher in a namespace, or follow the namespaces
// that come and go there. r.mu is held.
func (r *Router) notify(ns moqt.Namespace) {
	for t := range r.tracksUnder.under(ns) {
		close(t.appeared)
		t.appeared = make(chan struct{})
	}
	for d := range r.discoveries.above(ns) {
		if !d.tracks {
			d.note(ns)
		}
	}
}

// note has a namespace looked at again. r.mu is held.
func (d *discovery) note(ns moqt.Namespace) {
	d.changed[ns.String()] = ns
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (r *Router) publishNamespace(req *moqt.NamespaceRequest) {
	up := peer{req.Session()}
	answered, release, ok := r.admit(req, limits.Namespaces)
	if !ok {
		return
	}
	defer release()
	log := r.log.With("namespace", abridged(req.Namespace.String()), "peer", up.String())
	permit, err := r.permit(req.Request, auth.Publish, moqt.TrackName{Namespace: req.Namespace})
	if err == nil {
		err = reserved(req.Namespace)
	}
	o := &offer{req.Namespace, up}
	if err == nil {
		find := func() Upstream { return r.owner(o.ns, up) }
		err = r.claim(req.Context(), find, func() { r.add(o) })
	}
	if err != nil {
		log.Info("namespace refused", "reason", reason(err))
		r.reject(req, err)
		return
	}
	stop := permit.during(func(why error) {
		req.Revoke(streamCode(why))
		r.remove(o)
		r.revoke(o.ns, up, why)
	})
	err = req.Accept(func() {
		answered()
		r.joinAll(o)
		log.Info("namespace published")
	})
	stop()
	r.remove(o)
	log.Info("namespace withdrawn", "reason", reason(err))
}

// Offer publishes a namespace whose tracks come from up, until withdraw is called.
// Tracks under it that viewers hold are subscribed to at once.
func (r *Router) Offer(ns moqt.Namespace, up Upstream) (withdraw func()) {
	o := &offer{ns, up}
	r.mu.Lock()
	r.add(o)
	r.mu.Unlock()
	r.joinAll(o)
	return func() { r.remove(o) }
}

// add adds an offer. r.mu is held.
func (r *Router) add(o *offer) {
	r.offers[o] = struct{}{}
	r.offersAt.add(o.ns, o)
	r.offersUnder.add(o.ns, o)
	r.notify(o.ns)
}

// joinAll subscribes to those tracks of an offer that are in use.
func (r *Router) joinAll(o *offer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for t := range r.tracksUnder.under(o.ns) {
		go t.join(o.up)
	}
}

func (r *Router) remove(o *offer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.withdraw(o)
}

// withdraw removes an offer, unless that is done. r.mu is held.
func (r *Router) withdraw(o *offer) {
	if _, there := r.offers[o]; !there {
		return
	}
	delete(r.offers, o)
	r.offersAt.remove(o.ns, o)
	r.offersUnder.remove(o.ns, o)
	r.notify(o.ns)
}

// Namespaces lists the published namespaces.
func (r *Router) Namespaces() []moqt.Namespace {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]moqt.Namespace, 0, len(r.offers))
	for o := range r.offers {
		list = append(list, o.ns)
	}
	return list
}

func (r *Router) discover(req *moqt.DiscoveryRequest) {
	answered, release, ok := r.admit(req, limits.Subscriptions)
	if !ok {
		return
	}
	defer release()
	permit, err := r.permit(req.Request, auth.Subscribe, moqt.TrackName{Namespace: req.Prefix})
	if err != nil {
		r.reject(req, err)
		return
	}
	defer permit.during(func(why error) { req.Revoke(streamCode(why)) })()
	d := &discovery{
		s: req.Session(), prefix: req.Prefix, tracks: req.Tracks, permit: permit, params: req.Parameters,
		changed: map[string]moqt.Namespace{}, blocked: map[string]bool{}, wake: make(chan struct{}, 1),
	}
	if f := req.Parameters.Forward; f != nil {
		d.paused = !*f
	}
	req.Move = func(prefix moqt.Namespace) (func(), error) {
		g, err := r.allow(req.Request, auth.Subscribe, moqt.TrackName{Namespace: prefix})
		if err != nil {
			return nil, err
		}
		return func() {
			permit.renew(g)
			r.mu.Lock()
			r.discoveries.remove(d.prefix, d)
			d.prefix = prefix
			r.mu.Unlock()
			r.follow(d)
		}, nil
	}
	ctx, cancel := context.WithCancel(req.Context())
	var wg sync.WaitGroup
	err = req.Accept(func(a *moqt.Announcer) {
		answered()
		d.a = a
		r.follow(d)
		if !d.tracks {
			// In a goroutine: a subscriber that does not read blocks no other.
			wg.Go(func() { r.announce(ctx, d, a) })
		}
	})
	r.mu.Lock()
	r.discoveries.remove(d.prefix, d)
	r.mu.Unlock()
	cancel()
	wg.Wait()
	r.log.Debug("discovery ended", "prefix", abridged(d.prefix.String()), "reason", reason(err))
}

// follow has d told of what there is under its prefix, and will be.
func (r *Router) follow(d *discovery) {
	r.mu.Lock()
	r.discoveries.add(d.prefix, d)
	if !d.tracks {
		for o := range r.offersUnder.under(d.prefix) {
			d.note(o.ns)
		}
	}
	r.mu.Unlock()
	if d.tracks {
		for _, t := range r.published(d) {
			go t.offerTo(d)
		}
	}
}

// announce sends a subscriber the namespaces that appear and disappear under its
// prefix.
func (r *Router) announce(ctx context.Context, d *discovery, a *moqt.Announcer) {
	for {
		r.mu.Lock()
		changed := d.changed
		d.changed = map[string]moqt.Namespace{}
		there := map[string]bool{}
		for key, ns := range changed {
			for o := range r.offersAt.at(ns) {
				if o.up != (peer{d.s}) || !r.bridged(d.s) { // a bridge has what came from it
					there[key] = true
					break
				}
			}
		}
		r.mu.Unlock()
		for key, ns := range changed {
			tell := a.Done
			if there[key] {
				tell = a.Added
			}
			if tell(ns) != nil {
				return
			}
		}
		select {
		case <-d.wake:
		case <-ctx.Done():
			return
		}
	}
}

// published lists the tracks under d's prefix that other sessions PUBLISHed.
func (r *Router) published(d *discovery) []*track {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*track
	for t := range r.tracksUnder.under(d.prefix) {
		if t.publishedByOther(d.s) {
			list = append(list, t)
		}
	}
	return list
}

func (r *Router) subscribe(req *moqt.SubscribeRequest) {
	answered, release, ok := r.admit(req, limits.Subscriptions)
	if !ok {
		return
	}
	serving := false
	defer func() {
		if answered(); !serving {
			release()
		}
	}()
	if t := r.local.Track(req.Track); t != nil {
		since := time.Now()
		if pub, err := req.Accept(t.Info()); err == nil {
			serving = true
			go func() {
				defer release()
				_ = r.queue(req.Session()).Serve(t, origin.Publication{Publication: pub}, since)
			}()
		}
		return
	}
	permit, err := r.permit(req.Request, auth.Subscribe, req.Track)
	if err != nil {
		r.reject(req, err)
		return
	}
	wait := time.Duration(0)
	if ms := req.Parameters.RendezvousTimeout; ms != nil {
		wait = min(time.Duration(min(*ms, 1<<31))*time.Millisecond, r.cfg().MaxRendezvous)
	}
	since := time.Now() // a subscriber that waited gets all that arrived since
	t, err := r.acquireFor(req.Context(), req.Track, wait, req.Parameters.NewGroupRequest)
	if err != nil {
		r.reject(req, err)
		return
	}
	pub, err := req.Accept(t.info())
	if err != nil {
		t.release()
		return
	}
	r.log.Debug("subscribed", "track", abridged(req.Track.String()), "peer", req.Session().RemoteAddr().String())
	serving = true
	go func() {
		defer release()
		defer permit.during(func(why error) { _ = pub.Done(auth.DoneCode(why), why.Error()) })()
		err := r.queue(req.Session()).Serve(t.Track, r.cfg().FastPath.Viewer(t.Track, pub), since)
		t.release()
		r.log.Debug("subscription ended", "track", abridged(req.Track.String()), "reason", reason(err))
	}()
}

func (r *Router) trackStatus(req *moqt.TrackStatusRequest) {
	_, release, ok := r.admit(req)
	if !ok {
		return
	}
	defer release()
	if t := r.local.Track(req.Track); t != nil {
		_ = req.Accept(t.Info())
		return
	}
	if _, err := r.allow(req.Request, auth.Subscribe, req.Track); err != nil {
		r.reject(req, err)
		return
	}
	t, err := r.acquire(req.Context(), req.Track, 0)
	if err != nil {
		r.reject(req, err)
		return
	}
	_ = req.Accept(t.Info())
	t.release()
}

func (r *Router) fetch(req *moqt.FetchRequest) {
	answered, release, ok := r.admit(req, limits.Fetches)
	if !ok {
		return
	}
	defer release()
	if t := r.local.Track(req.Track); t != nil {
		_ = t.ServeFetch(req, nil)
		return
	}
	permit, err := r.permit(req.Request, auth.Subscribe, req.Track)
	if err != nil {
		r.reject(req, err)
		return
	}
	defer permit.during(func(why error) { req.Revoke(streamCode(why)) })()
	ctx := req.Context()
	if ms := req.Parameters.FillTimeout; ms != nil { // for all that follows, not for each wait
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(min(*ms, 1<<31))*time.Millisecond)
		defer cancel()
	}
	t, err := r.acquireForFetch(ctx, req)
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		answered()
		_ = origin.ServeUnknown(req)
		return
	case err != nil:
		r.reject(req, err)
		return
	}
	defer t.release()
	t.awaitFill(ctx)
	answered()
	t.fillGaps(ctx, req)
	var source origin.Source
	if up := t.anyUpstream(); up != nil {
		source = r.source(up, req)
	}
	if end, ok := ctx.Deadline(); ok {
		req.Parameters.FillTimeout = new(uint64(max(0, time.Until(end).Milliseconds())))
	}
	if err := t.ServeFetch(req, source); err != nil {
		r.log.Debug("fetch not answered in full", "track", abridged(req.Track.String()), "err", abridged(err.Error()))
	}
}

// Track statistics, for the metrics.

// TrackStats are the counters of one track.
type TrackStats struct {
	Name moqt.TrackName
	origin.Stats
}

// Stats returns the counters of all tracks, and the sum of those of removed tracks.
func (r *Router) Stats() (tracks []TrackStats, gone origin.Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tracks {
		tracks = append(tracks, TrackStats{t.Name(), t.Stats()})
	}
	gone = r.gone
	for t := range r.leaving {
		gone.Add(t.Stats())
	}
	return tracks, gone
}

// steady is the time now by a clock that was right at a moment and goes on evenly: a step of
// the wall clock, which frames in flight would seem to be late by, does not show.
func steady(began time.Time) time.Time { return began.Add(time.Since(began)) }

// RunClock publishes the relay's clock track until ctx ends.
func (r *Router) RunClock(ctx context.Context) {
	t := origin.NewTrack(clock.TrackName(), nil, origin.Limits{MaxAge: time.Second, MaxBytes: 1 << 12})
	r.AddLocal(t)
	tick := time.NewTicker(clock.Interval)
	defer tick.Stop()
	began := time.Now()
	group := uint64(began.UnixMilli())
	var stamp clock.Stamp
	for {
		select {
		case <-ctx.Done():
			t.End(wire.DoneGoingAway, "the relay is shutting down")
			return
		case <-tick.C:
			group++
			stamp.Sequence++
			stamp.Time = steady(began)
			t.SendDatagram(moqt.Datagram{Group: group, Payload: stamp.Append(nil)})
		}
	}
}
