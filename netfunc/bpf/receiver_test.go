package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// Verdicts of XDP programs (linux/bpf.h).
const (
	xdpDrop = uint32(1)
	xdpPass = uint32(2)
)

// gate is a receiver on a test bench, where the test runs its program on packets.
type gate struct {
	*Receiver
	program *ebpf.Program
}

func newGate(t testing.TB, o ReceiverOptions) *gate {
	t.Helper()
	if o.Stale == 0 {
		o.Stale = maxStale // a stall of the machine must not make packets stale
	}
	spec, err := receiverSpec(o)
	if err == nil {
		err = set(spec, map[string]any{
			receiverVarSeed:       uint64(0x0123456789abcdef),
			receiverVarBucketMask: spec.Maps[receiverMapReplicas].MaxEntries - 1,
		})
	}
	c := unpinned(t, spec, err)
	g := &gate{&Receiver{maps: c.Maps, done: make(chan struct{})}, c.Programs[receiverProgEliminate]}
	if g.arrivals, err = ringbuf.NewReader(c.Maps[receiverMapArrivals]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.arrivals.Close() })
	g.arrivals.SetDeadline(time.Now())
	for _, dst := range []netip.Addr{viewer4, viewer6} {
		if err := g.SetFlow(dst, Flow{DSCP: 46, Paths: pathBits(1, 2, 3)}); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// run runs the program on a frame.
func (g *gate) run(t testing.TB, frame []byte) (verdict uint32, left []byte) {
	t.Helper()
	run := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256)}
	verdict, err := g.program.Run(&run)
	if err != nil {
		t.Fatal(err)
	}
	return verdict, run.DataOut
}

// on returns a packet's replica on a path.
func (p packet) on(path int) packet {
	p.tos = Codepoint(path)<<2 | p.tos&3
	return p
}

func mustReceived(t testing.TB, r *Receiver) ReceiverStats {
	t.Helper()
	stats, err := r.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

// media4 and media6 return packets to the viewer, distinguished by n.
func media4(n uint64) packet {
	return packet{
		src: relay4, dst: viewer4, tos: 2, id: uint16(n), fragment: 0x4000, proto: unix.IPPROTO_UDP,
		body: udp(4443, 50000, binary.BigEndian.AppendUint64(make([]byte, 40), n*0x9e3779b97f4a7c15)),
	}
}

func media6(n uint64) packet {
	p := media4(n)
	p.src, p.dst, p.id, p.fragment, p.label = relay6, viewer6, 0, 0, 0xabcde
	return p
}

// The first replica passes with the flow's DSCP; the others are dropped.
func TestEliminate(t *testing.T) {
	g := newGate(t, ReceiverOptions{})
	with := func(p packet, change func(*packet)) packet { change(&p); return p }
	tcp4 := with(media4(1), func(p *packet) { p.proto, p.body = unix.IPPROTO_TCP, tcp(1, 2, 3, 4, []byte("abc")) })
	tests := []struct {
		name   string
		packet packet
	}{
		{"IPv4", media4(1000)},
		{"IPv6", media6(1000)},
		{"no ECN", with(media4(1001), func(p *packet) { p.tos = 0 })},
		{"all ECN bits", with(media6(1001), func(p *packet) { p.tos = 3 })},
		{"VLAN", with(media4(1002), func(p *packet) { p.tags = []vlan{{0x8100, 7}} })},
		{"QinQ", with(media6(1002), func(p *packet) { p.tags = []vlan{{0x88a8, 7}, {0x8100, 8}} })},
		{"options", with(media4(1003), func(p *packet) { p.options = []byte{7, 7, 4, 0, 0, 0, 0, 0} })},
		{"all options", with(media4(1004), func(p *packet) { p.options = make([]byte, 40) })},
		{"first fragment", with(media4(1005), func(p *packet) { p.fragment = 0x2000 })},
		{"last fragment", with(media4(1005), func(p *packet) { p.fragment = 185 })},
		{"TCP", tcp4},
		{"TCP, IPv6", with(tcp4, func(p *packet) { p.src, p.dst = relay6, viewer6 })},
		{"no payload, UDP", with(media4(1006), func(p *packet) { p.body = udp(1, 2, nil) })},
		{"one byte, UDP", with(media4(1007), func(p *packet) { p.body = udp(1, 2, []byte{1}) })},
		{"empty after IPv4", with(media4(1008), func(p *packet) { p.proto, p.body = 59, nil })},
		{"empty after IPv6", with(media6(1008), func(p *packet) { p.proto, p.body = 59, nil })},
		{
			"ICMP",
			with(
				media4(1009),
				func(p *packet) { p.proto, p.body = unix.IPPROTO_ICMP, []byte{8, 0, 1, 1, 0, 1, 0, 1, 9, 9} },
			),
		},
		{"unknown protocol", with(media4(1010), func(p *packet) { p.proto, p.body = 253, []byte("abcdef") })},
		{"fragment, IPv6", with(media6(1011), func(p *packet) {
			p.extensions, p.ext = fragmentHeader(1480, 77), unix.IPPROTO_FRAGMENT
		})},
		{"extensions", with(media6(1012), func(p *packet) {
			p.extensions, p.ext = append(
				[]byte{unix.IPPROTO_DSTOPTS, 1},
				append(make([]byte, 14), unix.IPPROTO_UDP, 0, 0, 0, 0, 0, 0, 0)...), unix.IPPROTO_HOPOPTS
		})},
		{"padded frame", with(media4(1013), func(p *packet) { p.body, p.padding = udp(1, 2, []byte("x")), 17 })},
		{"jumbo", with(media4(1014), func(p *packet) { p.body = udp(1, 2, make([]byte, 3000)) })},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before := mustReceived(t, g.Receiver)
			verdict, left := g.run(t, test.packet.on(2).frame())
			restored := test.packet
			restored.tos = 46<<2 | restored.tos&3
			if verdict != xdpPass || !bytes.Equal(left, restored.frame()) {
				t.Errorf("first: verdict %d\n% x, want\n% x", verdict, left, restored.frame())
			}
			later := test.packet.on(1)
			later.ttl = 40 // paths differ in hop count
			if verdict, left := g.run(t, later.frame()); verdict != xdpDrop || !bytes.Equal(left, later.frame()) {
				t.Errorf("second: verdict %d", verdict)
			}
			later = test.packet.on(3)
			later.tags = []vlan{{0x8100, 100}} // and in VLAN tags
			if verdict, _ := g.run(t, later.frame()); verdict != xdpDrop {
				t.Errorf("third: verdict %d", verdict)
			}
			after := mustReceived(t, g.Receiver)
			length := uint64(len(test.packet.frame()) - 14 - 4*len(test.packet.tags) - test.packet.padding)
			for i, want := range []ReceiverPath{
				{Late: 1, Bytes: length},
				{First: 1, Bytes: length},
				{Late: 1, Bytes: length},
			} {
				got := after.Paths[i]
				got.First -= before.Paths[i].First
				got.Late -= before.Paths[i].Late
				got.Rogue -= before.Paths[i].Rogue
				got.Bytes -= before.Paths[i].Bytes
				if got != want {
					t.Errorf("path %d: counted %+v, want %+v", i+1, got, want)
				}
			}
		})
	}
}

// If a path changes bytes of the key, the receiver does not recognize the replica. A packet that is
// damaged elsewhere counts as a replica, possibly as the first one.
func TestEliminateChangedOnTheWay(t *testing.T) {
	g := newGate(t, ReceiverOptions{})
	verdicts := func(name string, want uint32, packets ...packet) {
		t.Helper()
		for i, p := range packets {
			if v, _ := g.run(t, p.frame()); v != want {
				t.Errorf("%s, packet %d: verdict %d, want %d", name, i, v, want)
			}
		}
	}
	change := func(p packet, change func(*packet)) packet {
		p.body = bytes.Clone(p.body)
		change(&p)
		return p
	}
	plain := media4(1)
	plain.fragment, plain.body = 0, udp(1, 2, bytes.Repeat([]byte("payload!"), 100))
	pieces := func(path int) []packet {
		return []packet{
			change(plain.on(path), func(p *packet) { p.fragment, p.body = 0x2000, p.body[:400] }),
			change(plain.on(path), func(p *packet) { p.fragment, p.body = 400/8, p.body[400:] }),
		}
	}
	verdicts("whole", xdpPass, plain.on(1))
	verdicts("fragmented on path 2", xdpPass, pieces(2)...)
	verdicts("fragmented alike on path 3", xdpDrop, pieces(3)...)
	verdicts("whole again", xdpDrop, plain.on(4))

	damaged := func(n uint64, at func(body []byte) int) packet {
		return change(media4(n), func(p *packet) { p.body[at(p.body)] ^= 1 })
	}
	middle := func(b []byte) int { return len(b) / 2 }
	verdicts("damaged in the middle, first", xdpPass, damaged(2, middle).on(1))
	verdicts("intact after it", xdpDrop, media4(2).on(2))
	last := func(b []byte) int { return len(b) - 1 }
	verdicts("damaged in its key, first", xdpPass, damaged(3, last).on(1))
	verdicts("intact after that", xdpPass, media4(3).on(2))
}

// Packets that differ slightly are all first replicas. Packets that differ only in fields that
// paths may change are replicas.
func TestEliminateTells(t *testing.T) {
	g := newGate(t, ReceiverOptions{})
	with := func(p packet, change func(*packet)) packet {
		p.body = bytes.Clone(p.body)
		change(&p)
		return p
	}
	tcp4 := packet{src: relay4, dst: viewer4, proto: unix.IPPROTO_TCP, body: tcp(1, 2, 3, 4, make([]byte, 20))}
	different := map[string]packet{
		"base":              media4(1),
		"ID":                with(media4(1), func(p *packet) { p.id++ }),
		"DF":                with(media4(1), func(p *packet) { p.fragment = 0 }),
		"more fragments":    with(media4(1), func(p *packet) { p.fragment = 0x2000 }),
		"fragment offset":   with(media4(1), func(p *packet) { p.fragment = 9 }),
		"source":            with(media4(1), func(p *packet) { p.src = addr("192.0.2.2") }),
		"source port":       with(media4(1), func(p *packet) { p.body[0]++ }),
		"destination port":  with(media4(1), func(p *packet) { p.body[3]++ }),
		"protocol":          with(media4(1), func(p *packet) { p.proto = 253 }),
		"first of payload":  with(media4(1), func(p *packet) { p.body[8]++ }),
		"last of payload":   with(media4(1), func(p *packet) { p.body[len(p.body)-1]++ }),
		"8th from the end":  with(media4(1), func(p *packet) { p.body[len(p.body)-8]++ }),
		"length":            with(media4(1), func(p *packet) { p.body = p.body[:len(p.body)-1] }),
		"TCP":               tcp4,
		"TCP, sequence":     with(tcp4, func(p *packet) { p.body[7]++ }),
		"TCP, acknowledged": with(tcp4, func(p *packet) { p.body[11]++ }),
		"TCP, FIN":          with(tcp4, func(p *packet) { p.body[13] |= 1 }),
		"TCP, window":       with(tcp4, func(p *packet) { p.body[15]++ }),
		"TCP, time stamp": with(tcp4, func(p *packet) {
			p.body = append(tcpOptions(p.body, []byte{1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0}), make([]byte, 8)...)
		}),
		"TCP, next time stamp": with(tcp4, func(p *packet) {
			p.body = append(tcpOptions(p.body, []byte{1, 1, 8, 10, 0, 0, 0, 2, 0, 0, 0, 0}), make([]byte, 8)...)
		}),
		"TCP, last option": with(
			tcp4,
			func(p *packet) { p.body = append(tcpOptions(p.body, append(make([]byte, 39), 1)), make([]byte, 8)...) },
		),
		"TCP, no option": with(
			tcp4,
			func(p *packet) { p.body = append(tcpOptions(p.body, make([]byte, 40)), make([]byte, 8)...) },
		),
		"IPv6":               media6(1),
		"IPv6, label":        with(media6(1), func(p *packet) { p.label++ }),
		"IPv6, source":       with(media6(1), func(p *packet) { p.src = addr("2001:db8::2") }),
		"IPv6, port":         with(media6(1), func(p *packet) { p.body[1]++ }),
		"IPv6, fragment":     with(media6(1), func(p *packet) { p.ext, p.extensions = 44, fragmentHeader(8, 1) }),
		"IPv6, other one":    with(media6(1), func(p *packet) { p.ext, p.extensions = 44, fragmentHeader(8, 2) }),
		"IPv6, other offset": with(media6(1), func(p *packet) { p.ext, p.extensions = 44, fragmentHeader(16, 1) }),
		"IPv6, middle":       with(media6(1), func(p *packet) { p.body[len(p.body)/2]++ }),
		"IPv6, after head":   with(media6(1), func(p *packet) { p.body[16]++ }),
		"IPv6, before tail":  with(media6(1), func(p *packet) { p.body[len(p.body)-9]++ }),
		"short":              with(media4(1), func(p *packet) { p.body = udp(1, 2, []byte{1, 2}) }),
		"short, other byte":  with(media4(1), func(p *packet) { p.body = udp(1, 2, []byte{1, 3}) }),
		"short, first byte":  with(media4(1), func(p *packet) { p.body = udp(1, 2, []byte{2, 3}) }),
	}
	for name, p := range different {
		if verdict, _ := g.run(t, p.on(1).frame()); verdict != xdpPass {
			t.Errorf("%s: treated as a replica", name)
		}
	}
	same := map[string]packet{
		"UDP checksum":        with(media4(1), func(p *packet) { p.body[6], p.body[7] = 1, 2 }),
		"UDP checksum, short": with(media4(1), func(p *packet) { p.body = udp(1, 2, []byte{1, 2}); p.body[7] = 9 }),
		"TCP checksum":        with(tcp4, func(p *packet) { p.body[16], p.body[17] = 1, 2 }),
		"TTL":                 with(media4(1), func(p *packet) { p.ttl = 3 }),
		"hop limit":           with(media6(1), func(p *packet) { p.ttl = 3 }),
		"congestion":          with(media4(1), func(p *packet) { p.tos = 3 }),
		"next hop":            with(media4(1), func(p *packet) { p.nextHop = [6]byte{1, 2, 3, 4, 5, 6} }),
	}
	for name, p := range same {
		if verdict, _ := g.run(t, p.on(2).frame()); verdict != xdpDrop {
			t.Errorf("%s: not treated as a replica", name)
		}
	}
}

// IPv6 packets have no ID. Equal packets on one path are distinct packets, and the nth on one path
// matches the nth on every other path.
func TestEliminateEqual(t *testing.T) {
	fin := func(p packet) packet {
		p.proto, p.body = unix.IPPROTO_TCP, tcp(1, 2, 3, 4, nil)
		return p
	}
	fragment := media6(2)
	fragment.ext, fragment.extensions = unix.IPPROTO_FRAGMENT, fragmentHeader(8, 1)
	for name, c := range map[string]struct {
		packet packet
		paths  string // paths of the replicas, in order of arrival
		pass   string // 1 = passes
	}{
		"in step":                   {media6(1), "112233112233", "110000110000"},
		"one path lags":             {media6(1), "1111222211", "1111000011"},
		"the first is lost on one":  {media6(1), "121122", "101100"},
		"TCP":                       {fin(media6(1)), "112211", "110011"},
		"too many within staleness": {media6(1), "11111111111", "11111111000"},
		"IPv4 has an ID":            {media4(1), "112211", "100000"},
		"IPv6 fragments have one":   {fragment, "112211", "100000"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, ReceiverOptions{Stale: 30 * time.Second})
			for i, path := range c.paths {
				verdict, _ := g.run(t, c.packet.on(int(path-'0')).frame())
				if passed := verdict == xdpPass; passed != (c.pass[i] == '1') {
					t.Fatalf("replica %d of %s: passed %v, want %s", i, c.paths, passed, c.pass)
				}
			}
		})
	}
}

// IPv6 datagrams with equal heads and tails each pass once, for every length and position of the
// difference between them.
func TestEliminateAlike(t *testing.T) {
	g := newGate(t, ReceiverOptions{Stale: 30 * time.Second})
	for _, length := range []int{17, 33, 64, 1200} {
		for at := 8; at < length-8; at += 1 + length/10 {
			p := media6(1)
			p.body = udp(4443, 50000, make([]byte, length))
			p.body[8+at] = 1
			if verdict, _ := g.run(t, p.on(1).frame()); verdict != xdpPass {
				t.Fatalf("%d bytes, different at %d: treated as a replica", length, at)
			}
			if verdict, _ := g.run(t, p.on(2).frame()); verdict != xdpDrop {
				t.Fatalf("%d bytes, different at %d: its replica passes", length, at)
			}
		}
	}
}

// No relation between two words of a payload makes different packets equal, since the hash lanes do
// not cancel out.
func TestEliminateLanes(t *testing.T) {
	relations := []struct {
		name string
		of   func(uint64) uint64
	}{
		{"equal", func(v uint64) uint64 { return v }},
		{"inverted", func(v uint64) uint64 { return ^v }},
		{"negative", func(v uint64) uint64 { return -v }},
		{"doubled", func(v uint64) uint64 { return v << 1 }},
		{"halved", func(v uint64) uint64 { return v >> 1 }},
		{"rotated by 16 bits", func(v uint64) uint64 { return v<<16 | v>>48 }},
		{"rotated by 32 bits", func(v uint64) uint64 { return v<<32 | v>>32 }},
	}
	for _, relation := range relations {
		t.Run(relation.name, func(t *testing.T) {
			g := newGate(t, ReceiverOptions{Stale: 30 * time.Second})
			for _, length := range []int{32, 64} {
				for pair := range 16 {
					one, other := pair/4, pair%4
					for n := uint64(1); one != other && n < 5; n++ {
						p := media6(1)
						p.label, p.proto, p.body = uint32(pair), 253, make([]byte, length)
						v := n * 0x0123456789abcdef
						binary.LittleEndian.PutUint64(p.body[8*one:], v)
						binary.LittleEndian.PutUint64(p.body[8*other:], relation.of(v))
						// an equal packet on the same path would pass
						if verdict, _ := g.run(t, p.on(int(n)).frame()); verdict != xdpPass {
							t.Errorf(
								"%d bytes, words %d and %d, packet %d: treated as a replica",
								length,
								one,
								other,
								n,
							)
						}
					}
				}
			}
		})
	}
}

// Packets that the receiver cannot handle pass unchanged and are counted by reason.
func TestEliminatePasses(t *testing.T) {
	g := newGate(t, ReceiverOptions{})
	none := func(ReceiverStats) uint64 { return 0 }
	short := func(s ReceiverStats) uint64 { return s.Short }
	unknown := func(s ReceiverStats) uint64 { return s.Unknown }
	cut := func(p packet, n int) []byte { return p.on(1).frame()[:n] }
	tests := []struct {
		name  string
		frame []byte
		count func(ReceiverStats) uint64
	}{
		{"no mark", media4(1).frame(), none},
		{"DSCP 0x23, above the paths'", func() []byte { p := media4(1); p.tos = 0x23 << 2; return p.frame() }(), none},
		{"DSCP 8", func() []byte { p := media4(1); p.tos = 8 << 2; return p.frame() }(), none},
		{"signalling's", func() []byte { p := media4(1); p.tos = 0xfc; return p.frame() }(), none},
		{
			"unknown destination",
			func() []byte { p := media4(1).on(1); p.dst = addr("198.51.100.9"); return p.frame() }(),
			unknown,
		},
		{
			"unknown destination, IPv6",
			func() []byte { p := media6(1).on(1); p.dst = addr("2001:db8::9"); return p.frame() }(),
			unknown,
		},
		{"ARP", append(make([]byte, 12), append([]byte{8, 6}, make([]byte, 28)...)...), none},
		{"three tags", func() []byte {
			p := media4(1).on(1)
			p.tags = []vlan{{0x88a8, 1}, {0x8100, 2}, {0x8100, 3}}
			return p.frame()
		}(), none},
		{"Ethernet alone", cut(media4(1), 14), none},
		{"truncated in IPv4", cut(media4(1), 14+19), none},
		{"truncated in IPv6", cut(media6(1), 14+39), none},
		{"truncated in UDP", cut(media4(1), 14+24), short},
		{"truncated in the payload", cut(media4(1), 14+60), short},
		{"truncated in the payload, IPv6", cut(media6(1), 14+70), short},
		{"truncated in the options", func() []byte {
			p := media4(1)
			p.options, p.body = make([]byte, 40), nil
			return cut(p, 14+40)
		}(), short},
		{"header longer than the packet", func() []byte {
			f := media4(1).on(1).frame()
			binary.BigEndian.PutUint16(f[16:], 19)
			return f
		}(), short},
		{"header length 16", func() []byte { f := media4(1).on(1).frame(); f[14] = 0x44; return f }(), short},
		{"length 0", func() []byte { f := media4(1).on(1).frame(); f[16], f[17] = 0, 0; return f }(), short},
		{"length 65535", func() []byte { f := media4(1).on(1).frame(); f[16], f[17] = 255, 255; return f }(), short},
		{"extension beyond the end", func() []byte {
			p := media6(1).on(1)
			p.ext, p.extensions = unix.IPPROTO_HOPOPTS, []byte{17, 200, 0, 0, 0, 0, 0, 0}
			return p.frame()
		}(), short},
		{"truncated in a tag", append(make([]byte, 12), 0x81, 0, 1), none},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for range 2 { // it never becomes a replica
				before := mustReceived(t, g.Receiver)
				verdict, left := g.run(t, test.frame)
				after := mustReceived(t, g.Receiver)
				if verdict != xdpPass || !bytes.Equal(left, test.frame) {
					t.Errorf("verdict %d\n% x, want\n% x", verdict, left, test.frame)
				}
				counted := after.Short + after.Unknown - before.Short - before.Unknown
				if test.count(ReceiverStats{Short: 1, Unknown: 1}) != counted ||
					test.count(after)-test.count(before) != counted {
					t.Errorf("counted %+v, before %+v", after, before)
				}
			}
		})
	}
}

// An equal packet after the stale time is a new packet.
func TestEliminateStale(t *testing.T) {
	const stale = 20 * time.Millisecond
	g := newGate(t, ReceiverOptions{Stale: stale})
	frame := media4(1).on(1).frame()
	for rounds := 0; rounds < 3; time.Sleep(30 * time.Millisecond) {
		start := time.Now()
		if verdict, _ := g.run(t, frame); verdict != xdpPass {
			t.Fatalf("verdict %d", verdict)
		}
		switch verdict, _ := g.run(t, media4(1).on(2).frame()); {
		case verdict == xdpDrop:
			rounds++
		case time.Since(start) < stale: // otherwise the machine stalled
			t.Fatal("replica passed")
		}
	}
	if s := mustReceived(t, g.Receiver); s.Evicted != 0 {
		t.Errorf("%+v", s)
	}
}

// A full bucket evicts and counts the oldest packet.
func TestEliminateEvicts(t *testing.T) {
	g := newGate(t, ReceiverOptions{TableSize: 8})
	for n := range uint64(8) {
		g.run(t, media4(n).on(1).frame())
		if n == 0 {
			time.Sleep(10 * time.Millisecond) // the table's clock has steps of 4.2 ms
		}
	}
	for n := range uint64(8) {
		if verdict, _ := g.run(t, media4(n).on(2).frame()); verdict != xdpDrop {
			t.Errorf("packet %d was forgotten", n)
		}
	}
	if s := mustReceived(t, g.Receiver); s.Evicted != 0 {
		t.Errorf("%+v", s)
	}
	if verdict, _ := g.run(t, media4(8).on(1).frame()); verdict != xdpPass {
		t.Error("the ninth packet did not pass")
	}
	if s := mustReceived(t, g.Receiver); s.Evicted != 1 {
		t.Errorf("%+v", s)
	}
	for n := uint64(1); n <= 8; n++ {
		if verdict, _ := g.run(t, media4(n).on(3).frame()); verdict != xdpDrop {
			t.Errorf("packet %d was forgotten", n)
		}
	}
	if verdict, _ := g.run(t, media4(0).on(3).frame()); verdict != xdpPass {
		t.Error("the evicted packet was not the oldest")
	}
}

// Packets from slightly in the future (by another CPU's clock) and from before a wrap of the table's
// clock are handled correctly.
func TestEliminateClock(t *testing.T) {
	const unit, turn = 1 << 22, 1 << 14 // nanoseconds; units
	g := newGate(t, ReceiverOptions{TableSize: 8, Stale: time.Second})
	for name, test := range map[string]struct {
		units int64
		want  uint32
	}{
		"now":               {0, xdpDrop},
		"16 ms ahead":       {4, xdpDrop},
		"240 ms ahead":      {58, xdpDrop},
		"400 ms ahead":      {96, xdpPass},
		"900 ms ago":        {-215, xdpDrop},
		"1.1 s ago":         {-262, xdpPass},
		"half a wrap ago":   {-turn / 2, xdpPass},
		"almost a wrap ago": {-turn + 10, xdpPass},
		"a turn ago":        {-turn, xdpPass},
		"a turn and 0.5 s":  {-turn - 120, xdpPass},
		"ten wraps ago":     {-10 * turn, xdpPass},
	} {
	retry:
		started := Now()
		// Start with a table that holds only this packet, shifted in time.
		if err := g.maps[receiverMapReplicas].Put(uint32(0), [8]uint64{}); err != nil {
			t.Fatal(err)
		}
		g.run(t, media4(1).on(1).frame())
		now := int64(Now()) / unit
		var slots [8]uint64
		if err := g.maps[receiverMapReplicas].Lookup(uint32(0), &slots); err != nil {
			t.Fatal(err)
		}
		for i, s := range slots {
			if s == 0 {
				continue
			}
			at := now - (now-int64(s>>50))&(turn-1) // not wrapped
			to := at + test.units
			slots[i] = uint64(to)<<50 | (s^uint64(at/turn)^uint64(to/turn))&(1<<50-1)
		}
		if err := g.maps[receiverMapReplicas].Put(uint32(0), slots); err != nil {
			t.Fatal(err)
		}
		verdict, _ := g.run(t, media4(1).on(2).frame())
		if Now()-started > 50*time.Millisecond {
			goto retry // the machine stalled, which shifts the packet's age
		}
		if verdict != test.want {
			t.Errorf("%s: verdict %d", name, verdict)
		}
	}
}

// The packet ID wraps and repeats, but the rest of the key differs.
func TestEliminateIDWrap(t *testing.T) {
	g := newGate(t, ReceiverOptions{})
	p := media4(0)
	for n := range uint64(3 * 4) {
		p.id = uint16(65530 + n%4) // wraps three times
		p.body = udp(4443, 50000, binary.BigEndian.AppendUint64(make([]byte, 1200), n*0x9e3779b97f4a7c15))
		if verdict, _ := g.run(t, p.on(1).frame()); verdict != xdpPass {
			t.Errorf("packet %d did not pass", n)
		}
		if verdict, _ := g.run(t, p.on(2).frame()); verdict != xdpDrop {
			t.Errorf("packet %d passed twice", n)
		}
	}
}

// Replicas on paths outside the set, or repeated on one path, are eliminated like others and
// counted as rogue.
func TestEliminateRogue(t *testing.T) {
	g := newGate(t, ReceiverOptions{})
	verdicts := []struct {
		n       uint64
		path    int
		verdict uint32
	}{{1, 5, xdpPass}, {1, 1, xdpDrop}, {1, 5, xdpDrop}, {1, 1, xdpDrop}, {1, 8, xdpDrop}, {2, 2, xdpPass}, {
		2, 2,
		xdpDrop,
	}}
	for i, v := range verdicts {
		if verdict, _ := g.run(t, media4(v.n).on(v.path).frame()); verdict != v.verdict {
			t.Errorf("replica %d: verdict %d", i, verdict)
		}
	}
	s := mustReceived(t, g.Receiver)
	for path, want := range map[int]ReceiverPath{
		1: {Late: 2, Rogue: 1, Missing: 1}, 2: {
			First: 1, Late: 1, Rogue: 1,
			Missing: 1,
		}, 3: {Missing: 2}, 5: {First: 1, Late: 1, Rogue: 3}, 8: {Late: 1, Rogue: 1},
	} {
		got := s.Paths[path-1]
		got.Bytes = 0
		if got != want {
			t.Errorf("path %d: %+v, want %+v", path, got, want)
		}
	}
	arrivals := make([]Arrival, 10)
	n, err := g.ReadArrivals(t.Context(), arrivals)
	if err != nil || n != len(verdicts) {
		t.Fatalf("%d arrivals, %v", n, err)
	}
	want := []Verdict{Rogue, Late, Rogue, Rogue, Rogue, First, Rogue}
	for i, a := range arrivals[:n] {
		if a.Verdict != want[i] || a.Passed != (verdicts[i].verdict == xdpPass) || a.Path != verdicts[i].path {
			t.Errorf("arrival %d: %+v", i, a)
		}
	}
}

func TestArrivals(t *testing.T) {
	g := newGate(t, ReceiverOptions{})
	before := Now()
	for _, p := range []packet{media4(500).on(3), media4(500).on(1), media6(501).on(2)} {
		g.run(t, p.frame())
	}
	after := Now()
	var got []Arrival
	buf := make([]Arrival, 2) // smaller than the number of arrivals
	for len(got) < 3 {
		n, err := g.ReadArrivals(t.Context(), buf)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, buf[:n]...)
	}
	if got[0].Key != got[1].Key || got[0].Key == got[2].Key {
		t.Errorf("keys %x %x %x", got[0].Key, got[1].Key, got[2].Key)
	}
	want := []Arrival{
		{Flow: viewer4, Path: 3, ID: 500, Length: 76, Verdict: First, Passed: true},
		{Flow: viewer4, Path: 1, ID: 500, Length: 76, Verdict: Late},
		{Flow: viewer6, Path: 2, ID: 0, Length: 96, Verdict: First, Passed: true},
	}
	for i, a := range got {
		if a.Time < before || a.Time > after {
			t.Errorf("time %v is not between %v and %v", a.Time, before, after)
		}
		a.Key, a.Time = 0, 0
		if a != want[i] {
			t.Errorf("%+v, want %+v", a, want[i])
		}
	}
}

// A full arrival ring does not affect packets.
func TestArrivalRingFull(t *testing.T) {
	g := newGate(t, ReceiverOptions{ArrivalRing: 4096})
	const packets = 200
	for n := range uint64(packets) {
		if verdict, _ := g.run(t, media4(n).on(1).frame()); verdict != xdpPass {
			t.Fatalf("packet %d did not pass", n)
		}
		if verdict, _ := g.run(t, media4(n).on(2).frame()); verdict != xdpDrop {
			t.Fatalf("packet %d passed twice", n)
		}
	}
	buf := make([]Arrival, 1000)
	n, err := g.ReadArrivals(t.Context(), buf)
	if err != nil {
		t.Fatal(err)
	}
	if s := mustReceived(t, g.Receiver); s.RingFull != 2*packets-uint64(n) {
		t.Errorf("%d arrivals read, %d lost", n, s.RingFull)
	}
}

func TestFlows(t *testing.T) {
	g := newGate(t, ReceiverOptions{})
	send := func(n uint64, paths ...int) {
		for _, path := range paths {
			g.run(t, media4(n).on(path).frame())
		}
	}
	missing := func(want ...uint64) {
		t.Helper()
		s := mustReceived(t, g.Receiver)
		for i, w := range want {
			if got := s.Flows[viewer4][i].Missing; got != w {
				t.Errorf("path %d: %d missing, want %d", i+1, got, w)
			}
		}
	}
	send(1, 1, 2, 3)
	send(2, 1, 3)
	missing(0, 1, 0)
	send(3, 3, 1)
	missing(0, 2, 0)
	// Path 2 leaves and path 4 joins. Earlier packets do not count as missing on path 4.
	if err := g.SetFlow(viewer4, Flow{DSCP: 0, Paths: pathBits(1, 3, 4)}); err != nil {
		t.Fatal(err)
	}
	missing(0, 0, 0, 0)
	send(4, 1, 3)
	missing(0, 0, 0, 1)

	flows, err := g.Flows()
	if err != nil || len(flows) != 2 || flows[viewer4] != (Flow{0, pathBits(1, 3, 4)}) ||
		flows[viewer6] != (Flow{46, 7}) {
		t.Errorf("%+v, %v", flows, err)
	}
	before := mustReceived(t, g.Receiver).Paths[0]
	if err := errors.Join(g.RemoveFlow(viewer4), g.RemoveFlow(viewer4)); err != nil {
		t.Fatal(err)
	}
	if after := mustReceived(t, g.Receiver).Paths[0]; after != before {
		t.Errorf("counters of a removed flow: %+v, before %+v", after, before)
	}
	send(5, 1, 1)
	if s := mustReceived(t, g.Receiver); s.Unknown != 2 {
		t.Errorf("%+v", s)
	}
	// A new flow at the same index does not inherit counters or arrivals.
	if err := g.SetFlow(addr("198.51.100.77"), Flow{Paths: 1}); err != nil {
		t.Fatal(err)
	}
	if s := mustReceived(t, g.Receiver); s.Flows[addr("198.51.100.77")] != [MaxPaths]ReceiverPath{} ||
		s.Paths[0] != before {
		t.Errorf("%+v", s)
	}
	buf := make([]Arrival, 100)
	n, err := g.ReadArrivals(t.Context(), buf)
	if err != nil || n == 0 || buf[0].Flow.IsValid() {
		t.Errorf("%+v, %v", buf[:n], err)
	}

	for dst, f := range map[netip.Addr]Flow{
		addr("::"): {}, addr("fe80::1%lo"): {}, addr("10.0.0.1"): {DSCP: 64},
		{}: {},
	} {
		if g.SetFlow(dst, f) == nil {
			t.Errorf("flow %v %+v was accepted", dst, f)
		}
	}
}

func TestFlowsFull(t *testing.T) {
	g := newGate(t, ReceiverOptions{})
	dst := addr("10.0.0.0")
	for i := 2; i < MaxFlows; i++ {
		dst = dst.Next()
		// Add the flow as SetFlow would, but without searching for a free index each time.
		if err := g.maps[receiverMapFlows].Put(addressKey(dst), receiverFlow{Id: uint32(i)}); err != nil {
			t.Fatal(err)
		}
	}
	err := g.SetFlow(dst.Next(), Flow{})
	if !errors.Is(err, ErrMapFull) {
		t.Errorf("one flow too many: %v", err)
	}
	if err := errors.Join(g.RemoveFlow(dst), g.SetFlow(dst.Next(), Flow{})); err != nil {
		t.Error(err)
	}
}

func TestReceiverOptions(t *testing.T) {
	for i, o := range []ReceiverOptions{{Stale: time.Millisecond}, {Stale: time.Minute}, {TableSize: 1<<25 + 1}} {
		if _, err := receiverSpec(o); err == nil {
			t.Errorf("options %d were accepted", i)
		}
	}
	if _, err := OpenReceiver(ReceiverOptions{Pin: "/tmp/nowhere", Interfaces: []string{"hb-none"}}); err == nil {
		t.Error("a nonexistent interface was accepted")
	}
	for n, want := range map[uint32]uint32{1: 1, 2: 2, 3: 4, 1 << 17: 1 << 17, 1<<17 + 1: 1 << 18} {
		if got := powerOfTwo(n); got != want {
			t.Errorf("powerOfTwo(%d) = %d", n, got)
		}
	}
}

func TestCodepoints(t *testing.T) {
	for path := 1; path <= MaxPaths; path++ {
		dscp := Codepoint(path)
		if got, ok := pathOf(dscp); !ok || got != path || dscp&3 != 3 || dscp > 31 {
			t.Errorf("path %d: DSCP %d, path %d, %v", path, dscp, got, ok)
		}
	}
	for dscp := range uint8(64) {
		if path, ok := pathOf(dscp); ok && Codepoint(path) != dscp {
			t.Error(fmt.Sprint("DSCP ", dscp, " marks path ", path))
		}
	}
}

// A frame to another Ethernet address, which the stack drops, does not count as the first replica.
func TestMisaddressed(t *testing.T) {
	g := newGate(t, ReceiverOptions{})
	p := media4(1).on(1)
	const loopback = 1 // the ingress interface of test runs
	ours := receiverInterface{Address: p.nextHop}
	other := ours
	other.Address[5] ^= 1
	if err := g.setAddresses(map[uint32]receiverInterface{loopback: other, 7: ours}); err != nil {
		t.Fatal(err)
	}
	if verdict, left := g.run(t, p.frame()); verdict != xdpPass || !bytes.Equal(left, p.frame()) {
		t.Errorf("verdict %d, %x", verdict, left)
	}
	if s := mustReceived(t, g.Receiver); s.Misaddressed != 1 || s.Paths[0].First != 0 {
		t.Errorf("%+v", s)
	}
	if err := g.setAddresses(map[uint32]receiverInterface{loopback: ours}); err != nil {
		t.Fatal(err)
	}
	if verdict, _ := g.run(t, p.frame()); verdict != xdpPass {
		t.Errorf("verdict %d", verdict)
	}
	if verdict, _ := g.run(t, media4(1).on(2).frame()); verdict != xdpDrop {
		t.Errorf("verdict %d of the second", verdict)
	}
	if s := mustReceived(t, g.Receiver); s.Misaddressed != 1 || s.Paths[0].First != 1 || s.Paths[1].Late != 1 {
		t.Errorf("%+v", s)
	}
}
