package bpf

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

var (
	long = flag.Bool("long", false, "run the tests of a pair of edges at 100 000 packets/s for 60 s")
	rate = flag.Int("rate", 0, "packets per second of the tests of a pair, at most; 0 = 20 000, or 100 000 with -long")
)

// pairLoad returns the rate, in packets per second, and the duration of a pair test's traffic.
func pairLoad() (perSecond int, duration time.Duration) {
	perSecond, duration = 20_000, 500*time.Millisecond
	if *long {
		perSecond, duration = 100_000, time.Minute
	}
	if *rate != 0 {
		perSecond = *rate
	}
	return perSecond, duration
}

// pair is a source, two edges connected by three paths, and a viewer. Each is a host:
//
//	source ─lan─ a ═path1..3═ b ─lan─ viewer
type pair struct {
	source, a, b, viewer *host
	pin                  string
	key                  []byte // signalling key; nil = testKey
	clsact, egress       bool   // the sender's kind of attachment
	sender               *Sender
	receiver             *Receiver
}

const (
	pairPaths = 3
	flowDSCP  = 34
)

var pairViewer = []netip.Addr{addr("10.3.0.2"), addr("fd03::2")}

func newPair(t testing.TB) *pair {
	t.Helper()
	p := &pair{pin: pins(t), source: newHost(t), a: newHost(t), b: newHost(t), viewer: newHost(t)}
	cable(t, p.source, "lan", p.a, "lan")
	cable(t, p.viewer, "lan", p.b, "lan")
	p.source.address(t, "lan", "10.1.0.2/24")
	p.source.address(t, "lan", "fd01::2/64")
	p.a.address(t, "lan", "10.1.0.1/24")
	p.a.address(t, "lan", "fd01::1/64")
	p.b.address(t, "lan", "10.3.0.1/24")
	p.b.address(t, "lan", "fd03::1/64")
	p.viewer.address(t, "lan", "10.3.0.2/24")
	p.viewer.address(t, "lan", "fd03::2/64")
	for i := 1; i <= pairPaths; i++ {
		name := fmt.Sprint("path", i)
		cable(t, p.a, name, p.b, name)
		p.a.address(t, name, fmt.Sprintf("10.2.%d.1/24", i))
		p.a.address(t, name, fmt.Sprintf("fd02:%d::1/64", i))
		p.b.address(t, name, fmt.Sprintf("10.2.%d.2/24", i))
		p.b.address(t, name, fmt.Sprintf("fd02:%d::2/64", i))
	}
	for _, h := range []*host{p.a, p.b} {
		h.enable(t, "ipv4/ip_forward")
		h.enable(t, "ipv6/conf/all/forwarding")
	}
	p.source.route(t, "0.0.0.0/0", "10.1.0.1")
	p.source.route(t, "::/0", "fd01::1")
	p.viewer.route(t, "0.0.0.0/0", "10.3.0.1")
	p.viewer.route(t, "::/0", "fd03::1")
	p.a.route(t, "10.3.0.0/24", "10.2.1.2")
	p.a.route(t, "fd03::/64", "fd02:1::2")
	p.b.route(t, "10.1.0.0/24", "10.2.1.1")
	p.b.route(t, "fd01::/64", "fd02:1::1")
	return p
}

// openSender starts the sender, or takes over from an earlier one.
func (p *pair) openSender(t testing.TB) {
	t.Helper()
	o := SenderOptions{Pin: p.pin, Attach: []Attach{{"lan", Ingress}}, SignalKey: testKey, Clsact: p.clsact}
	if p.key != nil {
		o.SignalKey = p.key
	}
	if p.egress {
		o.Attach = nil
		for i := 1; i <= pairPaths; i++ {
			o.Attach = append(o.Attach, Attach{fmt.Sprint("path", i), Egress})
		}
	}
	p.a.must(t, func() (err error) {
		p.sender, err = OpenSender(o)
		return err
	})
}

func (p *pair) openReceiver(t testing.TB) {
	t.Helper()
	p.b.must(t, func() (err error) {
		p.receiver, err = OpenReceiver(ReceiverOptions{Pin: p.pin, Interfaces: []string{"path1", "path2", "path3"}})
		return err
	})
}

// open starts both edges and duplicates over all paths.
func (p *pair) open(t testing.TB) {
	t.Helper()
	p.openReceiver(t)
	p.openSender(t)
	for i := 1; i <= pairPaths; i++ {
		p.setPath(t, i, true)
	}
	for _, dst := range pairViewer {
		if err := errors.Join(p.receiver.SetFlow(dst, Flow{DSCP: flowDSCP, Paths: 7}),
			p.sender.SetPolicy(dst, 7)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		// They detach in the namespaces where they attached.
		p.a.must(t, func() error { return p.sender.Detach() })
		p.b.must(t, func() error { return p.receiver.Detach() })
	})
}

func (p *pair) setPath(t testing.TB, i int, up bool) {
	t.Helper()
	name := fmt.Sprint("path", i)
	err := p.sender.SetPath(
		Path{Index: i, Interface: p.a.index(t, name), Source: p.a.mac(t, name), NextHop: p.b.mac(t, name), Up: up},
	)
	if err != nil {
		t.Fatal(err)
	}
}

// from returns the host whose packets are duplicated, and its address in dst's family.
func (p *pair) from(dst netip.Addr) (*host, netip.Addr) {
	switch {
	case p.egress && dst.Is4():
		return p.a, addr("10.2.1.1")
	case p.egress:
		return p.a, addr("fd02:1::1")
	case dst.Is4():
		return p.source, addr("10.1.0.2")
	default:
		return p.source, addr("fd01::2")
	}
}

// Kinds of traffic.
type traffic struct {
	name string
	dst  netip.Addr
	size int // payload length
	gso  int // datagrams per GSO buffer; 0 = no GSO
	frag bool
}

// count is the result of a stream of datagrams numbered from 0.
type count struct {
	sent, received, twice, strange int
	missing                        []int
}

// socket opens a UDP socket on a host.
func (h *host) socket(t testing.TB, local netip.AddrPort) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	h.must(t, func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(local))
		return err
	})
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func control(t testing.TB, conn syscall.Conn, f func(fd int) error) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if cerr := raw.Control(func(fd uintptr) { err = f(int(fd)) }); err != nil || cerr != nil {
		t.Fatal(err, cerr)
	}
}

// roomy enlarges a socket's buffer, whose overflow would count as path loss.
func roomy(t testing.TB, conn *net.UDPConn) {
	t.Helper()
	control(
		t,
		conn,
		func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 256<<20) },
	)
}

// fill writes datagram n, which begins with its number and ends with pseudo-random bytes, where a QUIC
// packet has its authentication tag.
func fill(b []byte, n uint64) {
	binary.BigEndian.PutUint64(b, n)
	binary.BigEndian.PutUint64(b[len(b)-8:], (n+1)*0x9e3779b97f4a7c15)
}

// stream sends datagrams to the viewer at the given rate and counts arrivals.
func (p *pair) stream(t testing.TB, kind traffic, perSecond int, duration time.Duration) count {
	t.Helper()
	if *rate != 0 {
		perSecond = min(perSecond, *rate)
	}
	h, local := p.from(kind.dst)
	in := p.viewer.socket(t, netip.AddrPortFrom(kind.dst, 0))
	to := in.LocalAddr().(*net.UDPAddr).AddrPort()
	out := h.socket(t, netip.AddrPortFrom(local, 0))
	roomy(t, in)
	control(t, out, func(fd int) error {
		if kind.gso > 1 {
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, kind.size); err != nil {
				return err
			}
		}
		discover := unix.IP_PMTUDISC_DO // DF, as in quic-go
		if kind.frag {
			discover = unix.IP_PMTUDISC_DONT
		}
		if kind.dst.Is4() {
			return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, discover)
		}
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, discover)
	})

	var sent atomic.Int64
	sent.Store(-1)
	var c count
	var wg sync.WaitGroup
	wg.Go(func() { c = receive(in, &sent) })
	n := send(t, out, to, kind, perSecond, duration)
	sent.Store(int64(n))
	wg.Wait()
	c.sent = n
	return c
}

// send sends numbered datagrams, one batch per millisecond, and returns their number.
func send(t testing.TB, out *net.UDPConn, to netip.AddrPort, kind traffic, perSecond int, duration time.Duration) int {
	pc := ipv4.NewPacketConn(out) // its WriteBatch works for IPv4 and IPv6
	each := max(kind.gso, 1)
	const batch = 64
	messages := make([]ipv4.Message, batch)
	for i := range messages {
		messages[i] = ipv4.Message{Buffers: [][]byte{make([]byte, kind.size*each)}, Addr: net.UDPAddrFromAddrPort(to)}
		random := rand.New(rand.NewPCG(uint64(i), 0))
		for j := range messages[i].Buffers[0] {
			messages[i].Buffers[0][j] = byte(random.Uint32())
		}
	}
	start, n := time.Now(), 0
	for n == 0 || time.Since(start) < duration {
		due := int(time.Since(start).Seconds() * float64(perSecond))
		if due <= n {
			time.Sleep(time.Millisecond)
			continue
		}
		now := min((due-n+each-1)/each, batch)
		for i := range now {
			for k := range each {
				fill(messages[i].Buffers[0][k*kind.size:][:kind.size], uint64(n+i*each+k))
			}
		}
		for left := messages[:now]; len(left) > 0; {
			w, err := pc.WriteBatch(left, 0)
			if errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EAGAIN) {
				continue
			}
			if err != nil {
				t.Error(err)
				return n
			}
			left = left[w:]
			n += w * each
		}
	}
	return n
}

// patience bounds the wait for the last datagrams, since delivery can stall for seconds on a busy
// machine.
const patience = 15 * time.Second

// receive counts datagrams until all have arrived and nothing follows, or until none has arrived
// within patience.
func receive(in *net.UDPConn, sent *atomic.Int64) count {
	var c count
	seen := make([]uint8, 1<<16)
	pc := ipv4.NewPacketConn(in)
	messages := make([]ipv4.Message, 64)
	for i := range messages {
		messages[i].Buffers = [][]byte{make([]byte, 1<<16)}
	}
	const quiet = 50 * time.Millisecond
	for last := time.Now(); ; {
		_ = in.SetReadDeadline(time.Now().Add(quiet))
		got, err := pc.ReadBatch(messages, 0)
		if err != nil {
			n := int(sent.Load())
			if n >= 0 && (c.received >= n || time.Since(last) > patience) {
				for i := range n {
					if i >= len(seen) || seen[i] == 0 {
						c.missing = append(c.missing, i)
					}
				}
				return c
			}
			continue
		}
		last = time.Now()
		for _, m := range messages[:got] {
			b := m.Buffers[0][:m.N]
			if len(b) < 16 {
				c.strange++
				continue
			}
			n := binary.BigEndian.Uint64(b)
			if n > 1<<32 || binary.BigEndian.Uint64(b[len(b)-8:]) != (n+1)*0x9e3779b97f4a7c15 {
				c.strange++
				continue
			}
			for int(n) >= len(seen) {
				seen = append(seen, make([]uint8, len(seen))...)
			}
			if seen[n]++; seen[n] > 1 {
				c.twice++
			} else {
				c.received++
			}
		}
	}
}

// check fails the test unless each packet arrived exactly once.
func (c count) check(t testing.TB) {
	t.Helper()
	if c.sent == 0 || c.received != c.sent || c.twice != 0 || c.strange != 0 {
		t.Errorf(
			"sent %d, received %d, %d of them twice, %d strange; missing %v",
			c.sent,
			c.received,
			c.twice,
			c.strange,
			c.missing[:min(len(c.missing), 20)],
		)
	}
}

// warm resolves the neighbours on all paths.
func (p *pair) warm(t testing.TB) {
	t.Helper()
	for _, dst := range pairViewer {
		p.stream(t, traffic{dst: dst, size: 100}, 100, 50*time.Millisecond)
	}
}

// Each packet arrives exactly once over three paths, and both ends count the same.
func TestPairExactlyOnce(t *testing.T) {
	perSecond, duration := pairLoad()
	kinds := []traffic{
		{name: "IPv4", dst: pairViewer[0], size: 1200},
		{name: "IPv6", dst: pairViewer[1], size: 1200},
		{name: "IPv4, GSO", dst: pairViewer[0], size: 1200, gso: 16},
		{name: "IPv6, GSO", dst: pairViewer[1], size: 1200, gso: 16},
		{name: "IPv4, fragments", dst: pairViewer[0], size: 4000, frag: true},
		{name: "IPv6, fragments", dst: pairViewer[1], size: 4000, frag: true},
	}
	for _, how := range []struct {
		name           string
		clsact, egress bool
	}{{"TCX", false, false}, {"clsact", true, false}, {"TCX egress", false, true}, {"clsact egress", true, true}} {
		t.Run(how.name, func(t *testing.T) {
			p := newPair(t)
			p.clsact, p.egress = how.clsact, how.egress
			p.open(t)
			p.warm(t)
			for i, kind := range kinds {
				// The other attachments run much the same code, so they get less traffic and, without
				// -long, only a third of the kinds.
				if (how.clsact || how.egress) && i%3 != 0 && !*long {
					continue
				}
				t.Run(kind.name, func(t *testing.T) {
					perSecond, duration := perSecond, duration
					if how.clsact || how.egress {
						perSecond, duration = 20_000, 150*time.Millisecond
					}
					fragments := 1
					if kind.frag {
						fragments = 3
						perSecond /= 10 // the kernel bounds the memory for reassembly
					}
					sent, received := mustStats(t, p.sender), mustReceived(t, p.receiver)
					setIDs(t, p.sender, 65536-2000) // wraps during the test
					c := p.stream(t, kind, perSecond, duration)
					c.check(t)
					want := uint64(c.sent * fragments)
					sent2, received2 := mustStats(t, p.sender), mustReceived(t, p.receiver)
					var first, late uint64
					for i := range pairPaths {
						if n := sent2.Paths[i].Packets - sent.Paths[i].Packets; n != want {
							t.Errorf("path %d: sender counts %d packets, want %d", i+1, n, want)
						}
						bytes := sent2.Paths[i].Bytes - sent.Paths[i].Bytes
						if got := received2.Paths[i].Bytes - received.Paths[i].Bytes; got != bytes {
							t.Errorf("path %d: %d bytes sent, %d arrived", i+1, bytes, got)
						}
						first += received2.Paths[i].First - received.Paths[i].First
						late += received2.Paths[i].Late - received.Paths[i].Late
						if received2.Paths[i].Missing != 0 || received2.Paths[i].Rogue != 0 {
							t.Errorf("path %d: %+v", i+1, received2.Paths[i])
						}
					}
					if first != want || late != (pairPaths-1)*want {
						t.Errorf(
							"receiver counts %d first, %d late, want %d, %d",
							first,
							late,
							want,
							(pairPaths-1)*want,
						)
					}
					// Occasionally a bucket is full of packets less than a second old.
					if received2.Races+received2.Short+received2.Unknown != 0 || received2.Evicted > want/100_000 {
						t.Errorf("receiver: %+v", received2)
					}
					t.Logf(
						"%d sent, %d received, %d twice; %d first, %d late",
						c.sent,
						c.received,
						c.twice,
						first,
						late,
					)
				})
			}
		})
	}
}

// setIDs sets the packet ID counters.
func setIDs(t testing.TB, s *Sender, next uint32) {
	t.Helper()
	for i := range uint32(1024) {
		if err := s.maps[senderMapIds].Put(i, next); err != nil {
			t.Fatal(err)
		}
	}
}

// Restarts and changes under load neither lose nor duplicate packets.
func TestPairChanges(t *testing.T) {
	perSecond, duration := pairLoad()
	for _, how := range []struct {
		name   string
		clsact bool
	}{{"TCX", false}, {"clsact", true}} {
		p := newPair(t)
		p.clsact = how.clsact
		p.open(t)
		p.warm(t)
		during := func(name string, change func(t *testing.T, round int)) {
			t.Run(how.name+", "+name, func(t *testing.T) {
				for _, kind := range []traffic{
					{dst: pairViewer[0], size: 1200},
					{dst: pairViewer[1], size: 1200, gso: 8},
				} {
					ctx, cancel := context.WithCancel(t.Context())
					var wg sync.WaitGroup
					rounds := 0
					wg.Go(func() {
						for ; ctx.Err() == nil; rounds++ {
							change(t, rounds)
							time.Sleep(20 * time.Millisecond)
						}
					})
					c := p.stream(t, kind, perSecond, duration/2)
					cancel()
					wg.Wait()
					c.check(t)
					t.Logf("%d changes, %d sent, %d received, %d twice", rounds, c.sent, c.received, c.twice)
				}
			})
		}
		during("sender restarts", func(t *testing.T, _ int) {
			if err := p.sender.Close(); err != nil {
				t.Error(err)
			}
			p.openSender(t)
		})
		during("receiver restarts", func(t *testing.T, _ int) {
			if err := p.receiver.Close(); err != nil {
				t.Error(err)
			}
			p.openReceiver(t)
		})
		during("policy changes", func(t *testing.T, round int) {
			bits := []uint8{7, 3, 2, 6, 1, 5, 4}[round%7]
			for _, dst := range pairViewer {
				if err := errors.Join(p.sender.SetPolicy(dst, bits),
					p.receiver.SetFlow(dst, Flow{DSCP: flowDSCP, Paths: bits})); err != nil {
					t.Error(err)
				}
			}
		})
		p.policy(t, 7)
		during("paths go down and come back", func(t *testing.T, round int) {
			p.setPath(t, round%3+1, false)
			time.Sleep(5 * time.Millisecond)
			p.setPath(t, round%3+1, true)
		})
		during("duplication off and on", func(t *testing.T, round int) { p.policy(t, []uint8{0, 7}[round%2]) })
		p.policy(t, 7)
	}
}

func (p *pair) policy(t testing.TB, bits uint8) {
	t.Helper()
	for _, dst := range pairViewer {
		if err := p.sender.SetPolicy(dst, bits); err != nil {
			t.Error(err)
		}
	}
}

// The programs continue without the process, and a path failure loses nothing.
func TestPairWithoutDaemons(t *testing.T) {
	p := newPair(t)
	p.open(t)
	p.warm(t)
	if err := errors.Join(p.sender.Close(), p.receiver.Close()); err != nil {
		t.Fatal(err)
	}
	p.stream(t, traffic{dst: pairViewer[0], size: 800}, 5000, 100*time.Millisecond).check(t)
	if err := p.b.nl.LinkSetDown(p.b.link(t, "path3")); err != nil {
		t.Fatal(err)
	}
	p.stream(t, traffic{dst: pairViewer[0], size: 800}, 5000, 100*time.Millisecond).check(t)

	looker, err := PinnedReceiver(p.pin)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = looker.Close() }()
	s := mustReceived(t, looker)
	if s.Paths[2].Missing == 0 || s.Paths[0].Missing != 0 || s.Flows[pairViewer[0]][2].Missing == 0 {
		t.Errorf("%+v", s.Paths)
	}
	if _, err := looker.ReadArrivals(t.Context(), make([]Arrival, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("arrivals of PinnedReceiver: %v", err)
	}
	sender, err := PinnedSender(p.pin)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sender.Close() }()
	if _, err := sender.ReadUplink(t.Context()); !errors.Is(err, os.ErrClosed) {
		t.Errorf("uplink of PinnedSender: %v", err)
	}
	if s := mustStats(t, sender); s.Paths[0].Packets == 0 {
		t.Errorf("%+v", s.Paths)
	}
	p.openSender(t) // for the cleanup
	p.openReceiver(t)
}

// Every replica is reported once.
func TestPairArrivals(t *testing.T) {
	p := newPair(t)
	p.open(t)
	p.warm(t)
	ctx, cancel := context.WithCancel(t.Context())
	const length = 528 // IP packet; other lengths are from warm
	byKey := make(map[uint64][]Arrival)
	var read atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]Arrival, 256)
		for {
			n, err := p.receiver.ReadArrivals(ctx, buf)
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				return
			}
			for _, a := range buf[:n] {
				if a.Length == length {
					byKey[a.Key] = append(byKey[a.Key], a)
					read.Add(1)
				}
			}
		}
	})
	c := p.stream(t, traffic{dst: pairViewer[0], size: 500, gso: 4}, 20_000, 300*time.Millisecond)
	c.check(t)
	for end := time.Now().Add(time.Minute); read.Load() < int64(pairPaths*c.sent) && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	wg.Wait()
	if len(byKey) != c.sent {
		t.Errorf("%d keys for %d packets", len(byKey), c.sent)
	}
	for key, arrivals := range byKey {
		slices.SortFunc(arrivals, func(a, b Arrival) int { return a.Path - b.Path })
		passed := 0
		for i, a := range arrivals {
			if a.Path != i+1 || a.Flow != pairViewer[0] || a.ID != arrivals[0].ID {
				t.Fatalf("key %x: %+v", key, arrivals)
			}
			if a.Passed {
				passed++
			}
		}
		if len(arrivals) != pairPaths || passed != 1 {
			t.Fatalf("key %x: %+v", key, arrivals)
		}
	}
}

// The receiver restores the flow's DSCP and keeps the ECN bits.
func TestPairRestoresToS(t *testing.T) {
	p := newPair(t)
	p.open(t)
	p.warm(t)
	for _, dst := range pairViewer {
		h, local := p.from(dst)
		out := h.socket(t, netip.AddrPortFrom(local, 0))
		in := p.viewer.socket(t, netip.AddrPortFrom(dst, 0))
		level, set, get := unix.IPPROTO_IP, unix.IP_TOS, unix.IP_RECVTOS
		if dst.Is6() {
			level, set, get = unix.IPPROTO_IPV6, unix.IPV6_TCLASS, unix.IPV6_RECVTCLASS
		}
		control(t, in, func(fd int) error { return unix.SetsockoptInt(fd, level, get, 1) })
		for ecn := range 4 {
			control(t, out, func(fd int) error { return unix.SetsockoptInt(fd, level, set, 10<<2|ecn) })
			if _, err := out.WriteToUDPAddrPort(fmt.Appendf(nil, "ECN %d, and random %x", ecn, rand.Uint64()),
				in.LocalAddr().(*net.UDPAddr).AddrPort()); err != nil {
				t.Fatal(err)
			}
			b, oob := make([]byte, 100), make([]byte, 100)
			_ = in.SetReadDeadline(time.Now().Add(30 * time.Second))
			_, n, _, _, err := in.ReadMsgUDP(b, oob)
			if err != nil {
				t.Fatal(err)
			}
			control, err := unix.ParseSocketControlMessage(oob[:n])
			if err != nil || len(control) != 1 {
				t.Fatal(control, err)
			}
			if tos := int(control[0].Data[0]); tos != flowDSCP<<2|ecn {
				t.Errorf("%s: ToS %#x, want %#x", dst, tos, flowDSCP<<2|ecn)
			}
		}
	}
}

// TCP works, including GSO packets.
func TestPairTCP(t *testing.T) {
	p := newPair(t)
	p.open(t)
	for _, dst := range pairViewer {
		t.Run(dst.String(), func(t *testing.T) {
			var listener net.Listener
			p.viewer.must(t, func() (err error) {
				listener, err = net.Listen("tcp", netip.AddrPortFrom(dst, 0).String())
				return err
			})
			defer func() { _ = listener.Close() }()
			sum := make(chan []byte, 1)
			go func() {
				defer close(sum)
				conn, err := listener.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = conn.Close() }()
				h := sha256.New()
				if _, err := io.Copy(h, conn); err != nil {
					t.Error(err)
				}
				sum <- h.Sum(nil)
			}()
			var conn net.Conn
			p.source.must(t, func() (err error) {
				conn, err = net.Dial("tcp", listener.Addr().String())
				return err
			})
			defer func() { _ = conn.Close() }()
			data := make([]byte, 8<<20)
			for i := range data {
				data[i] = byte(i >> 16) // long runs of equal bytes, which tails hardly distinguish
			}
			before := mustReceived(t, p.receiver)
			if _, err := conn.Write(data); err != nil {
				t.Fatal(err)
			}
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			want := sha256.Sum256(data)
			if got := <-sum; !bytes.Equal(got, want[:]) {
				t.Error("received data differs")
			}
			raw, _ := conn.(*net.TCPConn).SyscallConn()
			var info *unix.TCPInfo
			_ = raw.Control(
				func(fd uintptr) { info, _ = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) },
			)
			after := mustReceived(t, p.receiver)
			first := after.Paths[0].First + after.Paths[1].First + after.Paths[2].First -
				before.Paths[0].First - before.Paths[1].First - before.Paths[2].First
			t.Logf(
				"%d packets passed, %d retransmissions, %d segments out of order",
				first,
				info.Total_retrans,
				info.Reord_seen,
			)
			if first < uint64(len(data)/1500) {
				t.Errorf("only %d packets were duplicated", first)
			}
		})
	}
}

// Connections close without delay, even over IPv6, where a FIN differs from the preceding ACK in only
// one flag.
func TestPairTCPClose(t *testing.T) {
	const connections = 200
	p := newPair(t)
	for _, h := range []*host{p.source, p.viewer} {
		h.disable(t, "ipv4/tcp_timestamps") // timestamps would usually distinguish the two
	}
	p.open(t)
	p.warm(t)
	for _, dst := range pairViewer {
		t.Run(dst.String(), func(t *testing.T) {
			var listener net.Listener
			p.viewer.must(t, func() (err error) {
				listener, err = net.Listen("tcp", netip.AddrPortFrom(dst, 0).String())
				return err
			})
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					go func() { // answers, and closes after the other end has closed
						defer func() { _ = conn.Close() }()
						_, _ = io.Copy(conn, conn)
					}()
				}
			}()
			defer func() { _ = listener.Close() }()
			var took []time.Duration
			retransmitted := 0
			for range connections {
				var conn net.Conn
				p.source.must(t, func() (err error) {
					conn, err = net.Dial("tcp", listener.Addr().String())
					return err
				})
				b := make([]byte, 100)
				_, err := conn.Write(b)
				if err == nil {
					_, err = io.ReadFull(conn, b)
				}
				start := time.Now()
				if err == nil {
					err = conn.(*net.TCPConn).CloseWrite()
				}
				if err == nil {
					_, err = io.ReadAll(conn)
				}
				if err != nil {
					t.Fatal(err)
				}
				took = append(took, time.Since(start))
				control(t, conn.(syscall.Conn), func(fd int) error {
					info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
					if err == nil && info.Total_retrans > 0 {
						retransmitted++
					}
					return err
				})
				_ = conn.Close()
			}
			slices.Sort(took)
			t.Logf(
				"%d of %d connections retransmitted; closing took p50 %v, p95 %v",
				retransmitted,
				connections,
				took[connections/2],
				took[connections*95/100],
			)
			if retransmitted > connections/10 { // a busy machine may delay an ACK
				t.Errorf("%d of %d connections retransmitted", retransmitted, connections)
			}
		})
	}
}

// A packet with VLAN tags leaves once and untagged, even if it fills the paths' MTU.
func TestPairVLAN(t *testing.T) {
	const mtu, tag = 1500, 4
	for _, clsact := range []bool{false, true} {
		p := newPair(t)
		p.clsact = clsact
		for _, h := range []*host{p.source, p.a} { // room for the tags
			if err := h.nl.LinkSetMTU(h.link(t, "lan"), mtu+2*tag); err != nil {
				t.Fatal(err)
			}
		}
		p.open(t)
		p.warm(t)
		for _, dst := range pairViewer {
			for _, tags := range [][]vlan{{{unix.ETH_P_8021Q, 5}}, {{unix.ETH_P_8021AD, 5}, {unix.ETH_P_8021Q, 6}}} {
				in := p.viewer.socket(t, netip.AddrPortFrom(dst, 0))
				roomy(t, in)
				_, local := p.from(dst)
				f := packet{
					nextHop: [6]byte(p.a.mac(t, "lan")), source: [6]byte(p.source.mac(t, "lan")), tags: tags,
					src: local, dst: dst, proto: unix.IPPROTO_UDP,
				}
				const packets = 50
				var frames [][]byte
				full := mtu - 28
				if dst.Is6() {
					full = mtu - 48
				}
				for n := range uint64(packets) {
					payload := make([]byte, 100)
					if n%2 == 1 {
						payload = make([]byte, full)
					}
					fill(payload, n)
					f.body = udpSummed(local, dst, 999, in.LocalAddr().(*net.UDPAddr).AddrPort().Port(), payload)
					frames = append(frames, f.frame())
				}
				p.source.send(t, "lan", frames...)
				var sent atomic.Int64
				sent.Store(packets)
				c := receive(in, &sent)
				c.sent = packets
				c.check(t)
			}
		}
	}
}

// udpSummed returns a datagram with its checksum.
func udpSummed(src, dst netip.Addr, from, to uint16, payload []byte) []byte {
	b := udp(from, to, payload)
	pseudo := append(src.AsSlice(), dst.AsSlice()...)
	pseudo = append(pseudo, 0, 0, b[4], b[5], 0, 0, 0, unix.IPPROTO_UDP)
	sum := ^sum16(append(pseudo, b...))
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(b[6:], sum)
	return b
}

// Without device GSO, the source's kernel segments packets before the sender sees them. The result
// is the same.
func TestPairGSOOff(t *testing.T) {
	p := newPair(t)
	p.open(t)
	p.warm(t)
	for _, on := range []bool{true, false} {
		segments := 64
		if !on {
			segments = 1
		}
		if err := p.source.nl.LinkSetGSOMaxSegs(p.source.link(t, "lan"), segments); err != nil {
			t.Fatal(err)
		}
		before := mustStats(t, p.sender)
		c := p.stream(t, traffic{dst: pairViewer[0], size: 1000, gso: 10}, 20_000, 200*time.Millisecond)
		c.check(t)
		after := mustStats(t, p.sender)
		packets := after.Duplicated - before.Duplicated
		if segments := after.Paths[0].Packets - before.Paths[0].Packets; segments != uint64(c.sent) {
			t.Errorf("GSO %v: %d segments of %d", on, segments, c.sent)
		}
		if whole := packets == uint64(c.sent/10); whole != on {
			t.Errorf("GSO %v: %d packets for %d datagrams", on, packets, c.sent)
		}
	}
}
