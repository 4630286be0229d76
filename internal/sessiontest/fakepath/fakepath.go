// Package fakepath emulates a network path in the virtual time of a testing/synctest bubble. A
// bottleneck sends packets at its rate, and they arrive after a delay. Tests run without waiting
// and do not depend on the machine's load.
package fakepath

import (
	"bytes"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/sessiontest"
)

// Test runs f in a bubble that supports quic-go's connections. Its clock starts after the process
// did, not in the year 2000, because quic-go counts time from the start of the process, and timers
// do not work before that.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	began := time.Now().Round(0) // without the monotonic reading, which the bubble does not have
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		time.Sleep(time.Until(began) + time.Hour)
		f(t)
	})
}

// Direction describes one direction of a path.
type Direction struct {
	// Rate returns the bottleneck's rate, in bytes per second, during the given second after Begin,
	// counted from 0. It must be positive. Nil means unlimited.
	Rate  func(second int) float64
	Delay time.Duration
	// Queue is the maximum queueing delay, at the rate in force when a packet arrives. A packet
	// that would exceed it is dropped, unless the queue is empty. 0 means unlimited.
	Queue time.Duration
	// Loss is the probability that a packet is lost after the bottleneck. Equal sequences of packets
	// lose the same ones.
	Loss float64
	// Strays is the share of packets delayed by a further StrayDelay. Later packets overtake them.
	Strays     float64
	StrayDelay time.Duration
	// Spread adds a delay to each packet, uniform in [0, Spread). Later packets overtake late ones.
	Spread time.Duration
	// Replica, if set, is a second path that carries a copy of each packet. The first copy arrives.
	Replica *Direction
}

// Path is a path between two ends. It must be made and closed in a bubble.
type Path struct {
	A, B       *End
	Congestion string // controller of Connect's sessions; "" is the default
}

// New returns a path.
func New(fromA, fromB Direction) *Path {
	p := &Path{A: newEnd(1), B: newEnd(2)}
	p.A.out, p.B.out = newLink(fromA, p.A, p.B, 1), newLink(fromB, p.B, p.A, 2)
	return p
}

func newLink(d Direction, from, to *End, seed uint64) *link {
	l := &link{Direction: d, from: from, to: to, rng: rand.New(rand.NewPCG(seed, 0))}
	if d.Replica != nil {
		l.replica = newLink(*d.Replica, from, to, seed+2)
	}
	return l
}

// Begin starts counting the seconds of Rate. Until then the second is 0.
func (p *Path) Begin() {
	for _, l := range []*link{p.A.out, p.B.out} {
		for ; l != nil; l = l.replica {
			l.mu.Lock()
			l.began = time.Now()
			l.mu.Unlock()
		}
	}
}

// Close closes both ends.
func (p *Path) Close() {
	_ = p.A.Close()
	_ = p.B.Close()
}

// Connect returns both ends of a session over the path, with the client at B. Session and path end
// with the test.
func (p *Path) Connect(t *testing.T, client, server moqt.Handler) (c, s *moqt.Session) {
	t.Helper()
	t.Cleanup(p.Close)
	return sessiontest.Controlled(t, p.B, p.A, p.Congestion, client, server)
}

// overhead is the size of a packet's Ethernet, IP and UDP headers in bytes.
const overhead = 14 + 20 + 8

// link is one direction of a path.
type link struct {
	Direction
	from, to *End
	replica  *link

	mu    sync.Mutex
	rng   *rand.Rand
	began time.Time // zero until Begin
	free  time.Time // when the bottleneck's queue will be empty
}

func (l *link) send(b []byte) {
	at, ok := l.pass(len(b))
	if l.replica != nil {
		if other, arrives := l.replica.pass(len(b)); arrives && (!ok || other.Before(at)) {
			at, ok = other, true
		}
	}
	if ok {
		l.to.arrive(packet{bytes.Clone(b), l.from.addr, at})
	}
}

// pass sends a packet of n bytes and returns its arrival time. It returns false if the packet is lost.
func (l *link) pass(n int) (at time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.free.Before(now) {
		l.free = now
	}
	if l.Rate != nil {
		rate, _ := l.rate(now)
		size := float64(n + overhead)
		if waiting := l.waiting(now); l.Queue > 0 && waiting > 0 && waiting+size > rate*l.Queue.Seconds() {
			return at, false
		}
		l.free = l.sent(size)
	}
	if l.rng.Float64() < l.Loss {
		return at, false
	}
	delay := l.Delay
	if l.Strays > 0 && l.rng.Float64() < l.Strays {
		delay += l.StrayDelay
	}
	if l.Spread > 0 {
		delay += time.Duration(l.rng.Int64N(int64(l.Spread)))
	}
	return l.free.Add(delay), true
}

// rate returns the rate at the given time, and when that rate ends.
func (l *link) rate(at time.Time) (rate float64, until time.Time) {
	if l.began.IsZero() {
		return l.Rate(0), at.Add(time.Second)
	}
	second := at.Sub(l.began).Truncate(time.Second)
	return l.Rate(int(second.Seconds())), l.began.Add(second + time.Second)
}

// sent returns the time at which the bottleneck will have sent size more bytes.
func (l *link) sent(size float64) time.Time {
	for at := l.free; ; {
		rate, until := l.rate(at)
		most := rate * until.Sub(at).Seconds()
		if size <= most {
			return at.Add(time.Duration(size / rate * float64(time.Second)))
		}
		size -= most
		at = until
	}
}

// waiting returns the number of queued bytes.
func (l *link) waiting(now time.Time) (size float64) {
	for at := now; at.Before(l.free); {
		rate, until := l.rate(at)
		if until.After(l.free) {
			until = l.free
		}
		size += rate * until.Sub(at).Seconds()
		at = until
	}
	return size
}

type packet struct {
	data []byte
	from net.Addr
	at   time.Time // arrival time
}

// End is one end of a path. It implements net.PacketConn.
type End struct {
	addr *net.UDPAddr
	out  *link

	mu       sync.Mutex
	packets  []packet
	closed   bool
	deadline time.Time
	changed  chan struct{} // closed and replaced when a field above changes
}

var _ net.PacketConn = (*End)(nil)

func newEnd(host byte) *End {
	return &End{addr: &net.UDPAddr{IP: net.IPv4(192, 0, 2, host), Port: 4443}, changed: make(chan struct{})}
}

// change calls what, which modifies the fields above, and wakes readers.
func (e *End) change(what func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	what()
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *End) arrive(p packet) {
	e.change(func() {
		i := len(e.packets)
		for ; i > 0 && e.packets[i-1].at.After(p.at); i-- {
		}
		e.packets = slices.Insert(e.packets, i, p)
	})
}

// ReadFrom implements net.PacketConn.
func (e *End) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		p, next, changed, err := e.next()
		if err != nil {
			return 0, nil, err
		}
		if p.data != nil {
			return copy(b, p.data), p.from, nil
		}
		if next.IsZero() {
			<-changed
			continue
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// next returns a packet that has arrived, or the time to check again unless something changes
// before.
func (e *End) next() (p packet, next time.Time, changed <-chan struct{}, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	switch {
	case e.closed:
		return p, next, nil, net.ErrClosed
	case !e.deadline.IsZero() && !now.Before(e.deadline):
		return p, next, nil, os.ErrDeadlineExceeded
	case len(e.packets) > 0 && !now.Before(e.packets[0].at):
		p, e.packets = e.packets[0], e.packets[1:]
		return p, next, nil, nil
	case len(e.packets) > 0:
		next = e.packets[0].at
	}
	if !e.deadline.IsZero() && (next.IsZero() || e.deadline.Before(next)) {
		next = e.deadline
	}
	return p, next, e.changed, nil
}

// WriteTo implements net.PacketConn. All packets go to the other end.
func (e *End) WriteTo(b []byte, _ net.Addr) (int, error) {
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	if closed {
		return 0, net.ErrClosed
	}
	e.out.send(b)
	return len(b), nil
}

// Close implements net.PacketConn.
func (e *End) Close() error {
	e.change(func() { e.closed = true })
	return nil
}

// LocalAddr implements net.PacketConn.
func (e *End) LocalAddr() net.Addr { return e.addr }

// SetReadDeadline implements net.PacketConn.
func (e *End) SetReadDeadline(t time.Time) error {
	e.change(func() { e.deadline = t })
	return nil
}

// SetDeadline implements net.PacketConn.
func (e *End) SetDeadline(t time.Time) error { return e.SetReadDeadline(t) }

// SetWriteDeadline implements net.PacketConn. Writes never block.
func (e *End) SetWriteDeadline(time.Time) error { return nil }
