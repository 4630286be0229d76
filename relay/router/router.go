// Package router joins publishers and subscribers of a relay: which session has
// which namespace, one upstream subscription per track and publisher whatever the
// number of viewers, namespace discovery, and what happens when either side goes
// away (draft-ietf-moq-transport-18 §9). The tracks themselves, with their cache
// and fan-out, are package origin's.
package router

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
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
	Log           *slog.Logger
}

// Router routes. Make one with New.
type Router struct {
	cfg Config
	log *slog.Logger

	mu          sync.Mutex
	sessions    map[*moqt.Session]struct{}
	offers      []*offer
	tracks      map[string]*track
	discoveries map[*discovery]struct{}
	changed     chan struct{} // closed and replaced when a publisher appears
	local       origin.Set    // the relay's own tracks
	gone        origin.Stats  // counters of tracks that were removed
}

// offer is a namespace a session publishes.
type offer struct {
	ns moqt.Namespace
	s  *moqt.Session
}

// discovery is a SUBSCRIBE_NAMESPACE or SUBSCRIBE_TRACKS.
type discovery struct {
	s      *moqt.Session
	prefix moqt.Namespace
	tracks bool
	paused bool // SUBSCRIBE_TRACKS with forward state 0
	a      *moqt.Announcer
	active map[string]bool // namespaces announced
	mu     sync.Mutex      // orders announcements
}

// New returns an empty router.
func New(cfg Config) *Router {
	cfg.Grace = cmp.Or(cfg.Grace, 15*time.Second)
	cfg.Linger = cmp.Or(cfg.Linger, 5*time.Second)
	cfg.MaxRendezvous = cmp.Or(cfg.MaxRendezvous, 30*time.Second)
	return &Router{
		cfg: cfg, log: cmp.Or(cfg.Log, slog.Default()),
		sessions: map[*moqt.Session]struct{}{}, tracks: map[string]*track{},
		discoveries: map[*discovery]struct{}{}, changed: make(chan struct{}),
	}
}

// AddLocal serves a track of the relay's own.
func (r *Router) AddLocal(t *origin.Track) { r.local.Add(t) }

// Serve answers a session until it ends.
func (r *Router) Serve(s *moqt.Session) {
	r.mu.Lock()
	r.sessions[s] = struct{}{}
	r.mu.Unlock()
	log := r.log.With("peer", s.RemoteAddr().String())
	log.Info("session open", "implementation", s.Implementation(), "webtransport", s.WebTransport(), "path", s.Path())
	s.Serve(moqt.Handler{
		Subscribe:          r.subscribe,
		TrackStatus:        r.trackStatus,
		Fetch:              r.fetch,
		Publish:            r.publish,
		PublishNamespace:   r.publishNamespace,
		SubscribeNamespace: r.discover,
		SubscribeTracks:    r.discover,
	})
	<-s.Context().Done()
	r.mu.Lock()
	delete(r.sessions, s)
	r.mu.Unlock()
	log.Info("session closed", "reason", s.Err())
}

// Sessions returns the sessions that are open.
func (r *Router) Sessions() []*moqt.Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*moqt.Session, 0, len(r.sessions))
	for s := range r.sessions {
		list = append(list, s)
	}
	return list
}

// publishers lists the sessions that offer a track's namespace or a prefix of it.
// r.mu is held.
func (r *Router) publishers(name moqt.TrackName) []*moqt.Session {
	var list []*moqt.Session
	seen := map[*moqt.Session]bool{}
	for _, o := range r.offers {
		if name.Namespace.HasPrefix(o.ns) && !seen[o.s] {
			seen[o.s] = true
			list = append(list, o.s)
		}
	}
	return list
}

// notify wakes who waits for a publisher. r.mu is held.
func (r *Router) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *Router) publishNamespace(req *moqt.NamespaceRequest) {
	o := &offer{req.Namespace, req.Session()}
	log := r.log.With("namespace", req.Namespace.String(), "peer", o.s.RemoteAddr().String())
	err := req.Accept(func() {
		r.mu.Lock()
		r.offers = append(r.offers, o)
		var waiting []*track
		for _, t := range r.tracks {
			if t.Name().Namespace.HasPrefix(o.ns) {
				waiting = append(waiting, t)
			}
		}
		r.notify()
		r.mu.Unlock()
		log.Info("namespace published")
		for _, t := range waiting {
			go t.joinPublisher(o.s)
		}
		r.announce(o.ns, true)
	})
	r.mu.Lock()
	for i, x := range r.offers {
		if x == o {
			r.offers = append(r.offers[:i:i], r.offers[i+1:]...)
			break
		}
	}
	still := false
	for _, x := range r.offers {
		still = still || x.ns.Equal(o.ns)
	}
	r.mu.Unlock()
	if !still {
		r.announce(o.ns, false)
	}
	log.Info("namespace withdrawn", "reason", err)
}

// Namespaces lists what is published now.
func (r *Router) Namespaces() []moqt.Namespace {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []moqt.Namespace
	for _, o := range r.offers {
		list = append(list, o.ns)
	}
	return list
}

// announce tells those who follow a prefix of ns that it came or went.
func (r *Router) announce(ns moqt.Namespace, added bool) {
	r.mu.Lock()
	var interested []*discovery
	for d := range r.discoveries {
		if !d.tracks && ns.HasPrefix(d.prefix) {
			interested = append(interested, d)
		}
	}
	r.mu.Unlock()
	for _, d := range interested {
		d.announce(ns, added)
	}
}

func (d *discovery) announce(ns moqt.Namespace, added bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.active[ns.String()] == added {
		return
	}
	d.active[ns.String()] = added
	// A subscriber that does not read is reset by its session, not waited for.
	if added {
		_ = d.a.Added(ns)
	} else {
		_ = d.a.Done(ns)
	}
}

func (r *Router) discover(req *moqt.DiscoveryRequest) {
	d := &discovery{s: req.Session(), prefix: req.Prefix, tracks: req.Tracks, active: map[string]bool{}}
	if f := req.Parameters.Forward; f != nil {
		d.paused = !*f
	}
	r.mu.Lock()
	for o := range r.discoveries {
		if o.s == d.s && o.tracks == d.tracks && (o.prefix.HasPrefix(d.prefix) || d.prefix.HasPrefix(o.prefix)) {
			r.mu.Unlock()
			_ = req.Reject(wire.RequestPrefixOverlap, "the prefix overlaps another of this session")
			return
		}
	}
	r.discoveries[d] = struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.discoveries, d)
		r.mu.Unlock()
	}()
	d.mu.Lock() // until the first announcement may be sent
	err := req.Accept(func(a *moqt.Announcer) {
		d.a = a
		d.mu.Unlock()
		if d.tracks {
			for _, t := range r.published(d) {
				go t.offerTo(d)
			}
			return
		}
		for _, ns := range r.Namespaces() {
			if ns.HasPrefix(d.prefix) {
				d.announce(ns, true)
			}
		}
	})
	if d.a == nil {
		d.mu.Unlock()
	}
	r.log.Debug("discovery ended", "prefix", d.prefix.String(), "reason", err)
}

// published lists the tracks under d's prefix that came by PUBLISH from others.
func (r *Router) published(d *discovery) []*track {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*track
	for _, t := range r.tracks {
		if t.Name().Namespace.HasPrefix(d.prefix) && t.publishedByOther(d.s) {
			list = append(list, t)
		}
	}
	return list
}

func (r *Router) subscribe(req *moqt.SubscribeRequest) {
	if t := r.local.Track(req.Track); t != nil {
		since := time.Now()
		if pub, err := req.Accept(t.Info()); err == nil {
			go t.Serve(pub, since) //nolint:errcheck // the viewer's end concerns nobody else
		}
		return
	}
	wait := time.Duration(0)
	if ms := req.Parameters.RendezvousTimeout; ms != nil {
		wait = min(time.Duration(min(*ms, 1<<31))*time.Millisecond, r.cfg.MaxRendezvous)
	}
	since := time.Now() // a subscriber that waited gets all that came meanwhile
	t, err := r.acquire(req.Context(), req.Track, wait)
	if err != nil {
		_ = req.RejectWith(err)
		return
	}
	pub, err := req.Accept(t.Info())
	if err != nil {
		t.release()
		return
	}
	r.log.Debug("subscribed", "track", req.Track.String(), "peer", req.Session().RemoteAddr().String())
	go func() {
		err := t.Serve(pub, since)
		t.release()
		r.log.Debug("subscription ended", "track", req.Track.String(), "reason", err)
	}()
}

func (r *Router) trackStatus(req *moqt.TrackStatusRequest) {
	if t := r.local.Track(req.Track); t != nil {
		_ = req.Accept(t.Info())
		return
	}
	t, err := r.acquire(req.Context(), req.Track, 0)
	if err != nil {
		_ = req.RejectWith(err)
		return
	}
	_ = req.Accept(t.Info())
	t.release()
}

func (r *Router) fetch(req *moqt.FetchRequest) {
	if t := r.local.Track(req.Track); t != nil {
		_ = t.ServeFetch(req)
		return
	}
	t, err := r.acquire(req.Context(), req.Track, 0)
	if err != nil {
		_ = req.RejectWith(err)
		return
	}
	defer t.release()
	t.awaitFill(req.Context())
	if oldest, ok := t.OldestGroup(); req.Joining == nil && (!ok || req.Start.Group < oldest) {
		if up := t.anyUpstream(); up != nil {
			if err := pipeFetch(up, req); err != nil {
				r.log.Debug("upstream fetch", "track", req.Track.String(), "err", err)
			}
			return
		}
	}
	_ = t.ServeFetch(req)
}

// Track statistics, for the metrics.

// TrackStats are the counters of one track.
type TrackStats struct {
	Name moqt.TrackName
	origin.Stats
}

// Stats returns the counters of all tracks there are and the sum of those gone.
func (r *Router) Stats() (tracks []TrackStats, gone origin.Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tracks {
		tracks = append(tracks, TrackStats{t.Name(), t.Stats()})
	}
	return tracks, r.gone
}

// OwnClock is the name of the track with the relay's time.
var OwnClock = moqt.TrackName{Namespace: moqt.Namespace{".relay"}, Name: "clock"}

// RunClock publishes the relay's time on its own track, as datagrams that encode
// makes, every interval until ctx ends.
func (r *Router) RunClock(ctx context.Context, interval time.Duration, encode func(time.Time) []byte) {
	t := origin.NewTrack(OwnClock, nil, origin.Limits{MaxAge: time.Second, MaxBytes: 1 << 12})
	r.AddLocal(t)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	group := uint64(time.Now().UnixMilli())
	for {
		select {
		case <-ctx.Done():
			t.End(wire.DoneGoingAway, "the relay is shutting down")
			return
		case <-tick.C:
			group++
			t.SendDatagram(moqt.Datagram{Group: group, Payload: encode(time.Now())})
		}
	}
}
