// Package router connects a relay's publishers and subscribers (draft-ietf-moq-transport-18 §9). It
// tracks the namespaces of each upstream, makes one upstream subscription per track and publisher for
// any number of viewers, serves namespace discovery, and handles peers that leave. Package origin
// implements the tracks with their caches and fan-out.
package router

import (
	"cmp"
	"context"
	"errors"
	"iter"
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
	"holocast/relay/diskcache"
	"holocast/relay/fastpath"
	"holocast/relay/limits"
)

// Defaults of Config.
const (
	DefaultGrace         = 15 * time.Second
	DefaultLinger        = 5 * time.Second
	DefaultMaxRendezvous = 30 * time.Second
	DefaultMaxSessions   = 4096
)

// Config configures a router. Zero limits and times mean the defaults.
type Config struct {
	Limits origin.Limits
	// Grace is the time that subscriptions survive their publisher.
	Grace time.Duration
	// Linger is the time that a track without viewers stays subscribed upstream.
	Linger time.Duration
	// MaxRendezvous limits how long a SUBSCRIBE waits for a publisher.
	MaxRendezvous time.Duration
	// MaxSessions limits the number of concurrent sessions, without those of other relays of the cluster.
	// limits.Peer limits each of them.
	MaxSessions int
	// MaxOpen limits the subgroups in flight per session. The default is origin.DefaultMaxOpen.
	MaxOpen int
	// Auth authorizes requests. If nil, all are allowed.
	Auth *auth.Authority
	// Relay, if not nil, returns the name of the relay of the same cluster that opened a session, or
	// "" if the peer is not a relay. A *moqt.SessionError closes the session.
	Relay func(*moqt.Session) (name string, err error)
	// Near reports whether such a relay is in this relay's region.
	Near func(name string) bool
	// Redirect, if not nil, returns the URL of another relay for a client for which this one has no room,
	// or "" if there is none.
	Redirect func() string
	// Backups allows several publishers per namespace; viewers receive each track once. Otherwise
	// only the first publisher is accepted.
	Backups bool
	// Disk keeps groups that leave the memory unless it is nil.
	Disk *diskcache.Store
	// FastPath forwards datagrams in the kernel unless it is nil.
	FastPath *fastpath.Manager
	// Tracer reports traced frames unless it is nil.
	Tracer *trace.Tracer
	Log    *slog.Logger
}

// Router forwards tracks between sessions. Create one with New.
type Router struct {
	config atomic.Pointer[Config]
	log    *slog.Logger
	began  time.Time    // of the relay's clock
	ahead  atomic.Int64 // time.Duration by which the relay's clock is ahead of the machine's

	mu           sync.Mutex
	clients      map[*client]struct{} // open sessions
	offers       map[*offer]struct{}
	offersAt     exactIndex[*offer]
	offersUnder  prefixIndex[*offer]
	tracks       map[string]*track
	tracksUnder  prefixIndex[*track]
	discoveries  exactIndex[*discovery]
	interests    map[*discovery]struct{} // of clients that ask for tracks
	closing      map[*track]struct{}     // removed tracks that still have objects in flight
	local        origin.Set              // the relay's own tracks
	removedStats origin.Stats            // counters of removed tracks
	sessionCount uint64                  // sessions served so far
	refused      map[wire.RequestCode]uint64

	dialled map[Upstream]*dialledUpstream // with offers
	// moved holds the namespaces for Published, and changed is signalled when there are some. moved is nil
	// before the first call.
	moved   map[string]moqt.Namespace
	changed chan struct{}
	hosted  chan struct{}                    // signalled when an offer changes
	leaving bool                             // new clients are sent to other relays
	blocked atomic.Pointer[[]moqt.Namespace] // see Block
	relays  int                              // clients that are other relays
}

// client is the peer of a session. Its methods handle the peer's requests.
type client struct {
	r       *Router
	s       *moqt.Session
	number  uint64
	access  *auth.Session             // nil without authentication
	subject string                    // authenticated identity, "" if none
	ended   <-chan *moqt.SessionError // receives when the session's own grants end; nil if it has none
	bridge  bool                      // the peer is another process of this relay
	yielded bool                      // the process drains, so its publishers move to this one
	opened  time.Time                 // when the session was admitted
	moving  atomic.Bool               // asked to move to another relay
	relay   bool                      // the peer is another relay of the cluster
	name    string                    // of that relay
	member  bool                      // the same, but this relay opened the session
	tracks  atomic.Int64              // published by a member
	queue   *origin.Queue             // deliveries in flight to the peer
	slots   slots
}

// offer is a namespace offered by an upstream.
type offer struct {
	ns     moqt.Namespace
	up     Upstream
	onward bool            // served to other relays of the region
	revoke func(why error) // ends a peer's request; nil for other upstreams
}

// dialledUpstream is an upstream that is no peer.
type dialledUpstream struct {
	offers int
	slots  slots
}

// discovery is a SUBSCRIBE_NAMESPACE or SUBSCRIBE_TRACKS request.
type discovery struct {
	c      *client
	prefix moqt.Namespace
	tracks bool
	authz  *authorization
	a      *moqt.Announcer // once accepted
	params moqt.Parameters // initial parameters of its subscriptions
	paused bool            // PUBLISHes start with forward state 0

	blocked map[string]bool           // tracks no longer offered to it (§6.1)
	changed map[string]moqt.Namespace // namespaces under the prefix that changed after announce last ran
	wake    chan struct{}             // signalled when changed is not empty
}

// New returns an empty router.
func New(cfg Config) *Router {
	cfg = cfg.withDefaults()
	r := &Router{
		began:   time.Now(),
		log:     cmp.Or(cfg.Log, slog.Default()),
		clients: map[*client]struct{}{}, closing: map[*track]struct{}{},
		offers: map[*offer]struct{}{}, offersAt: newExactIndex[*offer](), offersUnder: newPrefixIndex[*offer](),
		tracks: map[string]*track{}, tracksUnder: newPrefixIndex[*track](), discoveries: newExactIndex[*discovery](),
		interests: map[*discovery]struct{}{}, dialled: map[Upstream]*dialledUpstream{},
		refused: map[wire.RequestCode]uint64{}, changed: make(chan struct{}, 1),
		hosted: make(chan struct{}, 1),
	}
	r.config.Store(&cfg)
	return r
}

func (c Config) withDefaults() Config {
	c.Grace = cmp.Or(c.Grace, DefaultGrace)
	c.Linger = cmp.Or(c.Linger, DefaultLinger)
	c.MaxRendezvous = cmp.Or(c.MaxRendezvous, DefaultMaxRendezvous)
	c.MaxSessions = cmp.Or(c.MaxSessions, DefaultMaxSessions)
	c.Limits.MaxAge = cmp.Or(c.Limits.MaxAge, origin.DefaultMaxAge)
	return c
}

// cfg returns the current configuration.
func (r *Router) cfg() *Config { return r.config.Load() }

// SetLimits applies the limits of a configuration to existing and new sessions and tracks, except
// for MaxOpen, which applies only to new sessions. It does not close sessions beyond MaxSessions.
// It leaves the shared memory, Backups, Auth and the other fields unchanged.
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

// AddLocal serves one of the relay's own tracks.
func (r *Router) AddLocal(t *origin.Track) { r.local.Add(t) }

// ServeAll serves the sessions of a listener until the listener is closed or ctx is done. It returns
// when the last session has ended.
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

// Serve serves a session. It calls done when the session has ended.
func (r *Router) Serve(s *moqt.Session, done func()) {
	c := r.newClient()
	c.s = s
	if !c.open() {
		done()
		return
	}
	s.Serve(moqt.Handler{
		Subscribe:          c.subscribe,
		TrackStatus:        c.trackStatus,
		Fetch:              c.fetch,
		Publish:            c.publish,
		PublishNamespace:   c.publishNamespace,
		SubscribeNamespace: c.discover,
		SubscribeTracks:    c.discover,
	})
	end := func() {
		r.mu.Lock()
		delete(r.clients, c)
		if c.relay {
			r.relays--
		}
		r.mu.Unlock()
		if c.access != nil {
			c.access.Close()
		}
		r.logOf(s).Info("session closed", "reason", truncated(s.Err().Error()))
		done()
	}
	if c.access == nil || c.ended == nil && c.access.MayStay() {
		context.AfterFunc(s.Context(), end) // saves a goroutine per idle session
		return
	}
	go func() {
		c.enforceAuth()
		end()
	}()
}

// newClient returns a client without a session.
func (r *Router) newClient() *client {
	return &client{r: r, queue: origin.NewQueue(r.cfg().MaxOpen), slots: newSlots()}
}

// open admits the session or closes it.
func (c *client) open() bool {
	r, s := c.r, c.s
	log := r.logOf(s)
	if r.cfg().Tracer != nil {
		c.queue.OnDone = func(sent origin.Delivery) { r.traceSent(s, sent) }
	}
	if err := c.authenticate(); err != nil {
		log.Info("session refused", "reason", reason(err))
		if refused := (*moqt.SessionError)(nil); errors.As(err, &refused) {
			s.Close(refused.Code, refused.Reason)
		}
		return false
	}
	r.mu.Lock()
	leaving, full := r.leaving && !c.relay, len(r.clients)-r.relays >= r.cfg().MaxSessions && !c.relay
	if !full && !leaving {
		r.sessionCount++
		c.number, c.opened = r.sessionCount, time.Now()
		r.clients[c] = struct{}{}
		if c.relay {
			r.relays++
		}
	}
	r.mu.Unlock()
	if full || leaving {
		c.turnAway(log, leaving)
		if c.access != nil {
			c.access.Close()
		}
		return false
	}
	log.Info("session open", "implementation", truncated(s.Implementation()), "transport", s.Transport(),
		"path", truncated(withoutQuery(s.Path())), "subject", truncated(c.subject), "early_data", s.UsedEarlyData())
	return true
}

// turnAway sends the peer to another relay, or refuses it if there is none.
func (c *client) turnAway(log *slog.Logger, leaving bool) {
	to, cfg := "", c.r.cfg()
	if cfg.Redirect != nil && !c.relay {
		to = cfg.Redirect()
	}
	switch {
	case to == "" && leaving:
		log.Info("session refused: the relay is leaving, and no other relay has room")
		c.s.Close(wire.NoError, "the relay is shutting down")
		return
	case to == "":
		log.Warn("session refused: maxSessions reached", "sessions", cfg.MaxSessions)
		c.s.Close(wire.InternalError, "the relay has reached its session limit")
		return
	}
	log.Info("session sent to another relay", "to", to)
	// The peer's requests wait meanwhile, since none is served.
	_ = c.s.Goaway(context.Background(), AddressFor(c.s, to), redirectTimeout)
}

// AddressFor returns a relay's moqt:// URL in the form that a session's transport needs.
func AddressFor(s *moqt.Session, url string) string {
	if address, ok := strings.CutPrefix(url, "moqt://"); ok && s.Transport() != moqt.QUIC {
		return "https://" + address
	}
	return url
}

// redirectTimeout is the time that a client may take to leave for another relay.
const redirectTimeout = 2 * time.Second

// Load returns the number of sessions without those of other relays, and how many more the router accepts.
func (r *Router) Load() (sessions, room int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	sessions = len(r.clients) - r.relays
	return sessions, max(0, r.cfg().MaxSessions-sessions)
}

// Drain makes the router send new clients to other relays. Its publishers may move to the process that replaces
// this one.
func (r *Router) Drain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.leaving {
		r.leaving = true
		r.AddLocal(origin.NewTrack(drainTrack, nil, origin.Limits{}))
	}
}

// Leaving reports whether Drain has been called.
func (r *Router) Leaving() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leaving
}

// drainTrack exists while a router drains.
var drainTrack = moqt.TrackName{Namespace: moqt.Namespace{clock.Namespace}, Name: "draining"}

// Clients returns the open sessions of clients, without those of other relays.
func (r *Router) Clients() (list []*moqt.Session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.clients {
		if !c.bridge && !c.relay {
			list = append(list, c.s)
		}
	}
	return list
}

// authenticate finds out who the peer is. The error is a *moqt.SessionError.
func (c *client) authenticate() error {
	cfg := c.r.cfg()
	if cfg.Relay != nil {
		name, err := cfg.Relay(c.s)
		if err != nil {
			return err
		}
		if name != "" { // it authorizes its own clients
			c.relay, c.name, c.subject = true, name, "relay "+name
			return nil
		}
	}
	if cfg.Auth == nil {
		return nil
	}
	access, err := cfg.Auth.Open(c.s)
	if err != nil {
		return err
	}
	c.access, c.subject, c.ended = access, access.Subject(), access.Ended()
	return nil
}

func (r *Router) logOf(s *moqt.Session) *slog.Logger {
	return r.log.With("peer", s.RemoteAddr().String())
}

// enforceAuth closes the session when its own grants end, or if it does not present a token in time. A
// session that has presented a newer token with a request stays open while that token is valid.
// enforceAuth returns when the session has ended.
func (c *client) enforceAuth() {
	s := c.s
	ended := c.ended
	var noToken <-chan time.Time
	if !c.access.MayStay() {
		t := time.NewTimer(tokenTimeout)
		defer t.Stop()
		noToken = t.C
	}
	var expired *moqt.SessionError // reason why the session's own grants ended
	var recheck <-chan time.Time
	for {
		select {
		case <-s.Context().Done():
			return
		case expired = <-ended:
			ended = nil
		case <-recheck:
		case <-noToken:
			if !c.access.MayStay() {
				s.Close(wire.Unauthorized, "a token is needed")
			}
		}
		switch {
		case expired == nil:
		case c.access.Renewed():
			recheck = time.After(renewalCheck)
		default:
			s.Close(expired.Code, expired.Reason)
		}
	}
}

// renewalCheck is the interval between checks of a session that depends on tokens in its requests.
const renewalCheck = time.Second

// withoutQuery removes the query of a session's path, which may hold a token.
func withoutQuery(path string) string {
	path, _, _ = strings.Cut(path, "?")
	return path
}

// Sessions returns the open sessions, except for bridges, by their unique numbers.
func (r *Router) Sessions() map[uint64]*moqt.Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := make(map[uint64]*moqt.Session, len(r.clients))
	for c := range r.clients {
		if !c.bridge {
			m[c.number] = c.s
		}
	}
	return m
}

// publishers lists the upstreams that offer a track's namespace or a prefix of it. The caller holds
// r.mu.
func (r *Router) publishers(name moqt.TrackName) []Upstream {
	var list []Upstream
	for o := range r.offersAt.above(name.Namespace) {
		if !slices.Contains(list, o.up) {
			list = append(list, o.up)
		}
	}
	return list
}

// notify wakes requests that wait for a publisher in a namespace and the discoveries that cover it.
// The caller holds r.mu.
func (r *Router) notify(ns moqt.Namespace) {
	for t := range r.tracksUnder.under(ns) {
		close(t.appeared)
		t.appeared = make(chan struct{})
	}
	for d := range r.discoveries.above(ns) {
		if !d.tracks {
			d.markChanged(ns)
		}
	}
	select {
	case r.hosted <- struct{}{}:
	default:
	}
}

// markChanged makes announce report a namespace. The caller holds r.mu.
func (d *discovery) markChanged(ns moqt.Namespace) {
	d.changed[ns.String()] = ns
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (c *client) publishNamespace(req *moqt.NamespaceRequest) {
	r, up := c.r, peer{c}
	answered, release, ok := c.admit(req, limits.Namespaces)
	if !ok {
		return
	}
	defer release()
	log := r.log.With("namespace", truncated(req.Namespace.String()), "peer", up.String())
	authz, err := c.authorize(req.Request, auth.Publish, moqt.TrackName{Namespace: req.Namespace})
	if err == nil {
		err = c.checkPublish(moqt.TrackName{Namespace: req.Namespace})
	}
	o := &offer{ns: req.Namespace, up: up}
	o.revoke = func(why error) {
		req.Revoke(streamCode(why))
		r.remove(o)
		r.revoke(o.ns, up, why)
	}
	if err == nil {
		find := func() Upstream { return r.otherOwner(o.ns, up) }
		err = r.takeOwnership(req.Context(), o.ns, find, func() { r.add(o) })
	}
	if err == nil {
		if err = r.checkBlocked(o.ns); err != nil { // since authorize
			r.remove(o)
		}
	}
	if err != nil {
		log.Info("namespace refused", "reason", reason(err))
		r.reject(req, err)
		return
	}
	stop := authz.onRevoke(o.revoke)
	err = req.Accept(func() {
		answered()
		r.joinAll(o)
		log.Info("namespace published")
	})
	stop()
	r.remove(o)
	log.Info("namespace withdrawn", "reason", reason(err))
}

// Offer publishes a namespace, whose tracks come from up, until withdraw is called. It immediately
// subscribes to the tracks that viewers already use.
func (r *Router) Offer(ns moqt.Namespace, up Upstream) (withdraw func()) {
	return r.offer(&offer{ns: ns, up: up})
}

// OfferOnward is Offer for a namespace that this relay also serves to the other relays of its region
// (Config.Near). up must not be one of them.
func (r *Router) OfferOnward(ns moqt.Namespace, up Upstream) (withdraw func()) {
	return r.offer(&offer{ns: ns, up: up, onward: true})
}

func (r *Router) offer(o *offer) (withdraw func()) {
	r.mu.Lock()
	r.add(o)
	r.mu.Unlock()
	r.joinAll(o)
	return func() { r.remove(o) }
}

// Leave cancels the subscriptions at up to the tracks of a namespace, unless up still offers them.
func (r *Router) Leave(ns moqt.Namespace, up Upstream) {
	r.mu.Lock()
	var subs []*moqt.Subscription
	for t := range r.tracksUnder.under(ns) {
		if slices.Contains(r.publishers(t.Name()), up) {
			continue
		}
		t.mu.Lock()
		if sub := t.upstreams[up]; sub != nil {
			subs = append(subs, sub)
		}
		t.mu.Unlock()
	}
	r.mu.Unlock()
	for _, sub := range subs {
		sub.Cancel()
	}
}

// Changed returns a channel that receives when Published or Interests may have changed.
func (r *Router) Changed() <-chan struct{} { return r.changed }

// Published lists the namespaces that this relay has published and withdrawn since the last
// call. The first call lists all as published.
func (r *Router) Published() (published, withdrawn []moqt.Namespace) {
	r.mu.Lock()
	defer r.mu.Unlock()
	moved := r.moved
	if moved == nil {
		moved = map[string]moqt.Namespace{}
		for o := range r.offers {
			moved[o.ns.String()] = o.ns
		}
	}
	r.moved = map[string]moqt.Namespace{}
	for _, ns := range moved {
		if hasOurs(r.offersAt.get(ns)) {
			published = append(published, ns)
		} else {
			withdrawn = append(withdrawn, ns)
		}
	}
	return published, withdrawn
}

// hasOurs reports whether one of the offers is a peer's or Local. The caller holds r.mu.
func hasOurs(offers iter.Seq[*offer]) bool {
	for o := range offers {
		if ours(o.up) {
			return true
		}
	}
	return false
}

// servesRelays reports whether c, another relay, is served a track: one that this relay's own clients
// publish or, in the same region, one of another region. Requests thus pass two relays at most, and cannot
// run in a circle.
func (c *client) servesRelays(name moqt.TrackName) bool {
	near := c.r.cfg().Near
	within := near != nil && near(c.name)
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	for o := range r.offersAt.above(name.Namespace) {
		if ours(o.up) || o.onward && within {
			return true
		}
	}
	t := r.tracks[name.String()]
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for up := range t.pubs {
		if p, ok := up.(peer); ok && !p.c.member {
			return true
		}
	}
	return false
}

// add adds an offer. The caller holds r.mu.
func (r *Router) add(o *offer) {
	r.offers[o] = struct{}{}
	r.offersAt.add(o.ns, o)
	r.offersUnder.add(o.ns, o)
	if _, ok := o.up.(peer); !ok {
		d := r.dialled[o.up]
		if d == nil {
			d = &dialledUpstream{slots: newSlots()}
			r.dialled[o.up] = d
		}
		d.offers++
	}
	r.notify(o.ns)
	r.signal(o)
}

// joinAll subscribes to the tracks of an offer that are in use.
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

// withdraw removes an offer if it is still there. The caller holds r.mu.
func (r *Router) withdraw(o *offer) {
	if _, there := r.offers[o]; !there {
		return
	}
	delete(r.offers, o)
	r.offersAt.remove(o.ns, o)
	r.offersUnder.remove(o.ns, o)
	if d := r.dialled[o.up]; d != nil {
		if d.offers--; d.offers == 0 {
			delete(r.dialled, o.up)
		}
	}
	r.notify(o.ns)
	r.signal(o)
}

// signal records a change of a namespace for Published. The caller holds r.mu.
func (r *Router) signal(o *offer) {
	if ours(o.up) && r.moved != nil {
		r.moved[o.ns.String()] = o.ns
		r.wake()
	}
}

// wake signals Changed.
func (r *Router) wake() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Namespaces lists the published namespaces, without Local ones.
func (r *Router) Namespaces() []moqt.Namespace {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]moqt.Namespace, 0, len(r.offers))
	for o := range r.offers {
		if !isLocal(o.up) {
			list = append(list, o.ns)
		}
	}
	return list
}

func (c *client) discover(req *moqt.DiscoveryRequest) {
	r := c.r
	answered, release, ok := c.admit(req, limits.Subscriptions)
	if !ok {
		return
	}
	defer release()
	authz, err := c.authorize(req.Request, auth.Subscribe, moqt.TrackName{Namespace: req.Prefix})
	if err != nil {
		r.reject(req, err)
		return
	}
	defer authz.onRevoke(func(why error) { req.Revoke(streamCode(why)) })()
	d := &discovery{
		c: c, prefix: req.Prefix, tracks: req.Tracks, authz: authz, params: req.Parameters,
		changed: map[string]moqt.Namespace{}, blocked: map[string]bool{}, wake: make(chan struct{}, 1),
	}
	if f := req.Parameters.Forward; f != nil {
		d.paused = !*f
	}
	req.Move = func(prefix moqt.Namespace) (func(), error) {
		g, err := c.allow(auth.Subscribe, moqt.TrackName{Namespace: prefix}, req.Tokens)
		if err != nil {
			return nil, err
		}
		return func() {
			authz.renew(g)
			r.mu.Lock()
			r.discoveries.remove(d.prefix, d)
			r.interested(d, false)
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
			// Announce in a goroutine, since a subscriber that does not read must not block others.
			wg.Go(func() { r.announce(ctx, d, a) })
		}
	})
	r.mu.Lock()
	r.discoveries.remove(d.prefix, d)
	r.interested(d, false)
	r.mu.Unlock()
	cancel()
	wg.Wait()
	r.log.Debug("discovery ended", "prefix", truncated(d.prefix.String()), "reason", reason(err))
}

// follow reports existing and future namespaces or tracks under d's prefix to d.
func (r *Router) follow(d *discovery) {
	r.mu.Lock()
	r.discoveries.add(d.prefix, d)
	r.interested(d, true)
	if !d.tracks {
		for o := range r.offersUnder.under(d.prefix) {
			d.markChanged(o.ns)
		}
	}
	r.mu.Unlock()
	if d.tracks {
		for _, t := range r.published(d) {
			go t.offerTo(d)
		}
	}
}

// announce sends a subscriber the namespaces added and removed under its prefix.
func (r *Router) announce(ctx context.Context, d *discovery, a *moqt.Announcer) {
	for {
		r.mu.Lock()
		changed := d.changed
		d.changed = map[string]moqt.Namespace{}
		there := map[string]bool{}
		for key, ns := range changed {
			for o := range r.offersAt.get(ns) {
				// A bridge's own namespaces are not announced to it, and both processes have the same local ones.
				if !d.c.bridge || o.up != (peer{d.c}) && !isLocal(o.up) {
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

// published lists the tracks under d's prefix that other sessions have PUBLISHed.
func (r *Router) published(d *discovery) []*track {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*track
	for t := range r.tracksUnder.under(d.prefix) {
		t.mu.Lock()
		serves := t.serves(d)
		t.mu.Unlock()
		if serves {
			list = append(list, t)
		}
	}
	return list
}

func (c *client) subscribe(req *moqt.SubscribeRequest) {
	r := c.r
	answered, release, ok := c.admit(req, limits.Subscriptions)
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
		v := c.queue.Attach(t)
		if pub, err := req.Accept(v.Info()); err == nil {
			serving = true
			go func() {
				defer release()
				_ = v.Serve(origin.Publication{Publication: pub})
			}()
		}
		return
	}
	authz, err := c.authorize(req.Request, auth.Subscribe, req.Track)
	if err != nil {
		r.reject(req, err)
		return
	}
	wait := time.Duration(0)
	if ms := req.Parameters.RendezvousTimeout; ms != nil {
		wait = min(time.Duration(min(*ms, 1<<31))*time.Millisecond, r.cfg().MaxRendezvous)
	}
	var v *origin.Viewer
	t, err := r.acquireFor(req.Context(), req.Track, wait, func(t *track) {
		t.requestFirst(req.Parameters.NewGroupRequest)
		v = c.queue.Attach(t.Track) // a subscriber that waits receives everything from here on
	})
	if err != nil {
		r.reject(req, err)
		return
	}
	pub, err := req.Accept(t.info(v))
	if err != nil {
		t.release()
		return
	}
	r.log.Debug("subscribed", "track", truncated(req.Track.String()), "peer", c.s.RemoteAddr().String())
	serving = true
	go func() {
		defer release()
		defer authz.onRevoke(func(why error) { _ = pub.Done(auth.DoneCode(why), why.Error()) })()
		err := v.Serve(r.cfg().FastPath.Viewer(t.Track, pub))
		t.release()
		r.log.Debug("subscription ended", "track", truncated(req.Track.String()), "reason", reason(err))
	}()
}

func (c *client) trackStatus(req *moqt.TrackStatusRequest) {
	r := c.r
	_, release, ok := c.admit(req)
	if !ok {
		return
	}
	defer release()
	if t := r.local.Track(req.Track); t != nil {
		_ = req.Accept(t.Info())
		return
	}
	if _, err := c.allow(auth.Subscribe, req.Track, req.Tokens); err != nil {
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

func (c *client) fetch(req *moqt.FetchRequest) {
	r := c.r
	answered, release, ok := c.admit(req, limits.Fetches)
	if !ok {
		return
	}
	defer release()
	if t := r.local.Track(req.Track); t != nil {
		_ = t.ServeFetch(req, nil)
		return
	}
	authz, err := c.authorize(req.Request, auth.Subscribe, req.Track)
	if err != nil {
		r.reject(req, err)
		return
	}
	defer authz.onRevoke(func(why error) { req.Revoke(streamCode(why)) })()
	ctx := req.Context()
	if ms := req.Parameters.FillTimeout; ms != nil { // limits the total of all following waits
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
	if largest, ok := t.Largest(); ok {
		req.Resolve(largest)
	}
	t.fillGaps(ctx, req)
	var source origin.Source
	if up, s := t.anyUpstream(); s != nil {
		source = c.source(up, s, req)
	}
	source = t.disk.Load().Source(source, t.CacheAge(), t.Properties())
	if end, ok := ctx.Deadline(); ok {
		req.Parameters.FillTimeout = new(uint64(max(0, time.Until(end).Milliseconds())))
	}
	if err := t.ServeFetch(req, source); err != nil {
		r.log.Debug("fetch not answered in full", "track", truncated(req.Track.String()), "err", truncated(err.Error()))
	}
}

// TrackStats are the counters of one track.
type TrackStats struct {
	Name moqt.TrackName
	origin.Stats
}

// Stats returns the counters of all tracks and the sum of the removed tracks' counters.
func (r *Router) Stats() (tracks []TrackStats, gone origin.Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tracks {
		tracks = append(tracks, TrackStats{t.Name(), t.Stats()})
	}
	gone = r.removedStats
	for t := range r.closing {
		gone.Add(t.Stats())
	}
	return tracks, gone
}

// monotonicNow returns the wall clock's time at began plus the time elapsed since then. It is not
// affected by a step of the wall clock, which would make frames in flight appear late.
func monotonicNow(began time.Time) time.Time { return began.Add(time.Since(began)) }

// Now returns the time on the relay's clock.
func (r *Router) Now() time.Time {
	return monotonicNow(r.began).Add(time.Duration(r.ahead.Load())).Round(0)
}

// AdjustClock adds to the relay's clock.
func (r *Router) AdjustClock(by time.Duration) { r.ahead.Add(int64(by)) }

// ClockOffset returns the sum of the adjustments.
func (r *Router) ClockOffset() time.Duration { return time.Duration(r.ahead.Load()) }

// RunClock publishes the relay's clock track until ctx is done.
func (r *Router) RunClock(ctx context.Context) {
	t := origin.NewTrack(clock.TrackName(), nil, origin.Limits{MaxAge: time.Second, MaxBytes: 1 << 12})
	r.AddLocal(t)
	tick := time.NewTicker(clock.Interval)
	defer tick.Stop()
	group := uint64(time.Now().UnixMilli())
	var stamp clock.Stamp
	for {
		select {
		case <-ctx.Done():
			t.End(wire.DoneGoingAway, "the relay is shutting down")
			return
		case <-tick.C:
			group++
			stamp.Sequence++
			stamp.Time = r.Now()
			t.SendDatagram(moqt.Datagram{Group: group, Payload: stamp.Append(nil)})
		}
	}
}
