package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/roster"
	"holocast/relay/auth"
	"holocast/relay/router"
)

const (
	// tick is the interval between the table's ticks.
	tick = 50 * time.Millisecond
	// detach delays the end of subscriptions after the end of their route, since the publisher's last
	// objects are in flight.
	detach = 2 * time.Second
	// measure is the interval between measurements of the paths.
	measure = time.Second
	// probeAfter and suspectAfter are the silence after which another relay is probed, and bypassed. The
	// round-trip time adds to suspectAfter.
	probeAfter   = 100 * time.Millisecond
	suspectAfter = 200 * time.Millisecond
	// avoid is the time before an unreachable relay is tried again.
	avoid = 10 * time.Second
	// stay is the least time before a new session with a relay follows another one, though the relay asks for it.
	stay = time.Second
	// takeOverWait limits the wait for the cluster port of a process that this one replaces.
	takeOverWait = time.Minute
)

// Cluster is a relay's membership in a cluster. Create it with New; Start joins the cluster.
type Cluster struct {
	cfg    Config
	log    *slog.Logger
	secret *secret
	id     string
	name   string // in logs of other relays
	host   Host

	stop            context.CancelFunc
	wg              sync.WaitGroup
	running, silent atomic.Bool // silent: leave without Bye

	mu        sync.Mutex
	listen    string // address of the cluster port
	table     *Table
	known     map[string]Member // by ID, as logged
	leaving   bool
	left      chan struct{} // signalled when leaving becomes true
	news      chan struct{} // signalled when the bulletin is due
	bus       atomic.Pointer[bus]
	roster    *origin.Track
	listed    []roster.Relay       // in the newest roster
	listings  uint64               // its group
	revoked   uint64               // version of the revocations announced
	counted   uint64               // version of the sessions of tokens announced
	offers    map[string]*offer    // by namespace
	upstreams map[string]*upstream // by ID
	follows   map[string]context.CancelFunc
	ctx       context.Context // ends when the relay leaves
	time      *follower       // of the reference's clock; nil if this relay is the reference
	counts    Counts
}

// Host is the relay that joins.
type Host struct {
	Router     *router.Router
	Address    net.Addr        // of its sessions
	Hash       func() [32]byte // of its certificate
	Congestion string          // controller of its sessions with other relays
	Backups    bool            // several publishers may claim a namespace
	SelfSigned bool            // clients can verify its certificate by the hash only
	Board      Board
	Authority  *auth.Authority // nil without authentication
}

// offer is a namespace that the router offers on behalf of another relay.
type offer struct {
	up       *upstream
	withdraw func()
}

// Counts are counters of messages.
type Counts struct {
	Sent, Received uint64
	Malformed      uint64 // messages refused
	Strangers      uint64 // connections and sessions refused
}

// New prepares to join a cluster. id, if not empty, is the ID of the process that this one replaces.
func New(ctx context.Context, cfg Config, id string, log *slog.Logger) (*Cluster, error) {
	s, err := readSecret(ctx, cfg.Name, cfg.Secret)
	if err != nil {
		return nil, fmt.Errorf("cluster.secret: %w", err)
	}
	if id == "" {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		id = hex.EncodeToString(b[:])
	}
	host, _ := os.Hostname()
	return &Cluster{
		cfg: cfg, log: log, secret: s, id: id, name: cmp.Or(host, "relay") + "/" + id,
		offers: map[string]*offer{}, upstreams: map[string]*upstream{}, left: make(chan struct{}, 1),
		news:   make(chan struct{}, 1),
		roster: origin.NewTrack(roster.TrackName(), nil, origin.Limits{MaxAge: time.Second, MaxBytes: 1 << 16}),
	}, nil
}

// ID returns the relay's ID, or "" if c is nil.
func (c *Cluster) ID() string {
	if c == nil {
		return ""
	}
	return c.id
}

// Relay returns the name of the relay that opened a session, or "" if the peer is not a relay. The error
// is a *moqt.SessionError that refuses a peer with a wrong token.
func (c *Cluster) Relay(s *moqt.Session) (name string, err error) {
	name, err = c.secret.verify(s.SetupTokens(), c.id, time.Now())
	if err != nil {
		c.count(func(n *Counts) { n.Strangers++ })
	}
	return name, err
}

// Near reports whether the relay of a name, as returned by Relay, is in this relay's region.
func (c *Cluster) Near(name string) (yes bool) {
	c.look(func(t *Table) { yes = t.Near(name) })
	return yes
}

// look calls f with the table, which f may use until it returns. It does nothing if c is nil or has not started.
func (c *Cluster) look(f func(*Table)) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.table != nil {
		f(c.table)
	}
}

// Start joins the cluster. With takeOver, which means that this process replaces another one that still
// has the cluster port, it joins in the background once that process has left.
func (c *Cluster) Start(ctx context.Context, h Host, takeOver bool) error {
	address, err := c.cfg.advertised(h.Address)
	if err != nil {
		return err
	}
	info := Info{
		Name: c.name, Region: c.cfg.Region, URL: address, Public: c.cfg.Public, Hash: h.Hash(), SelfSigned: h.SelfSigned,
	}
	now := time.Now()
	info.Since = uint64(now.UnixMicro())
	c.mu.Lock()
	before := c.table
	c.host, c.table = h, NewTable(c.id, info, uint64(now.UnixMicro()), !h.Backups)
	if before != nil { // joined again after a failed upgrade; the router reports later changes only
		c.table.claim(now, slices.Collect(maps.Values(before.local)), nil)
		for token := range before.tokens.others {
			c.table.tokens.set(token, 0)
		}
	}
	c.mu.Unlock()
	h.Router.AddLocal(c.roster)
	c.running.Store(true)
	var running context.Context
	running, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	c.mu.Lock()
	c.ctx, c.follows, c.time, c.revoked, c.counted = running, map[string]context.CancelFunc{}, nil, 0, 0
	c.mu.Unlock()
	join := func() (*bus, error) {
		wait := time.Duration(0)
		if takeOver {
			wait = takeOverWait
		}
		b, err := openBus(running, c.cfg, c.id, wait, c.secret, func() { c.count(func(n *Counts) { n.Strangers++ }) }, c.log)
		if err == nil {
			c.mu.Lock()
			c.listen = b.address()
			c.mu.Unlock()
			c.log.Info("cluster: joined", "cluster", c.cfg.Name, "relay", c.name, "advertise", address,
				"listen", b.address())
		}
		return b, err
	}
	if takeOver {
		c.wg.Go(func() {
			b, err := join()
			if err == nil {
				c.run(running, b)
			} else if running.Err() == nil {
				c.log.Error("cluster: cannot join; restart the relay", "err", err)
			}
		})
		return nil
	}
	b, err := join()
	if err != nil {
		c.stop()
		return err
	}
	c.wg.Go(func() { c.run(running, b) })
	return nil
}

// Leave leaves the cluster and ends the sessions with other relays. handOver means that another process
// with the same ID follows: the other relays keep their routes, and open subscriptions continue.
func (c *Cluster) Leave(handOver bool) {
	if c == nil || c.stop == nil {
		return
	}
	if c.running.CompareAndSwap(true, false) {
		c.silent.Store(handOver)
	}
	c.stop()
	c.wg.Wait()
}

// run handles messages until ctx is done.
func (c *Cluster) run(ctx context.Context, b *bus) {
	defer b.close()
	defer c.end()
	c.bus.Store(b)
	defer c.bus.Store(nil)
	ticks, paths, bulletins := time.NewTicker(tick), time.NewTicker(measure), time.NewTicker(bulletinEvery)
	defer ticks.Stop()
	defer paths.Stop()
	defer bulletins.Stop()
	changed := c.host.Router.Changed()
	c.update(b, func(now time.Time) []*Message {
		return slices.Concat(c.load(), c.publish(now), c.table.Start(now))
	})
	for {
		select {
		case <-ctx.Done():
			if !c.silent.Load() {
				c.update(b, func(time.Time) []*Message { return c.table.Leave() })
			}
			return
		case m := <-b.in:
			c.update(b, func(now time.Time) []*Message { return c.receive(now, m.Data) })
		case <-changed:
			c.update(b, func(now time.Time) []*Message {
				c.follow()
				return c.publish(now)
			})
		case <-c.left:
			c.update(b, func(time.Time) []*Message { return c.load() })
		case m := <-b.notes:
			c.read(b, m)
		case <-c.news:
			c.post(b)
		case <-bulletins.C:
			c.post(b)
		case <-ticks.C:
			c.update(b, func(now time.Time) []*Message {
				c.sweep()
				c.reconnect()
				c.listenForSilence(now)
				return slices.Concat(c.load(), c.revoke(now), c.countTokens(), c.table.Tick(now))
			})
		case <-paths.C:
			c.update(b, func(time.Time) []*Message {
				c.table.SetHash(c.host.Hash())
				c.measure()
				c.list()
				c.keepTime()
				return nil
			})
		}
	}
}

// update changes the table, sends the messages that it returns, and offers the routes that changed to
// the router.
func (c *Cluster) update(b *bus, change func(now time.Time) []*Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range change(time.Now()) {
		if err := b.conn.Publish(subject(c.cfg.Name), c.secret.seal(m.Append(nil))); err != nil {
			c.log.Debug("cluster: message not sent", "err", err)
			continue
		}
		c.counts.Sent++
	}
	for _, route := range c.table.Changes() {
		c.apply(route)
	}
	for _, lost := range c.table.Lost() {
		c.log.Warn("cluster: namespace has an earlier publisher at another relay", "namespace", lost.Namespace.String(),
			"relay", lost.To)
		c.host.Router.Evict(lost.Namespace, "another publisher claimed the namespace first, at relay "+lost.To)
	}
}

// publish reports changes of the namespaces published at this relay. The caller holds c.mu.
func (c *Cluster) publish(now time.Time) []*Message {
	published, withdrawn := c.host.Router.Published()
	return c.table.Publish(now, published, withdrawn)
}

// load reports the router's load. The caller holds c.mu.
func (c *Cluster) load() []*Message {
	sessions, room := c.host.Router.Load()
	return c.table.SetLoad(Load{Sessions: uint64(sessions), Room: uint64(room), Leaving: c.leaving})
}

// list publishes the roster if it has changed. The caller holds c.mu.
func (c *Cluster) list() {
	next := c.table.Roster(c.listed)
	if slices.Equal(next, c.listed) {
		return
	}
	c.listed = next
	b, err := roster.Marshal(next)
	if err == nil {
		c.listings = max(c.listings+1, uint64(time.Now().UnixMilli())) // even if the clock is set back
		h := wire.SubgroupHeader{Group: c.listings, FirstObject: true}
		err = c.roster.WriteObject(h, moqt.Object{}, b)
	}
	if err != nil {
		c.log.Warn("cluster: the list of relays for clients is not updated", "err", err)
	}
}

// Drain makes the relay one that leaves: the others take over its publishers, and send it no clients.
// It does nothing if c is nil.
func (c *Cluster) Drain() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving = true
	select {
	case c.left <- struct{}{}:
	default:
	}
}

// Redirect returns the URL of a relay with room for a client. It returns "" without one, if c is nil or the relay
// has left the cluster.
func (c *Cluster) Redirect() string {
	if c == nil || !c.running.Load() {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.Redirect()
}

// receive verifies and handles a message. The caller holds c.mu.
func (c *Cluster) receive(now time.Time, b []byte) []*Message {
	text, err := c.secret.open(b)
	if err != nil {
		c.counts.Strangers++
		c.log.Debug("cluster: message refused", "err", err)
		return nil
	}
	m, err := Parse(text)
	if err != nil {
		if c.counts.Malformed++; c.counts.Malformed == 1 {
			c.log.Warn("cluster: malformed message; later ones are only counted", "err", err)
		}
		return nil
	}
	c.counts.Received++
	return c.table.Receive(now, m)
}

// apply offers a namespace to the router, or withdraws it. The caller holds c.mu.
func (c *Cluster) apply(route Route) {
	r, key := c.host.Router, route.Namespace.String()
	before := c.offers[key]
	delete(c.offers, key)
	if route.ID != "" {
		up := c.upstream(route.next())
		offer := &offer{up: up}
		if route.Onward {
			offer.withdraw = r.OfferOnward(route.Namespace, up)
		} else {
			offer.withdraw = r.Offer(route.Namespace, up)
		}
		c.offers[key] = offer
	}
	if before != nil {
		before.withdraw()
		time.AfterFunc(detach, func() { r.Leave(route.Namespace, before.up) })
	}
}

// upstream returns the upstream of a member. The caller holds c.mu.
func (c *Cluster) upstream(id string) *upstream {
	up := c.upstreams[id]
	if up == nil {
		up = c.newUpstream(id)
		c.upstreams[id] = up
	}
	return up
}

// sweep logs relays that have joined or left, and closes the sessions of the latter. The caller holds
// c.mu.
func (c *Cluster) sweep() {
	now, changed := map[string]Member{}, false
	for _, m := range c.table.Members() {
		now[m.ID] = m
		before, known := c.known[m.ID]
		changed = changed || !known || before.Leaving != m.Leaving
		switch {
		case !known:
			c.log.Info("cluster: relay found", "relay", m.Name, "url", m.URL, "region", m.Region)
		case m.Excess && !before.Excess:
			c.log.Warn("cluster: relay announces too many namespaces; ignoring the rest", "relay", m.Name,
				"limit", MaxNamespaces)
		}
	}
	for id, m := range c.known {
		if _, there := now[id]; there {
			continue
		}
		changed = true
		c.log.Info("cluster: relay gone", "relay", m.Name, "url", m.URL)
		if up := c.upstreams[id]; up != nil {
			delete(c.upstreams, id)
			up.close()
		}
	}
	if c.known = now; changed {
		c.list()
		c.follow()
	}
}

// reconnect opens new sessions with relays that ask for it (GOAWAY), such as those whose process an upgrade
// has replaced. The old session continues until the new one delivers. The caller holds c.mu.
func (c *Cluster) reconnect() {
	for id, up := range c.upstreams {
		if !up.moving.Load() || time.Since(up.began) < stay {
			continue
		}
		c.log.Info("cluster: relay asks for a new session", "relay", up.text)
		delete(c.upstreams, id)
		for key, o := range c.offers {
			if route := c.table.routes[key]; o.up == up && route.ID != "" {
				c.apply(route)
			}
		}
		for key, stop := range c.follows {
			if strings.HasPrefix(key, id+"\x00") {
				stop()
				delete(c.follows, key)
			}
		}
		if c.time != nil && c.time.id == id {
			c.time.stop()
			c.time = nil
		}
		time.AfterFunc(2*detach, up.close)
		c.follow()
	}
}

// listenForSilence looks for relays that no longer answer or cannot be reached. It notices a killed one before
// that is gone from the table. The caller holds c.mu.
func (c *Cluster) listenForSilence(now time.Time) {
	for id, up := range c.upstreams {
		s := up.open()
		if s == nil {
			c.table.Suspect(id, now.Sub(time.Unix(0, up.failed.Load())) < avoid)
			continue
		}
		silent, probe := up.silence.Observe(now, s.Received())
		if probe {
			go s.Probe(suspectAfter)
		}
		suspect := silent > suspectAfter+s.RTT()
		if c.table.Suspect(id, suspect); !suspect {
			c.table.Answers(now, id)
		}
	}
}

// measure sets the costs of the paths in use. The caller holds c.mu.
func (c *Cluster) measure() {
	for id, up := range c.upstreams {
		if s := up.open(); s != nil {
			c.table.SetCost(id, max(1, s.Stats().MinRTT.Round(time.Millisecond).Seconds()*1000))
		}
	}
}

// end withdraws all routes and, unless the relay hands over, ends the sessions with other relays.
func (c *Cluster) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.offers {
		o.withdraw()
	}
	for _, up := range c.upstreams {
		if !c.silent.Load() {
			up.close()
		}
	}
	clear(c.offers)
	clear(c.upstreams)
}

func (c *Cluster) count(f func(*Counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.counts)
}

// Stats are the state of a cluster as seen by one relay.
type Stats struct {
	Listen    string   // address of the cluster port, "" without one
	Members   []Member // other relays
	Published int      // namespaces announced
	Routes    int      // namespaces served by other relays
	Upstreams int      // open sessions to other relays
	// ClockError bounds the difference between this relay's clock and that of the relay that the others
	// follow.
	ClockError time.Duration
	Counts
}

// Stats returns the relay's view of the cluster. It is empty if c is nil.
func (c *Cluster) Stats() (s Stats) {
	c.look(func(t *Table) {
		s = Stats{
			Listen: c.listen, Members: t.Members(), Published: len(t.local), Routes: t.Routes(),
			ClockError: c.time.clockError(time.Now()), Counts: c.counts,
		}
		for _, up := range c.upstreams {
			if up.open() != nil {
				s.Upstreams++
			}
		}
	})
	return s
}

// View is a relay's view of its cluster.
type View struct {
	Name, Region string      // of the cluster, of the relay
	Relay, URL   string      // of this relay, as other relays know it
	Published    int         // namespaces announced
	Relays       []RelayView // others, by ID
}

// RelayView is another relay.
type RelayView struct {
	Member
	Session  *moqt.Session    // open session to it; nil without one
	Upstream string           // names it as the upstream of tracks
	Routes   []moqt.Namespace // namespaces that it serves to this relay, in order
}

// View returns the relay's view of the cluster, or nil if c is nil or has not started.
func (c *Cluster) View() (v *View) {
	c.look(func(t *Table) {
		v = &View{Name: c.cfg.Name, Region: c.cfg.Region, Relay: c.name, URL: t.info.URL, Published: len(t.local)}
		routes := t.RoutesBy()
		for _, m := range t.Members() {
			one := RelayView{Member: m, Routes: routes[m.ID]}
			if up := c.upstreams[m.ID]; up != nil {
				one.Session, one.Upstream = up.open(), up.text
			}
			v.Relays = append(v.Relays, one)
		}
	})
	return v
}
