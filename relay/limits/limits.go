// Package limits bounds what the peers of a relay take of it: one session, all sessions of
// an address, and all of them together. Whoever reaches a limit is refused, or slowed down,
// alone: the last quarter of what an address or the relay has is shared out equally, so that
// those who want little have room, and rates are shared so that those who want little have it.
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

// Limits are those of a relay. Its methods, and those of its sessions, are safe for
// concurrent use.
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

// node is a session, an address or all of them.
type node struct {
	parent *node // nil above all
	scope  Scope
	kids   map[*node]struct{}
	held   [kinds]int64
	rates  [kinds - firstRate]rate
	memory *origin.Memory // nil until it caches something
}

// New returns limits. What is cached counts towards memory as well.
func New(c Config, memory *origin.Memory) *Limits {
	l := &Limits{
		memory: memory, now: time.Now, c: c,
		all: node{scope: All, kids: map[*node]struct{}{}, memory: memory}, addresses: map[netip.Prefix]*node{},
	}
	l.initials.init()
	return l
}

// Replace changes the limits. Whoever has more than they allow keeps it.
func (l *Limits) Replace(c Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.c = c
	for address := range l.all.kids {
		l.bound(address)
		for session := range address.kids {
			l.bound(session)
		}
	}
}

// bound gives a node's memory its limit. l.mu is held.
func (l *Limits) bound(n *node) {
	if n.memory != nil {
		n.memory.SetLimit(*l.c.Cached.at(n.scope))
	}
}

// Refused is the error of what a limit does not allow.
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

// retryAfter is how long a refused peer waits before it retries.
const retryAfter = time.Second

// Unwrap is the refusal of a request.
func (e *Refused) Unwrap() error {
	return &moqt.RequestError{Code: wire.RequestExcessiveLoad, Reason: e.Error(), RetryInterval: wire.RetryAfter(retryAfter)}
}

// Peer is a connection and its session. The methods of a nil Peer bound nothing.
type Peer struct {
	l      *Limits
	node   node
	closed bool // under l.mu
}

// prefix is the address that a peer's sessions are counted by.
func prefix(a net.Addr) netip.Prefix {
	udp, ok := a.(*net.UDPAddr)
	if !ok {
		return netip.Prefix{}
	}
	return prefixOf(udp.AddrPort().Addr())
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

// Suspect reports whether an address has so many connections, or it or all attempt so many,
// that it should prove to be the sender's before it is given more: others may forge it.
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

// hurries reports whether half of the handshakes that n may begin at once have been begun.
// l.mu is held.
func (l *Limits) hurries(n *node) bool {
	return n.rates[Handshakes-firstRate].due.Sub(l.now()) > Handshakes.burst()/2
}

// Greedy reports whether the sessions of an address have spent so much of a rate that a new one
// would have to wait. They may connect again and again, to have a window's bytes read each time.
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

// Connect lets a new connection in.
func (l *Limits) Connect(a net.Addr) (*Peer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(l.now())
	key := prefix(a)
	address := l.addresses[key]
	if address == nil {
		address = &node{parent: &l.all, scope: Address, kids: map[*node]struct{}{}}
		l.addresses[key] = address
		l.all.kids[address] = struct{}{}
	}
	if wait, why := l.pay(address, Handshakes, 1, false); wait > 0 {
		return nil, why
	}
	p := &Peer{l: l, node: node{parent: address, scope: Session}}
	address.kids[&p.node] = struct{}{}
	if err := l.acquire(&p.node, Connections, 1); err != nil {
		delete(address.kids, &p.node)
		return nil, err
	}
	return p, nil
}

// sweep forgets addresses of which nothing is left. l.mu is held.
func (l *Limits) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Second {
		return
	}
	l.swept = now
	for key, n := range l.addresses {
		spent := slices.ContainsFunc(n.rates[:], func(r rate) bool { return r.due.After(now) })
		if len(n.kids) == 0 && !spent && (n.memory == nil || n.memory.Used() == 0) {
			n.memory.Close()
			delete(l.addresses, key)
			delete(l.all.kids, n)
		}
	}
}

// Close gives back all that the peer holds. What it has cached goes when its tracks do.
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
	delete(p.node.parent.kids, &p.node)
	p.node.memory.Close()
}

// Acquire takes n of a kind until Release gives them back, or fails with a *Refused.
func (p *Peer) Acquire(k Kind, n int64) error {
	if p == nil {
		return nil
	}
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.closed {
		return nil // and so does its session
	}
	return p.l.acquire(&p.node, k, n)
}

// acquire is Acquire. l.mu is held.
func (l *Limits) acquire(n *node, k Kind, amount int64) error {
	child := (*node)(nil)
	for at := n; at != nil; child, at = at, at.parent {
		limit := *l.c.of(k).at(at.scope)
		if limit == 0 {
			continue
		}
		held := at.held[k] + amount
		last := limit / 4 // shared out equally, so that who has little always has room
		if held > limit || len(at.kids) > 1 && held > limit-last && child.held[k]+amount > max(1, last/int64(len(at.kids))) {
			l.limited[k][at.scope]++
			return &Refused{k, at.scope, limit}
		}
	}
	for at := n; at != nil; at = at.parent {
		at.held[k] += amount
	}
	return nil
}

// Release gives back what Acquire took.
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

// Hold is Acquire of one of each kind; release gives them back, once.
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

// Memory is where the cache of the peer's tracks counts.
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

// Usage is how much of a limit is used.
type Usage struct {
	Kind    Kind
	Scope   Scope
	Limit   int64  // 0 = none
	Used    int64  // by the session or address that has most; a second's for rates
	Limited uint64 // times that something was refused or delayed
}

// Usage lists all limits.
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
		for address := range l.all.kids {
			count(address)
			for session := range address.kids {
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
