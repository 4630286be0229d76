//go:build linux && (amd64 || arm64)

package fastpath

import (
	"cmp"
	"context"
	"crypto/fips140"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/vishvananda/netlink"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/quicext"
	"holocast/relay/fastpath/kernel"
	"holocast/relay/steer"
)

// Config configures a Manager.
type Config struct {
	Port uint16 // the relay's UDP port
	Mode Mode   // not Off
	// Clsact attaches with clsact filters even if the kernel has TCX (Linux 6.6).
	Clsact bool
	Log    *slog.Logger
}

// connIDLen is the length of the relay's connection IDs.
const connIDLen = steer.IDLength

// Intervals of the manager's goroutine.
const (
	lease       = time.Second            // time after which the programs stop by themselves
	idle        = 200 * time.Millisecond // between ticks while nothing is forwarded
	busy        = 5 * time.Millisecond   // between ticks otherwise; limits how long packets stay unregistered
	rescan      = 2 * time.Second        // between searches for new and deleted interfaces
	unused      = 5 * time.Second        // in mode auto, until programs without a track are detached
	retire      = time.Second            // before a slot is reused, as programs may still be running
	forgetAfter = 5 * time.Second        // until a forwarded object that never reached user space is forgotten
)

// Manager is a relay's fast path. If it is nil, the fast path is off.
type Manager struct {
	cfg       Config
	log       *slog.Logger
	forwarder *kernel.Forwarder
	start     time.Time     // the same instant as startK
	startK    time.Duration // by CLOCK_MONOTONIC
	stop      context.CancelFunc
	done      chan struct{}
	wanted    chan struct{} // wakes run when there is something to forward

	used    time.Time // last use of the programs; for run only
	scanned time.Time // last search for interfaces; zero if the programs are detached; for run only

	ringMu sync.RWMutex // guards the ring; locked after mu and before conn.mu; a read lock suffices to test for records
	closed bool         // written with mu and ringMu held

	mu       sync.Mutex
	conns    map[*quic.Conn]*conn
	tracks   map[*origin.Track]*track
	nextID   uint32
	sources  slots
	viewers  slots
	attached map[int]*kernel.Attachment
	overTCP  *conn // stands for all sessions without a QUIC connection

	candidates atomic.Int32 // connections that the kernel can handle
	installed  atomic.Int32 // tracks that the kernel forwards

	byViewer [kernel.MaxViewers]atomic.Pointer[conn]

	routesMu sync.Mutex // locked after conn.mu
	routes   map[routeKey]int

	registered, lag, lost, handovers atomic.Uint64
	sourcesChanged                   atomic.Bool    // chooseSources must run
	shapesChanged                    atomic.Bool    // choose must run
	crowded                          map[*conn]bool // connections left to user space for their frames
}

// track is a track received or sent by the relay.
type track struct {
	id        uint32
	sources   map[*source]struct{}
	viewers   map[*subscriber]struct{}
	installed *source              // the publisher forwarded by the kernel
	source    atomic.Pointer[conn] // the source in installed
	objects   objects              // those sent so far; used by one goroutine at a time
	shape     atomic.Int32         // a shape
}

// source is the relay's subscription to a publisher's track.
type source struct {
	c     *conn
	alias uint64
}

// subscriber is a viewer's subscription.
type subscriber struct {
	c   *conn
	pub *moqt.Publication
	// inKernel is set while the kernel forwards to the viewer. Once it is cleared, leftAt is the time,
	// by Manager.now, while objects that the kernel had forwarded may still reach user space; 0 = none
	// may.
	inKernel atomic.Bool
	leftAt   atomic.Int64
}

// Possible returns an error if the fast path cannot run here.
func Possible() error {
	if !quicext.Supported() {
		return quicext.ErrUnsupported
	}
	return kernel.Check()
}

// Try is like Possible, and also loads the programs without attaching them.
func Try() error {
	if err := Possible(); err != nil {
		return err
	}
	k, err := kernel.Open(kernel.Options{Port: 1, ConnIDLen: connIDLen})
	if err != nil {
		return err
	}
	return k.Close()
}

// Start loads the programs and attaches them to all Ethernet and loopback interfaces, including
// later ones. In mode auto, it only tries to attach them. Call it before the process's first TLS
// handshake.
func Start(cfg Config) (*Manager, error) {
	if err := Possible(); err != nil {
		return nil, err
	}
	if fips140.Enabled() {
		return nil, errors.New("TLS is in FIPS 140-3 mode, which excludes ChaCha20-Poly1305")
	}
	if cfg.Mode != Auto {
		quicext.PreferChaCha20()
	}
	k, err := kernel.Open(kernel.Options{Port: cfg.Port, ConnIDLen: connIDLen})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &Manager{
		cfg: cfg, log: cmp.Or(cfg.Log, slog.Default()), forwarder: k, start: time.Now(), startK: kernel.Now(),
		stop: stop, done: make(chan struct{}), wanted: make(chan struct{}, 1),
		conns: map[*quic.Conn]*conn{}, tracks: map[*origin.Track]*track{},
		attached: map[int]*kernel.Attachment{}, routes: map[routeKey]int{},
		sources: newSlots(kernel.MaxSources), viewers: newSlots(kernel.MaxViewers),
	}
	m.overTCP = &conn{m: m, source: -1, viewer: -1, refused: "tcp"}
	err = m.attach()
	if err != nil || cfg.Mode == Auto {
		err = errors.Join(err, m.detach())
	}
	if err != nil {
		stop()
		return nil, errors.Join(err, k.Close())
	}
	k.Renew(m.now() + lease)
	go m.run(ctx)
	return m, nil
}

// Close detaches the programs. Sessions continue in user space.
func (m *Manager) Close() error {
	if m == nil {
		return nil
	}
	m.stop()
	<-m.done
	m.forwarder.Renew(0)
	err := m.detach()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.conns {
		c.suspend()
	}
	time.Sleep(10 * time.Millisecond) // for programs still running
	m.drain()
	for _, c := range m.conns {
		c.abandon()
	}
	m.ringMu.Lock()
	defer m.ringMu.Unlock()
	m.closed = true
	return errors.Join(err, m.forwarder.Close())
}

// run renews the programs' lease, makes connections register packets if no other event does, and
// tracks interfaces.
func (m *Manager) run(ctx context.Context) {
	defer close(m.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wanted:
		case <-timer.C:
		}
		m.forwarder.Renew(m.now() + lease)
		m.drain()
		wait := idle
		if m.tick() {
			wait = busy
		}
		m.checkInterfaces(time.Now())
		timer.Reset(wait)
	}
}

// checkInterfaces attaches the programs to new interfaces. In mode auto, it detaches them from all
// while no track uses them.
func (m *Manager) checkInterfaces(now time.Time) {
	if m.cfg.Mode != Auto || m.installed.Load() > 0 {
		m.used = now
	}
	switch {
	case now.Sub(m.used) > unused && !m.scanned.IsZero():
		m.scanned = time.Time{}
		if err := m.detach(); err != nil {
			m.log.Warn("kernel fast path: cannot detach from an interface", "err", err)
		}
	case now.Sub(m.used) <= unused && now.Sub(m.scanned) > rescan:
		m.scanned = now
		if err := m.attach(); err != nil {
			m.log.Warn("kernel fast path: cannot attach to an interface", "err", err)
		}
	}
}

// tick wakes the connections that have packets to register. It reports whether the kernel is
// forwarding to any.
func (m *Manager) tick() (active bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.conns {
		if c.tick() {
			active = true
		}
	}
	if m.shapesChanged.Swap(false) {
		m.choose()
	}
	if m.sourcesChanged.Swap(false) {
		m.chooseSources()
	}
	return active
}

// chooseSources makes the kernel decrypt the packets of exactly those publishers that have a viewer
// served by the kernel. The caller holds m.mu.
func (m *Manager) chooseSources() {
	needed := map[*conn]bool{}
	for _, k := range m.tracks {
		if k.installed == nil || needed[k.installed.c] {
			continue
		}
		for s := range k.viewers {
			if s.inKernel.Load() && s.c.inKernel() {
				needed[k.installed.c] = true
				break
			}
		}
	}
	for _, c := range m.conns {
		c.mu.Lock()
		c.open(needed[c])
		c.mu.Unlock()
	}
}

// want makes run tick soon.
func (m *Manager) want() {
	select {
	case m.wanted <- struct{}{}:
	default:
	}
}

// drain passes the records in the ring to their connections. While the ring is empty, connections
// can call it without blocking each other.
func (m *Manager) drain() {
	m.ringMu.RLock()
	empty := m.closed || m.forwarder.Drained()
	m.ringMu.RUnlock()
	if empty {
		return
	}
	m.ringMu.Lock()
	defer m.ringMu.Unlock()
	if m.closed {
		return
	}
	m.forwarder.Drain(func(r kernel.Record) {
		if c := m.byViewer[r.Viewer].Load(); c != nil {
			c.record(r)
		}
	})
}

// now returns the time on CLOCK_MONOTONIC without a system call.
func (m *Manager) now() time.Duration { return m.startK + time.Since(m.start) }

// time converts a time on CLOCK_MONOTONIC to a time.Time.
func (m *Manager) time(at time.Duration) time.Time { return m.start.Add(at - m.startK) }

// attach attaches the programs to new interfaces, reattaches them where they were detached, and
// forgets deleted interfaces.
func (m *Manager) attach() error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	here := map[int]bool{}
	for _, l := range links {
		a := l.Attrs()
		here[a.Index] = true
		if old := m.attached[a.Index]; old != nil {
			if old.Intact() {
				continue
			}
			m.log.Warn("kernel fast path: reattached programs that had been detached", "interface", a.Name)
			if e := old.Detach(); e != nil {
				err = errors.Join(err, e)
			}
			delete(m.attached, a.Index)
		}
		if a.EncapType != "ether" && a.EncapType != "loopback" {
			continue
		}
		attachment, e := m.forwarder.Attach(a.Index, m.cfg.Clsact)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("interface %s: %w", a.Name, e))
			continue
		}
		m.attached[a.Index] = attachment
	}
	for index, a := range m.attached {
		if !here[index] {
			_ = a.Detach()
			delete(m.attached, index)
		}
	}
	return err
}

func (m *Manager) detach() (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for index, a := range m.attached {
		err = errors.Join(err, a.Detach())
		delete(m.attached, index)
	}
	return err
}

// selects reports whether user space handles the connections that carry frames.
func (m *Manager) selects() bool { return m.cfg.Mode != ChaCha20 }

// Publisher makes the kernel forward a publisher's track until sub ends.
func (m *Manager) Publisher(t *origin.Track, sub *moqt.Subscription) {
	if m == nil {
		return
	}
	c := m.connection(sub.Session())
	if c == nil {
		return
	}
	s := &source{c, sub.Alias()}
	m.change(t, func(k *track) { k.sources[s] = struct{}{} })
	go func() {
		<-sub.Done()
		m.change(t, func(k *track) { delete(k.sources, s) })
	}()
}

// Viewer makes the kernel forward a track to a viewer until pub ends. It returns a sink that skips
// forwarded objects.
func (m *Manager) Viewer(t *origin.Track, pub *moqt.Publication) origin.Sink {
	inner := origin.Publication{Publication: pub}
	if m == nil {
		return inner
	}
	c := m.connection(pub.Session())
	if c == nil {
		return inner
	}
	s := &subscriber{c: c, pub: pub}
	changed := pub.Changed()
	k := m.change(t, func(k *track) { k.viewers[s] = struct{}{} })
	go func() {
		for {
			select {
			case <-changed:
				changed = pub.Changed()
				m.change(t, func(*track) {})
			case <-pub.Context().Done():
				m.change(t, func(k *track) { delete(k.viewers, s) })
				s.leave(m.now())
				return
			}
		}
	}()
	return &sink{inner, s, k}
}

// connection returns the conn of a session, creating it if needed. It returns nil after Close.
func (m *Manager) connection(s *moqt.Session) *conn {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	qc := s.Conn()
	if qc == nil {
		return m.overTCP
	}
	c := m.conns[qc]
	if c != nil {
		return c
	}
	c = &conn{
		m:           m,
		quic:        qc,
		waits:       s.DatagramsPending,
		source:      -1,
		viewer:      -1,
		handover:    newHandover(),
		forwardedAt: map[location]time.Duration{},
	}
	if prefix, ok := s.DatagramPrefix(); !ok {
		c.refused = "webtransport"
	} else if c.prefix = prefix; qc.ConnectionState().TLS.CipherSuite != tls.TLS_CHACHA20_POLY1305_SHA256 {
		c.refused = "cipher"
	} else {
		m.candidates.Add(1)
	}
	m.conns[qc] = c
	context.AfterFunc(qc.Context(), func() { m.remove(qc) })
	return c
}

// eligible reports whether the kernel may have a role for the connection. The caller holds m.mu.
func (m *Manager) eligible(c *conn) bool {
	return c.supported() && !c.gone && !m.crowded[c]
}

// join gives an eligible connection a role in the kernel and reports whether it has it: assign is
// becomeSource or becomeViewer. Before its first role, a connection is as in a relay without a fast
// path. The caller holds m.mu.
func (m *Manager) join(c *conn, assign func(*conn) bool) bool {
	if !m.eligible(c) {
		return false
	}
	if c.handle == nil {
		h, err := quicext.Attach(c.quic, c)
		if err != nil {
			m.log.Warn("kernel fast path: a connection uses user space",
				"peer", c.quic.RemoteAddr().String(), "err", err)
			c.refused = "attach"
			m.candidates.Add(-1)
			return false
		}
		c.handle = h
	}
	if !assign(c) {
		c.refused = "full"
		return false
	}
	c.refused = ""
	return true
}

// remove removes a connection that has ended.
func (m *Manager) remove(qc *quic.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.conns[qc]
	delete(m.conns, qc)
	if c == nil || m.closed {
		return
	}
	if c.supported() {
		m.candidates.Add(-1)
	}
	c.suspend()
	if i := c.viewer; i >= 0 {
		m.byViewer[i].Store(nil)
		m.viewers.free(i)
	}
	if c.source >= 0 {
		m.sources.free(c.source)
	}
	c.forget()
}

// change changes a track by calling do and updates the kernel.
func (m *Manager) change(t *origin.Track, do func(*track)) *track {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.tracks[t]
	if k == nil {
		m.nextID++
		k = &track{id: m.nextID, sources: map[*source]struct{}{}, viewers: map[*subscriber]struct{}{}}
		m.tracks[t] = k
	}
	do(k)
	if len(k.sources)+len(k.viewers) == 0 {
		delete(m.tracks, t)
	}
	if shape(k.shape.Load()) == frames {
		m.shapesChanged.Store(true)
		m.want()
	}
	if err := m.install(k); err != nil {
		m.log.Warn("kernel fast path: a track uses user space", "track", t.Name().String(), "err", err)
	}
	return k
}

// install updates the kernel's state for a track. A track with several publishers is left to user
// space, which detects duplicates. The caller holds m.mu.
func (m *Manager) install(k *track) error {
	if m.closed {
		return nil
	}
	only := m.forwardable(k)
	if old := k.installed; old != nil && old != only {
		k.installed = nil
		k.source.Store(nil)
		m.installed.Add(-1)
		if err := m.forwarder.RemoveTrack(old.c.source, old.alias); err != nil {
			return err
		}
	}
	if only == nil {
		for s := range k.viewers {
			s.leave(m.now())
		}
		return nil
	}
	var subs []kernel.Subscription
	for s := range k.viewers {
		if !m.join(s.c, (*conn).becomeViewer) {
			s.leave(m.now())
			continue
		}
		s.inKernel.Store(true)
		if !s.pub.Forwarding() {
			continue
		}
		start, last := s.pub.Range()
		subs = append(subs, kernel.Subscription{
			Viewer: s.c.viewer, Alias: wire.AppendVarint(nil, s.pub.Alias()),
			StartGroup: start.Group, StartObject: start.Object, LastGroup: last,
		})
	}
	if k.installed == nil {
		m.installed.Add(1)
	}
	k.installed = only
	k.source.Store(only.c)
	m.sourcesChanged.Store(true)
	m.want()
	return m.forwarder.SetTrack(only.c.source, only.alias, k.id, subs)
}

// forwardable returns the source of a track that the kernel can forward to a viewer, and gives both
// their roles. It returns nil if there is none. The caller holds m.mu.
func (m *Manager) forwardable(k *track) *source {
	if len(k.sources) != 1 || m.selects() && shape(k.shape.Load()) != single {
		return nil
	}
	for only := range k.sources {
		if !m.eligible(only.c) {
			return nil
		}
		for s := range k.viewers {
			if m.join(s.c, (*conn).becomeViewer) && m.join(only.c, (*conn).becomeSource) {
				return only
			}
		}
	}
	return nil
}

// leave records that the kernel no longer forwards to the viewer.
func (s *subscriber) leave(now time.Duration) {
	if s.inKernel.Load() {
		s.leftAt.Store(int64(now))
		s.inKernel.Store(false)
	}
}

// lingers reports whether objects that the kernel had forwarded may still reach user space.
func (s *subscriber) lingers(m *Manager) bool {
	left := s.leftAt.Load()
	if left != 0 && m.now()-time.Duration(left) > forgetAfter {
		s.leftAt.CompareAndSwap(left, 0)
		return false
	}
	return left != 0
}

// choose leaves the connections that carry frames to user space, in either direction, and the others
// to the kernel. The caller holds m.mu.
func (m *Manager) choose() {
	m.crowded = map[*conn]bool{}
	for _, k := range m.tracks {
		if shape(k.shape.Load()) != frames {
			continue
		}
		for s := range k.sources {
			m.crowded[s.c] = true
		}
		for s := range k.viewers {
			m.crowded[s.c] = true
		}
	}
	for t, k := range m.tracks {
		if err := m.install(k); err != nil {
			m.log.Warn("kernel fast path: a track uses user space", "track", t.Name().String(), "err", err)
		}
	}
	m.sourcesChanged.Store(true)
}

// observe records an object that reached user space, and makes choose run if it changes the shape of
// its track. Calls for one track must not overlap.
func (m *Manager) observe(k *track, at moqt.Location) {
	if !m.selects() || m.candidates.Load() == 0 || !k.objects.newer(at) {
		return
	}
	now := k.objects.add(at, m.now())
	if shape(k.shape.Swap(int32(now))) != now {
		m.shapesChanged.Store(true)
		m.want()
	}
}

// Stats returns the current counters.
func (m *Manager) Stats() Stats {
	var s Stats
	if m == nil {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return s
	}
	s.Counts, _ = m.forwarder.Counts()
	s.Interfaces, s.Tracks = len(m.attached), int(m.installed.Load())
	for _, k := range m.tracks {
		if shape(k.shape.Load()) == frames {
			s.FrameTracks++
		}
	}
	s.Refused = map[string]uint64{"webtransport": 0, "attach": 0, "full": 0, "cipher": 0}
	for _, c := range m.conns {
		if c.refused != "" {
			s.Refused[c.refused]++
		}
		c.mu.Lock()
		if c.on && c.source >= 0 {
			s.Sources++
		}
		if c.on && c.viewer >= 0 {
			s.Viewers++
			if c.handed {
				s.HandedOver++
			}
			v := m.forwarder.Viewer(c.viewer)
			sent := v.Sent()
			s.Budget += max(0, v.Allowed()-sent)
			s.Unregistered += sent - c.registered
		}
		c.mu.Unlock()
	}
	s.Registered, s.Lag, s.Lost = m.registered.Load(), time.Duration(m.lag.Load()), m.lost.Load()
	s.Handovers = m.handovers.Load()
	return s
}

// slots allocates indices in a table in shared memory. A freed index is reused only after a while,
// since programs may still be using it.
type slots struct {
	n       int
	fresh   int
	retired []retired
}

type retired struct {
	slot int
	at   time.Time
}

func newSlots(n int) slots { return slots{n: n} }

func (s *slots) take() int {
	if len(s.retired) > 0 && time.Since(s.retired[0].at) > retire {
		i := s.retired[0].slot
		s.retired = s.retired[1:]
		return i
	}
	if s.fresh == s.n {
		return -1
	}
	s.fresh++
	return s.fresh - 1
}

func (s *slots) free(i int) { s.retired = append(s.retired, retired{i, time.Now()}) }
