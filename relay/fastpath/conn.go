//go:build linux && (amd64 || arm64)

package fastpath

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"holocast/internal/quicext"
	"holocast/relay/fastpath/kernel"
)

// Packet numbers for the kernel.
const (
	blockSize = 256
	blockLow  = 64                     // replace a block with fewer numbers left
	linger    = time.Second            // time from the last datagram until a viewer's block is taken back
	overdue   = 100 * time.Millisecond // time after which a number without a record counts as unused
)

// routeKey identifies a route by the peer's address.
type routeKey = netip.AddrPort

// conn is a connection in the fast path, of a publisher, a viewer or both. It implements
// quicext.Sender.
type conn struct {
	m      *Manager
	quic   *quic.Conn
	prefix []byte         // of DATAGRAM frame contents
	waits  func() bool    // reports whether user space has datagrams queued in the session
	handle quicext.Handle // nil until the kernel has a role for the connection; set under m.mu
	// refused is why the kernel cannot handle the connection: tcp, webtransport, cipher, attach, or for
	// now, full. It is guarded by m.mu.
	refused string

	lastDatagram atomic.Int64 // from the publisher, by CLOCK_MONOTONIC

	mu             sync.Mutex
	source, viewer int           // slots; -1 = not in that role; written under mu and m.mu
	state          quicext.State // Generation is 0 until the first Changed
	on             bool          // in the kernel's maps
	gone           bool          // the connection or the manager ended
	ids            map[string]bool
	route          routeKey       // route added; zero = none
	receiving      bool           // the publisher is sending datagrams
	unneeded       bool           // every viewer is served by user space
	sourceKeys     uint64         // key phase of the source's keys in the kernel, + 1; 0 = none
	viewerKeys     uint64         // key phase of the viewer's keys in the kernel, + 1; 0 = none
	cipher         *kernel.Cipher // of the viewer's keys
	precomputed    int64          // key streams exist for packet numbers below this one
	length         int            // plaintext size covered by key streams, from recent packets

	pending     []quicext.Packet // sent by the kernel, not yet registered
	sentAt      []time.Duration  // times of pending
	forwardedAt map[location]time.Duration
	registered  int64 // bytes registered so far
	budget      int64
	block       *block
	old         []*block // taken back, but some numbers have no record yet
	wanted      time.Duration
	suspended   time.Duration // time at which the kernel suspended the viewer; 0 = not suspended
	held        bool          // key updates are on hold

	handover
}

// location identifies an object of a track.
type location struct {
	track         uint32
	group, object uint64
}

// block is a block of packet numbers given to the kernel.
type block struct {
	first, end int64
	generation uint64
	seen       [blockSize / 64]uint64 // numbers with a record
	recorded   int64                  // numbers with a record
	unused     int64                  // first unused number; set by takeBack
	taken      time.Duration          // time of takeBack
}

// see marks a number as recorded. It returns false if the number belongs to another block.
func (b *block) see(number int64) bool {
	if number < b.first || number >= b.end {
		return false
	}
	i := number - b.first
	b.seen[i/64] |= 1 << (i % 64)
	b.recorded++
	return true
}

// supported reports whether the kernel can handle the connection, now or once a slot is free. The caller
// holds m.mu.
func (c *conn) supported() bool { return c.refused == "" || c.refused == "full" }

// becomeSource and becomeViewer assign a slot to the connection and report whether it has one. The
// caller holds m.mu.
func (c *conn) becomeSource() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.source < 0 {
		if c.source = c.m.sources.take(); c.source < 0 {
			return false
		}
		c.m.forwarder.Source(c.source).Clear()
		c.enter()
		c.handle.Wake()
	}
	return true
}

func (c *conn) becomeViewer() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.viewer < 0 {
		if c.viewer = c.m.viewers.take(); c.viewer < 0 {
			return false
		}
		c.m.forwarder.Viewer(c.viewer).Clear()
		if k := c.m.forwarder.KeyStreams(c.viewer); k != nil {
			k.Clear()
		}
		c.m.byViewer[c.viewer].Store(c)
		c.enter()
		c.handle.Wake()
	}
	return true
}

// enter brings the kernel's maps up to date with the connection's state. The caller holds c.mu.
func (c *conn) enter() {
	s := &c.state
	if s.Generation == 0 || c.gone {
		return
	}
	now := make(map[string]bool, len(s.ConnIDs))
	for _, id := range s.ConnIDs {
		now[string(id)] = true
		_ = c.m.forwarder.SetConnection(id, kernel.Role{Source: c.source, Viewer: c.viewer})
	}
	for id := range c.ids {
		if !now[id] {
			_ = c.m.forwarder.RemoveConnection([]byte(id))
		}
	}
	c.ids = now
	if c.source >= 0 {
		k := c.m.forwarder.Source(c.source)
		if c.sourceKeys != s.KeyPhase+1 {
			c.sourceKeys = s.KeyPhase + 1
			k.SetKeys(s.KeyPhase, kernel.Keys{Key: s.Rx.Key, IV: s.Rx.IV})
			k.SetKeys(s.KeyPhase+1, kernel.Keys{Key: s.RxNext.Key, IV: s.RxNext.IV})
		}
		k.Stop()
		if c.receiving {
			c.startSource()
		}
	}
	if c.viewer >= 0 {
		if c.route != s.Remote {
			c.m.leaveRoute(c.route)
			c.route = s.Remote
			c.m.enterRoute(c.route)
		}
		if c.viewerKeys != s.KeyPhase+1 {
			c.viewerKeys = s.KeyPhase + 1
			keys := kernel.Keys{Key: s.Tx.Key, IV: s.Tx.IV}
			c.m.forwarder.Viewer(c.viewer).SetKeys(s.KeyPhase, keys)
			c.cipher, _ = kernel.NewCipher(keys) // on failure (nil) the kernel computes the key streams
		}
		c.startViewer()
	}
	c.on = true
}

// open starts or stops decryption of the publisher's packets in the kernel, depending on whether a
// viewer needs them. The caller holds c.mu.
func (c *conn) open(needed bool) {
	if c.unneeded == !needed {
		return
	}
	if c.unneeded = !needed; !c.on || c.source < 0 || !c.receiving {
		return
	}
	if needed {
		c.startSource()
	} else {
		c.m.forwarder.Source(c.source).Stop()
	}
}

func (c *conn) startSource() {
	if c.unneeded {
		return
	}
	c.m.forwarder.Source(c.source).
		Start(kernel.SourceOptions{Remote: c.state.Remote, HeaderKey: c.state.Rx.HP, Prefix: c.prefix})
}

// received records a datagram that viewers want. The kernel then decrypts the publisher's packets
// until none has arrived for linger.
func (c *conn) received() {
	if now := c.m.now(); now-time.Duration(c.lastDatagram.Swap(int64(now))) < linger {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.receiving || c.gone {
		return
	}
	c.receiving = true
	if c.on && c.source >= 0 {
		c.startSource()
	}
	c.m.want()
}

// inKernel reports whether the kernel may send to the viewer.
func (c *conn) inKernel() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.handed
}

func (c *conn) startViewer() {
	s := &c.state
	c.suspended = 0
	c.m.forwarder.Viewer(c.viewer).Start(kernel.ViewerOptions{
		Remote: s.Remote, ConnID: s.DestConnID, HeaderKey: s.Tx.HP, Prefix: c.prefix,
		MaxSize: s.MaxPacketSize, MaxFrame: s.MaxDatagramFrame, ECN: s.ECN,
	})
}

// enterRoute and leaveRoute count the connections per address.
func (m *Manager) enterRoute(r routeKey) {
	m.routesMu.Lock()
	defer m.routesMu.Unlock()
	if m.routes[r]++; m.routes[r] == 1 {
		_ = m.forwarder.AddRoute(r)
	}
}

func (m *Manager) leaveRoute(r routeKey) {
	if r == (routeKey{}) {
		return
	}
	m.routesMu.Lock()
	defer m.routesMu.Unlock()
	if m.routes[r]--; m.routes[r] == 0 {
		delete(m.routes, r)
		_ = m.forwarder.RemoveRoute(r)
	}
}

// Changed implements quicext.Sender.
func (c *conn) Changed(s quicext.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return
	}
	if s.Generation != c.state.Generation && c.viewer >= 0 {
		c.m.forwarder.Viewer(c.viewer).Stop()
		c.takeBack()
	}
	c.state = s
	c.enter()
}

// Report implements quicext.Sender.
func (c *conn) Report(r quicext.Report) {
	c.m.lost.Add(uint64(len(r.Lost)))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budget = r.Budget.Bytes
	c.allow()
}

// allow sets the kernel's limit to the registered bytes plus the remaining budget. The caller holds
// c.mu.
func (c *conn) allow() {
	if c.viewer >= 0 && !c.gone {
		c.m.forwarder.Viewer(c.viewer).Allow(c.registered + c.budget)
	}
}

// record records a packet that the kernel sent.
func (c *conn) record(r kernel.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = append(c.pending, quicext.Packet{Number: r.Number, Size: r.Size, Sent: c.m.time(r.Time), ECN: r.ECN})
	c.sentAt = append(c.sentAt, r.Time)
	c.forwardedAt[location{r.Track, r.Group, r.Object}] = r.Time
	c.wanted = r.Time
	c.length = max(r.Size, c.length-1)
	if c.block != nil && c.block.see(r.Number) {
		return
	}
	for _, b := range c.old {
		if b.see(r.Number) {
			return
		}
	}
}

// forwarded reports whether the kernel sent an object. The answer is final, since user space receives
// a packet only after the programs are done with it. want means that the kernel should send the next
// one.
func (c *conn) forwarded(p location, want bool) bool {
	c.m.drain()
	c.mu.Lock()
	if _, ok := c.forwardedAt[p]; ok {
		delete(c.forwardedAt, p)
		c.mu.Unlock()
		return true
	}
	if !want {
		c.mu.Unlock()
		return false
	}
	now := c.m.now()
	waiting := c.on && c.block == nil && !c.handed && now-c.wanted > idle
	c.wanted = now
	c.mu.Unlock()
	if waiting {
		c.handle.Wake() // to get a block
		c.m.want()
	}
	return false
}

// passedOn records that user space sent an object that the kernel did not send. If it was the last
// fallback, later objects can no longer overtake a fallback.
func (c *conn) passedOn(p location) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.viewer < 0 || c.gone {
		return
	}
	if n, track, group, object := c.m.forwarder.Viewer(c.viewer).Fallbacks(); p == (location{track, group, object}) {
		c.passed = n
	}
}

// Drain implements quicext.Sender.
func (c *conn) Drain(p quicext.Port) {
	c.m.drain()
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.m.now()
	if len(c.pending) > 0 {
		_ = p.Sent(c.pending) // fails for numbers already released as unused
		for i, packet := range c.pending {
			c.registered += int64(packet.Size)
			c.budget -= int64(packet.Size)
			c.m.lag.Add(uint64(now - c.sentAt[i]))
		}
		c.m.registered.Add(uint64(len(c.pending)))
		c.pending, c.sentAt = c.pending[:0], c.sentAt[:0]
	}
	if c.gone {
		p.Detach()
		return
	}
	if c.viewer < 0 || !c.on {
		return
	}
	c.changeBlock(p, now)
	c.allow()
	c.precompute()
}

// precompute precomputes the key streams of the kernel's next packets. The caller holds c.mu.
func (c *conn) precompute() {
	b := c.block
	if b == nil || c.cipher == nil {
		return
	}
	k := c.m.forwarder.KeyStreams(c.viewer)
	if k == nil {
		return
	}
	next := c.m.forwarder.Viewer(c.viewer).Next()
	for c.precomputed = max(c.precomputed, next); c.precomputed < min(next+kernel.PrecomputedPackets,
		b.end); c.precomputed++ {
		k.Make(c.cipher, c.precomputed, c.length)
	}
}

// changeBlock takes back packet numbers that the kernel should no longer use, and gives it new ones
// when there is something to send and user space has caught up. Any earlier, packets from user
// space would overtake the block, and the kernel would overtake datagrams queued in user space. The
// caller holds c.mu.
func (c *conn) changeBlock(p quicext.Port, now time.Duration) {
	v := c.m.forwarder.Viewer(c.viewer)
	want := now-c.wanted < linger && !c.state.KeyUpdateDue
	if b := c.block; b != nil &&
		(!want || b.generation != c.state.Generation || p.Overtaken() || b.end-v.Next() < blockLow) {
		c.takeBack()
	}
	c.releaseOld(p, now)
	if hold := want; hold != c.held {
		c.held = hold
		p.HoldKeyUpdates(hold)
	}
	if !want || !c.kernelMaySend(p, v, now) || c.block != nil {
		return
	}
	first, generation, err := p.Reserve(blockSize)
	if err != nil || generation != c.state.Generation {
		return // wait until overdue numbers are released
	}
	c.block = &block{first: first, end: first + blockSize, generation: generation}
	v.Give(first, first+blockSize, c.state.KeyPhase)
}

// kernelMaySend reports whether the kernel may send to the viewer. It may not while the viewer is
// handed over or user space still has datagrams queued for it. The caller holds c.mu.
func (c *conn) kernelMaySend(p quicext.Port, v *kernel.Viewer, now time.Duration) bool {
	left, _, _, object := v.Fallbacks()
	handed := c.handed
	maySend := c.check(now, left, object > 0, c.waits() || p.DatagramsWait())
	if handed != c.handed {
		c.m.sourcesChanged.Store(true)
		if c.handed {
			c.m.handovers.Add(1)
			c.takeBack()
		}
	}
	if maySend {
		v.CatchUp(left)
	}
	return maySend
}

// takeBack takes back the kernel's block. The caller holds c.mu.
func (c *conn) takeBack() {
	b := c.block
	if b == nil {
		return
	}
	c.block = nil
	b.taken = c.m.now()
	b.unused = max(b.first, c.m.forwarder.Viewer(c.viewer).TakeBack())
	c.old = append(c.old, b)
}

// releaseOld releases unused numbers of blocks taken back. The caller holds c.mu.
func (c *conn) releaseOld(p quicext.Port, now time.Duration) {
	kept := c.old[:0]
	for _, b := range c.old {
		if b.unused < b.end {
			_ = p.Release(b.unused, int(b.end-b.unused))
			b.end = b.unused
		}
		if b.recorded < b.end-b.first {
			if now-b.taken < overdue {
				kept = append(kept, b)
				continue
			}
			for n := b.first; n < b.end; n++ {
				if b.seen[(n-b.first)/64]>>((n-b.first)%64)&1 == 0 {
					_ = p.Release(n, 1)
				}
			}
		}
	}
	clear(c.old[len(kept):])
	c.old = kept
}

// tick wakes the connection if it has work that no event triggers. It reports whether the kernel
// forwards to it. The caller holds m.mu.
func (c *conn) tick() (active bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.m.now()
	if c.receiving && !c.gone && now-time.Duration(c.lastDatagram.Load()) > linger {
		c.receiving = false
		c.m.forwarder.Source(c.source).Stop()
	}
	if c.viewer < 0 || !c.on || c.gone {
		return false
	}
	for p, at := range c.forwardedAt {
		if now-at > forgetAfter {
			delete(c.forwardedAt, p)
		}
	}
	v := c.m.forwarder.Viewer(c.viewer)
	if !v.On() { // the viewer's address changed; Changed follows if the change is genuine
		if c.suspended == 0 {
			c.suspended = now
		} else if now-c.suspended > overdue {
			c.startViewer()
		}
	}
	active = now-c.wanted < linger
	wants := active && (!c.handed || now >= c.until)
	if len(c.pending) > 0 || len(c.old) > 0 || wants != (c.block != nil) ||
		c.block != nil && c.block.end-v.Next() < blockLow {
		c.handle.Wake()
	}
	return active
}

// suspend stops the kernel from sending and receiving on the connection. The caller holds m.mu.
func (c *conn) suspend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone, c.on = true, false
	if c.source >= 0 {
		c.m.forwarder.Source(c.source).Stop()
	}
	if c.viewer >= 0 {
		c.m.forwarder.Viewer(c.viewer).Stop()
		c.takeBack()
	}
}

// forget removes a suspended connection from the kernel's maps. The caller holds m.mu.
func (c *conn) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.ids {
		_ = c.m.forwarder.RemoveConnection([]byte(id))
	}
	c.m.leaveRoute(c.route)
	c.ids, c.route = nil, routeKey{}
}

// abandon makes a suspended connection detach from quic-go. The caller holds m.mu.
func (c *conn) abandon() {
	if c.handle != nil {
		c.handle.Wake()
	}
}
