// Package limits bounds the relay's resources that peers may use, per session, per address and in
// total. Only peers that exceed a limit are refused or slowed down. The last quarter of an amount
// is shared equally among sessions or addresses, and rates are shared by max-min fairness, so that
// peers with small demands are not affected by others.
package limits

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// Limits enforces the limits of a relay. Its methods and Peer's are safe for concurrent use.
type Limits struct {
	memory   *origin.Memory
	now      func() time.Time
	initials initials

	mu        sync.Mutex
	c         Config
	all       node
	addresses map[netip.Prefix]*node
	swept     time.Time
	limited   [kinds][scopes]uint64
}

// node is a session, an address or the whole relay.
type node struct {
	parent   *node // nil for the relay
	scope    Scope
	children map[*node]struct{}
	held     [kinds]int64
	rates    [kinds - firstRate]rate
	memory   *origin.Memory // nil until something is cached
}

// New returns limits whose cached bytes also count towards memory.
func New(c Config, memory *origin.Memory) *Limits {
	l := &Limits{
		memory: memory, now: time.Now, c: c,
		all: node{scope: All, children: map[*node]struct{}{}, memory: memory}, addresses: map[netip.Prefix]*node{},
	}
	l.initials.init()
	return l
}

// Replace changes the limits. Peers over a new limit keep their resources.
func (l *Limits) Replace(c Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.c = c
	for address := range l.all.children {
		l.bound(address)
		for session := range address.children {
			l.bound(session)
		}
	}
}

// bound applies the limit on cached bytes to a node's memory. The caller holds l.mu.
func (l *Limits) bound(n *node) {
	if n.memory != nil {
		n.memory.SetLimit(*l.c.Cached.at(n.scope))
	}
}

// Refused is returned when a limit would be exceeded.
type Refused struct {
	Kind  Kind
	Scope Scope
	Limit int64
}

func (e *Refused) Error() string {
	whose := [scopes]string{"of a session", "of an address", "of all sessions"}[e.Scope]
	per := ""
	if e.Kind >= firstRate {
		per = " a second"
	}
	return fmt.Sprintf("limit %s.%s reached: %d%s %s", e.Kind, e.Scope, e.Limit, per, whose)
}

// retryAfter is the time that a refused peer waits before it retries.
const retryAfter = time.Second

// Unwrap returns the error with which to refuse a request.
func (e *Refused) Unwrap() error {
	return &moqt.RequestError{
		Code:          wire.RequestExcessiveLoad,
		Reason:        e.Error(),
		RetryInterval: wire.RetryAfter(retryAfter),
	}
}

// Peer holds the resources used by one connection and its session. A nil Peer has no limits.
type Peer struct {
	l      *Limits
	node   node
	closed bool // under l.mu
}

// prefix returns the address range under which a peer's sessions are counted.
func prefix(a net.Addr) netip.Prefix {
	ip, ok := a.(interface{ AddrPort() netip.AddrPort }) // UDP or TCP
	if !ok {
		return netip.Prefix{}
	}
	return prefixOf(ip.AddrPort().Addr())
}

func prefixOf(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}

// Suspect reports whether a client at the address should first validate its address (Retry), because
// the address has many connections, or because it or all addresses together attempt many. Source
// addresses may be forged.
func (l *Limits) Suspect(a net.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hurries(&l.all) {
		return true
	}
	n := l.addresses[prefix(a)]
	if n == nil {
		return false
	}
	limit := l.c.Connections.Address
	return limit > 0 && 2*n.held[Connections] >= limit || l.hurries(n)
}

// hurries reports whether n has used half of its handshake burst. The caller holds l.mu.
func (l *Limits) hurries(n *node) bool {
	return n.rates[Handshakes-firstRate].due.Sub(l.now()) > Handshakes.burst()/2
}

// Greedy reports whether a new session of the address would have to wait for a rate. Its
// connections get a small receive window; otherwise the address could reconnect repeatedly to have
// a full initial window of bytes read each time.
func (l *Limits) Greedy(a net.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, now := l.addresses[prefix(a)], l.now()
	if n == nil {
		return false
	}
	for k := Handshakes + 1; k < kinds; k++ {
		if n.rates[k-firstRate].due.Sub(now) > k.burst()/2 {
			return true
		}
	}
	return false
}

// Handshake admits a TLS handshake over TCP.
func (l *Limits) Handshake(a net.Addr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait, why := l.pay(l.address(a), Handshakes, 1, false); wait > 0 {
		return why
	}
	return nil
}

// address returns the node of an address. The caller holds l.mu.
func (l *Limits) address(a net.Addr) *node {
	l.sweep(l.now())
	key := prefix(a)
	address := l.addresses[key]
	if address == nil {
		address = &node{parent: &l.all, scope: Address, children: map[*node]struct{}{}}
		l.addresses[key] = address
		l.all.children[address] = struct{}{}
	}
	return address
}

// Connect admits a new connection.
func (l *Limits) Connect(a net.Addr) (*Peer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	address := l.address(a)
	if wait, why := l.pay(address, Handshakes, 1, false); wait > 0 {
		return nil, why
	}
	p := &Peer{l: l, node: node{parent: address, scope: Session}}
	address.children[&p.node] = struct{}{}
	if err := l.acquire(&p.node, Connections, 1); err != nil {
		delete(address.children, &p.node)
		return nil, err
	}
	return p, nil
}

// sweep removes unused addresses. The caller holds l.mu.
func (l *Limits) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Second {
		return
	}
	l.swept = now
	for key, n := range l.addresses {
		spent := slices.ContainsFunc(n.rates[:], func(r rate) bool { return r.due.After(now) })
		if len(n.children) == 0 && !spent && (n.memory == nil || n.memory.Used() == 0) {
			n.memory.Close()
			delete(l.addresses, key)
			delete(l.all.children, n)
		}
	}
}

// Close releases the peer's resources, except for cached bytes, which are released with their tracks.
func (p *Peer) Close() {
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	for n := p.node.parent; n != nil; n = n.parent {
		for k := range p.node.held {
			n.held[k] -= p.node.held[k]
		}
	}
	delete(p.node.parent.children, &p.node)
	p.node.memory.Close()
}

// Acquire takes n units of a kind until Release, or returns a *Refused.
func (p *Peer) Acquire(k Kind, n int64) error {
	if p == nil {
		return nil
	}
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.closed {
		return nil // the session is ending too
	}
	return p.l.acquire(&p.node, k, n)
}

// acquire implements Acquire. The caller holds l.mu.
func (l *Limits) acquire(n *node, k Kind, amount int64) error {
	child := (*node)(nil)
	for at := n; at != nil; child, at = at, at.parent {
		limit := *l.c.of(k).at(at.scope)
		if limit == 0 {
			continue
		}
		held := at.held[k] + amount
		last := limit / 4 // shared equally, which leaves room for peers that use little
		if held > limit || len(at.children) > 1 && held > limit-last &&
			child.held[k]+amount > max(1, last/int64(len(at.children))) {
			l.limited[k][at.scope]++
			return &Refused{k, at.scope, limit}
		}
	}
	for at := n; at != nil; at = at.parent {
		at.held[k] += amount
	}
	return nil
}

// Release returns n units of a kind.
func (p *Peer) Release(k Kind, n int64) {
	if p == nil {
		return
	}
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.closed {
		return
	}
	for at := &p.node; at != nil; at = at.parent {
		at.held[k] -= n
	}
}

// Hold acquires one unit of each kind, or none if a limit is reached. release returns them; only its
// first call has an effect.
func (p *Peer) Hold(list ...Kind) (release func(), err error) {
	for i, k := range list {
		if err = p.Acquire(k, 1); err != nil {
			for _, k := range list[:i] {
				p.Release(k, 1)
			}
			return func() {}, err
		}
	}
	return sync.OnceFunc(func() {
		for _, k := range list {
			p.Release(k, 1)
		}
	}), nil
}

// Memory returns the memory account of the peer's cached tracks.
func (p *Peer) Memory() *origin.Memory {
	if p == nil {
		return nil
	}
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	for _, n := range []*node{p.node.parent, &p.node} {
		if n.memory == nil && !p.closed {
			n.memory = n.parent.memory.Part(*p.l.c.Cached.at(n.scope))
		}
	}
	if p.node.memory == nil {
		return p.l.memory
	}
	return p.node.memory
}

// OpenStream implements moqt.Admission.
func (p *Peer) OpenStream() bool { return p.Acquire(Streams, 1) == nil }

// CloseStream implements moqt.Admission.
func (p *Peer) CloseStream() { p.Release(Streams, 1) }

// Opened implements moqt.Admission.
func (p *Peer) Opened(request bool) (wait time.Duration) {
	if request {
		return p.Spend(Requests, 1)
	}
	return p.Spend(Groups, 1)
}

// GrowWindow implements moqt.Admission.
func (p *Peer) GrowWindow(bytes uint64) bool { return p.Acquire(Window, int64(bytes)) == nil }

// Usage is the current usage of one limit.
type Usage struct {
	Kind    Kind
	Scope   Scope
	Limit   int64  // 0 means no limit
	Used    int64  // of the session or address that uses the most; per second for rates
	Limited uint64 // refusals and delays
}

// Usage returns the current usage of all limits.
func (l *Limits) Usage() (list []Usage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for k := range kinds {
		var used [scopes]int64
		count := func(n *node) {
			of := n.held[k]
			switch {
			case k >= firstRate:
				of = int64(n.rates[k-firstRate].recent(now))
			case k == Cached && n.memory != nil:
				of = n.memory.Used()
			}
			used[n.scope] = max(used[n.scope], of)
		}
		count(&l.all)
		for address := range l.all.children {
			count(address)
			for session := range address.children {
				count(session)
			}
		}
		for s := range scopes {
			if s == Session && !k.ofSessions() || s == All && k == Cached {
				continue
			}
			u := Usage{k, s, *l.c.of(k).at(s), used[s], l.limited[k][s]}
			if k == Initials {
				u.Used, u.Limited = l.initials.usage(s)
			}
			list = append(list, u)
		}
	}
	return list
}
