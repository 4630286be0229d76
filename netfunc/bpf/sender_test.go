package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	mathbits "math/bits"
	"net"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Verdicts of TC programs (linux/pkt_cls.h) as returned by a test run.
const (
	tcPass     = uint32(0xffffffff) // TC_ACT_UNSPEC
	tcShot     = uint32(2)
	tcRedirect = uint32(7)
)

// bench is a sender on a test bench, where the test runs its programs on packets. The far ends of its
// paths are tapped.
type bench struct {
	*Sender
	programs map[string]*ebpf.Program
	host     *host
	far      *host // far end of the paths
	lan      int   // ingress interface of packets
	lanMAC   [6]byte
	taps     [MaxPaths]*tap // configured paths
	macs     [MaxPaths][2]net.HardwareAddr
}

const benchPaths = 4

func newBench(t testing.TB, o SenderOptions) *bench {
	t.Helper()
	spec, err := senderSpec(o)
	c := unpinned(t, spec, err)
	b := &bench{Sender: &Sender{maps: c.Maps}, programs: c.Programs, host: newHost(t), far: newHost(t)}
	cable(t, b.host, "lan", b.far, "lan")
	b.lan = b.host.index(t, "lan")
	copy(b.lanMAC[:], b.host.mac(t, "lan"))
	for i := range benchPaths {
		b.addPath(t, i+1)
	}
	return b
}

// addPath creates a path, taps its far end and sets it up.
func (b *bench) addPath(t testing.TB, path int) {
	t.Helper()
	name := fmt.Sprint("path", path)
	cable(t, b.host, name, b.far, name)
	b.far.enable(t, "ipv6/conf/"+name+"/disable_ipv6") // suppresses traffic of the interface itself
	b.host.enable(t, "ipv6/conf/"+name+"/disable_ipv6")
	b.macs[path-1] = [2]net.HardwareAddr{b.far.mac(t, name), b.host.mac(t, name)}
	b.setUp(t, path, true)
	b.taps[path-1] = b.far.tap(t, name)
}

func (b *bench) setUp(t testing.TB, path int, up bool) {
	t.Helper()
	err := b.SetPath(Path{
		Index: path, Interface: b.host.index(t, fmt.Sprint("path", path)),
		NextHop: b.macs[path-1][0], Source: b.macs[path-1][1], Up: up,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// outcome is the treatment of one packet.
type outcome struct {
	verdict uint32
	left    []byte // the packet afterwards: the last replica, or the packet itself
	mark    uint32
	clones  map[int][]byte // by path
}

// run runs a program on a frame received by, or leaving on, interface s.Ifindex.
func (b *bench) run(t testing.TB, program string, frame []byte, s skb) outcome {
	t.Helper()
	if s.Ifindex == 0 {
		s.Ifindex = uint32(b.lan)
	}
	o := outcome{clones: make(map[int][]byte)}
	out := skb{}
	b.host.must(t, func() (err error) {
		run := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: &s, ContextOut: &out}
		o.verdict, err = b.programs[program].Run(&run)
		o.left = run.DataOut
		return err
	})
	o.mark = out.Mark
	for i, tp := range b.taps {
		if tp == nil {
			continue
		}
		frames := tp.frames()
		if len(frames) > 1 {
			t.Fatalf("path %d: %d frames, want one", i+1, len(frames))
		}
		if len(frames) == 1 {
			o.clones[i+1] = frames[0]
		}
	}
	return o
}

var (
	viewer4 = addr("198.51.100.7")
	viewer6 = addr("2001:db8:1::7")
	relay4  = addr("192.0.2.1")
	relay6  = addr("2001:db8::1")
)

// plain4 and plain6 return packets to duplicate.
func (b *bench) plain4(payload string) packet {
	return packet{
		nextHop: b.lanMAC, source: [6]byte{
			2, 0, 0, 0, 0,
			9,
		}, src: relay4, dst: viewer4, tos: 0x02, id: 0, fragment: 0x4000,
		proto: unix.IPPROTO_UDP, body: udp(4443, 50000, []byte(payload)),
	}
}

func (b *bench) plain6(payload string) packet {
	p := b.plain4(payload)
	p.src, p.dst, p.fragment, p.label = relay6, viewer6, 0, 0x12345
	return p
}

// tagged adds a VLAN tag, so test runs accept truncated packets.
func tagged(p packet) packet {
	p.tags = []vlan{{unix.ETH_P_8021Q, 5}}
	return p
}

// setIDs sets the ID counters for packets to viewer4 and viewer6.
func (b *bench) setIDs(t testing.TB, next uint32) {
	t.Helper()
	for i := range uint32(1024) {
		if err := b.maps[senderMapIds].Put(i, next); err != nil {
			t.Fatal(err)
		}
	}
}

func (b *bench) policy(t testing.TB, bits uint8) {
	t.Helper()
	if err := errors.Join(b.SetPolicy(viewer4, bits), b.SetPolicy(viewer6, bits)); err != nil {
		t.Fatal(err)
	}
}

// checkReplica compares a replica with its original packet.
func (b *bench) checkReplica(t *testing.T, frame []byte, of packet, path int, id uint16, routed bool) {
	t.Helper()
	b.checkSent(t, frame, of, path, Codepoint(path)<<2|of.tos&3, id, routed)
}

// checkSteered compares a packet rerouted by a one-path policy with its original.
func (b *bench) checkSteered(t *testing.T, frame []byte, of packet, path int, routed bool) {
	t.Helper()
	b.checkSent(t, frame, of, path, of.tos, of.id, routed)
	if v, _ := see(frame); v.v6 && v.label() != of.label {
		t.Errorf("path %d: label %#x, want %#x", path, v.label(), of.label)
	}
}

func (b *bench) checkSent(t *testing.T, frame []byte, of packet, path int, tos uint8, id uint16, routed bool) {
	t.Helper()
	v, ok := see(frame)
	if !ok {
		t.Fatalf("path %d: no packet in % x", path, frame)
	}
	want := append(slices.Clone(b.macs[path-1][0]), b.macs[path-1][1]...)
	if !bytes.Equal(v.ethernet[:], want) {
		t.Errorf("path %d: addresses % x, want % x", path, v.ethernet, want)
	}
	if got := v.tos(); got != tos {
		t.Errorf("path %d: ToS %#x, want %#x", path, got, tos)
	}
	ttl := of.ttl
	if ttl == 0 {
		ttl = 64
	}
	if routed {
		ttl--
	}
	if v.ttl() != ttl {
		t.Errorf("path %d: TTL %d, want %d", path, v.ttl(), ttl)
	}
	if !v.checksumGood() {
		t.Errorf("path %d: header checksum is wrong", path)
	}
	if !v.v6 && v.id() != id {
		t.Errorf("path %d: ID %d, want %d", path, v.id(), id)
	}
	// Everything else is unchanged.
	of.tags, of.padding = nil, 0
	of.tos, of.ttl, of.id = v.tos(), v.ttl(), v.id()
	if v.v6 {
		of.label = v.label()
	}
	if rest := of.frame()[14:]; !bytes.Equal(v.ip[:len(rest)], rest) {
		t.Errorf("path %d: packet\n% x, want\n% x", path, v.ip, rest)
	}
}

// Each kind of packet is duplicated, with the expected replica on each path.
func TestDuplicate(t *testing.T) {
	b := newBench(t, SenderOptions{})
	big := string(make([]byte, 1400))
	tests := []struct {
		name   string
		packet packet
		bits   uint8
		down   int // path
		ids    uint32
		id     uint16 // ID of the replicas
		segs   uint32
		size   uint32
		after  uint32 // ID counter
		want   []int  // paths; the last one gets the packet itself
		bytes  uint64 // IP bytes per path
	}{
		{
			name:   "IPv4, two paths",
			packet: b.plain4("hello, viewer"),
			bits:   pathBits(1, 2),
			ids:    7,
			id:     7,
			after:  8,
			want:   []int{1, 2},
			bytes:  41,
		},
		{
			name:   "IPv4, three paths",
			packet: b.plain4(big),
			bits:   pathBits(1, 3, 4),
			ids:    1,
			id:     1,
			after:  2,
			want:   []int{1, 3, 4},
			bytes:  1428,
		},
		{
			name:   "IPv6",
			packet: b.plain6("hello, viewer"),
			bits:   pathBits(1, 2, 3),
			after:  1,
			want:   []int{1, 2, 3},
			bytes:  61,
		},
		{
			name:   "a path is down",
			packet: b.plain4("x"),
			bits:   pathBits(1, 2, 3),
			down:   3,
			ids:    5,
			id:     5,
			after:  6,
			want:   []int{1, 2},
			bytes:  29,
		},
		{
			name:   "a path was never set",
			packet: b.plain4("x"),
			bits:   pathBits(2, 7, 8),
			ids:    5,
			id:     5,
			after:  6,
			want:   []int{2},
			bytes:  29,
		},
		{
			name:   "last ID",
			packet: b.plain4("x"),
			bits:   pathBits(1, 2),
			ids:    65535,
			id:     65535,
			after:  65536,
			want:   []int{1, 2},
			bytes:  29,
		},
		{
			name:   "ID wraps",
			packet: b.plain4("x"),
			bits:   pathBits(1, 2),
			ids:    65536,
			id:     0,
			after:  65537,
			want:   []int{1, 2},
			bytes:  29,
		},
		{
			name:   "counter wraps",
			packet: b.plain4("x"),
			bits:   pathBits(1, 2),
			ids:    1<<32 - 1,
			id:     65535,
			after:  0,
			want:   []int{1, 2},
			bytes:  29,
		},
		{
			name:   "GSO",
			packet: b.plain4(string(make([]byte, 1200))),
			bits:   pathBits(1, 2),
			ids:    100,
			id:     100,
			segs:   4,
			size:   300,
			after:  104,
			want:   []int{1, 2},
			bytes:  4 * 328,
		},
		{
			name:   "GSO over the wrap of the ID",
			packet: b.plain4(string(make([]byte, 1200))),
			bits:   pathBits(1, 2),
			ids:    65534,
			id:     65534,
			segs:   4,
			size:   300,
			after:  65538,
			want:   []int{1, 2},
			bytes:  4 * 328,
		},
		{
			name:   "GSO without count",
			packet: b.plain4(string(make([]byte, 1200))),
			bits:   pathBits(1, 2),
			ids:    100,
			id:     100,
			size:   300,
			after:  105,
			want:   []int{1, 2},
			bytes:  1200 + 5*28,
		},
		{
			name:   "GSO, IPv6",
			packet: b.plain6(string(make([]byte, 1200))),
			bits:   pathBits(1, 2),
			segs:   3,
			size:   400,
			after:  3,
			want:   []int{1, 2},
			bytes:  3 * 448,
		},
		{name: "GSO, TCP", packet: func() packet {
			p := b.plain4("")
			p.proto, p.body = unix.IPPROTO_TCP, tcp(443, 50000, 1, 2, make([]byte, 1200))
			return p
		}(), bits: pathBits(1, 2), segs: 3, size: 400, after: 3, want: []int{1, 2}, bytes: 3 * 440},
		{
			name:   "options",
			packet: func() packet { p := b.plain4("x"); p.options = []byte{7, 7, 4, 0, 0, 0, 0, 0}; return p }(),
			bits:   pathBits(1, 2),
			ids:    9,
			id:     9,
			after:  10,
			want:   []int{1, 2},
			bytes:  37,
		},
		{
			name:   "first fragment keeps its ID",
			packet: func() packet { p := b.plain4("fragment"); p.id, p.fragment = 777, 0x2000; return p }(),
			bits:   pathBits(1, 2),
			ids:    9,
			id:     777,
			after:  10,
			want:   []int{1, 2},
			bytes:  36,
		},
		{
			name:   "last fragment keeps its ID",
			packet: func() packet { p := b.plain4("fragment"); p.id, p.fragment = 777, 185; return p }(),
			bits:   pathBits(1, 2),
			ids:    9,
			id:     777,
			after:  10,
			want:   []int{1, 2},
			bytes:  36,
		},
		{
			name:   "all ECN bits kept",
			packet: func() packet { p := b.plain4("x"); p.tos = 0xbb; return p }(),
			bits:   pathBits(1, 2),
			id:     0,
			after:  1,
			want:   []int{1, 2},
			bytes:  29,
		},
		{
			name:   "TTL 2",
			packet: func() packet { p := b.plain4("x"); p.ttl = 2; return p }(),
			bits:   pathBits(1, 2),
			after:  1,
			want:   []int{1, 2},
			bytes:  29,
		},
		{
			name:   "VLAN",
			packet: func() packet { p := b.plain4("x"); p.tags = []vlan{{0x8100, 5}}; return p }(),
			bits:   pathBits(1, 2),
			ids:    3,
			id:     3,
			after:  4,
			want:   []int{1, 2},
			bytes:  29,
		},
		{
			name:   "QinQ, IPv6",
			packet: func() packet { p := b.plain6("x"); p.tags = []vlan{{0x88a8, 5}, {0x8100, 6}}; return p }(),
			bits:   pathBits(1, 2),
			after:  1,
			want:   []int{1, 2},
			bytes:  49,
		},
		{
			name:   "padded frame",
			packet: func() packet { p := b.plain4("x"); p.padding = 17; return p }(),
			bits:   pathBits(1, 2),
			after:  1,
			want:   []int{1, 2},
			bytes:  29,
		},
		{
			name:   "no payload",
			packet: func() packet { p := b.plain4(""); p.proto, p.body = 59, nil; return p }(),
			bits:   pathBits(1, 2),
			after:  1,
			want:   []int{1, 2},
			bytes:  20,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b.policy(t, test.bits)
			b.setIDs(t, test.ids)
			if test.down != 0 {
				b.setUp(t, test.down, false)
				defer b.setUp(t, test.down, true)
			}
			before, err := b.Stats()
			if err != nil {
				t.Fatal(err)
			}
			o := b.run(t, senderProgDuplicate, test.packet.frame(), skb{GSOSegs: test.segs, GSOSize: test.size})
			if o.verdict != tcRedirect {
				t.Fatalf("verdict %d, want redirect", int32(o.verdict))
			}
			last := test.want[len(test.want)-1]
			if test.size != 0 { // GSO packets of test runs are incomplete, so devices drop their clones
				test.want = test.want[len(test.want)-1:]
			}
			if len(o.clones) != len(test.want)-1 {
				t.Errorf("%d clones, want %d", len(o.clones), len(test.want)-1)
			}
			o.clones[last] = o.left
			for _, path := range test.want {
				b.checkReplica(t, o.clones[path], test.packet, path, test.id, true)
			}
			if o.mark != 0x04000000 {
				t.Errorf("mark %#x", o.mark)
			}
			index := slices.IndexFunc(func() (values []uint32) {
				for i := range uint32(1024) {
					var v uint32
					_ = b.maps[senderMapIds].Lookup(i, &v)
					values = append(values, v)
				}
				return values
			}(), func(v uint32) bool { return v != test.ids })
			var next uint32
			if index < 0 {
				t.Fatal("no counter changed")
			}
			if err := b.maps[senderMapIds].Lookup(uint32(index), &next); err != nil || next != test.after {
				t.Errorf("counter %d, want %d (%v)", next, test.after, err)
			}
			after, err := b.Stats()
			if err != nil {
				t.Fatal(err)
			}
			for i := range MaxPaths {
				packets := after.Paths[i].Packets - before.Paths[i].Packets
				bytes := after.Paths[i].Bytes - before.Paths[i].Bytes
				var wantPackets, wantBytes uint64
				if slices.Contains(test.want, i+1) {
					wantPackets, wantBytes = max(uint64(test.after-test.ids), 1), test.bytes
				}
				if packets != wantPackets || bytes != wantBytes {
					t.Errorf(
						"path %d: counted %d packets, %d bytes; want %d, %d",
						i+1,
						packets,
						bytes,
						wantPackets,
						wantBytes,
					)
				}
			}
			if after.Duplicated != before.Duplicated+1 {
				t.Error("not counted as duplicated")
			}
		})
	}
}

// Packets that the sender does not duplicate pass unchanged and are counted by reason.
func TestDuplicatePasses(t *testing.T) {
	b := newBench(t, SenderOptions{})
	none := func(SenderStats) uint64 { return 0 }
	tests := []struct {
		name  string
		frame []byte
		bits  uint8
		skb   skb
		count func(SenderStats) uint64
	}{
		{
			"no policy",
			func() []byte { p := b.plain4("x"); p.dst = addr("198.51.100.8"); return p.frame() }(),
			7,
			skb{},
			none,
		},
		{
			"no policy, IPv6",
			func() []byte { p := b.plain6("x"); p.dst = addr("2001:db8:1::8"); return p.frame() }(),
			7,
			skb{},
			none,
		},
		{"off", b.plain4("x").frame(), 0, skb{}, none},
		{
			"another host's frame",
			func() []byte { p := b.plain4("x"); p.nextHop = [6]byte{2, 1, 1, 1, 1, 1}; return p.frame() }(),
			7,
			skb{},
			none,
		},
		{
			"nonexistent paths",
			b.plain4("x").frame(),
			pathBits(6, 7, 8),
			skb{},
			func(s SenderStats) uint64 { return s.Unusable },
		},
		{
			"TTL 1",
			func() []byte { p := b.plain4("x"); p.ttl = 1; return p.frame() }(),
			7,
			skb{},
			func(s SenderStats) uint64 { return s.Expiring },
		},
		{
			"hop limit 1",
			func() []byte { p := b.plain6("x"); p.ttl = 1; return p.frame() }(),
			7,
			skb{},
			func(s SenderStats) uint64 { return s.Expiring },
		},
		{
			"longer than all MTUs",
			b.plain4(string(make([]byte, 1600))).frame(),
			7,
			skb{},
			func(s SenderStats) uint64 { return s.Unusable },
		},
		{"ARP", append(append(b.lanMAC[:], 2, 0, 0, 0, 0, 9, 8, 6), make([]byte, 28)...), 7, skb{}, none},
		{
			"truncated in the IPv4 header",
			tagged(b.plain4("x")).frame()[:18+19],
			7,
			skb{},
			func(s SenderStats) uint64 { return s.Short },
		},
		{
			"truncated in the IPv6 header",
			tagged(b.plain6("x")).frame()[:18+39],
			7,
			skb{},
			func(s SenderStats) uint64 { return s.Short },
		},
		{
			"truncated in a tag",
			append(append(b.lanMAC[:], 2, 0, 0, 0, 0, 9, 0x81, 0), 0),
			7,
			skb{},
			func(s SenderStats) uint64 { return s.Short },
		},
		{
			"truncated in the payload",
			b.plain4("some payload").frame()[:14+34],
			7,
			skb{},
			func(s SenderStats) uint64 { return s.Short },
		},
		{
			"header length 16",
			func() []byte { f := b.plain4("x").frame(); f[14] = 0x44; return f }(),
			7,
			skb{},
			func(s SenderStats) uint64 { return s.Short },
		},
		{
			"version 5",
			func() []byte { f := b.plain4("x").frame(); f[14] = 0x55; return f }(),
			7,
			skb{},
			func(s SenderStats) uint64 { return s.Short },
		},
		{
			"version 4 as IPv6",
			func() []byte { f := b.plain6("x").frame(); f[14] = 0x45; return f }(),
			7,
			skb{},
			func(s SenderStats) uint64 { return s.Short },
		},
		{"three tags", func() []byte {
			p := b.plain4("x")
			p.tags = []vlan{{0x88a8, 1}, {0x8100, 2}, {0x8100, 3}}
			return p.frame()
		}(), 7, skb{}, none},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b.policy(t, test.bits)
			before, _ := b.Stats()
			o := b.run(t, senderProgDuplicate, test.frame, test.skb)
			after, _ := b.Stats()
			if o.verdict != tcPass || !bytes.Equal(o.left, test.frame) || len(o.clones) != 0 || o.mark != 0 {
				t.Errorf(
					"verdict %d, mark %#x, %d clones\n% x, want\n% x",
					int32(o.verdict),
					o.mark,
					len(o.clones),
					o.left,
					test.frame,
				)
			}
			if reflectNone := test.count(SenderStats{Unusable: 1, Expiring: 1, Short: 1}) == 0; !reflectNone &&
				test.count(after) != test.count(before)+1 {
				t.Errorf("not counted: %+v", after)
			}
			if after.Duplicated != before.Duplicated {
				t.Error("counted as duplicated")
			}
		})
	}
}

// A path whose MTU is too small is skipped; the others carry the packet.
func TestDuplicateMTU(t *testing.T) {
	b := newBench(t, SenderOptions{})
	b.policy(t, pathBits(1, 2, 3))
	if err := b.host.nl.LinkSetMTU(b.host.link(t, "path2"), 1000); err != nil {
		t.Fatal(err)
	}
	p := b.plain4(string(make([]byte, 1200)))
	if o := b.run(t, senderProgDuplicate, p.frame(), skb{}); o.verdict != tcRedirect || len(o.clones) != 1 ||
		o.clones[1] == nil {
		t.Errorf("verdict %d, clones %v", o.verdict, len(o.clones))
	}
	// The segments of a GSO packet fit.
	b.policy(t, pathBits(2))
	if o := b.run(t, senderProgDuplicate, p.frame(), skb{GSOSegs: 2, GSOSize: 600}); o.verdict != tcRedirect {
		t.Errorf("GSO: verdict %d", o.verdict)
	}
	b.policy(t, pathBits(1, 2, 3))
	// The interface of a path is deleted.
	if err := b.host.nl.LinkDel(b.host.link(t, "path1")); err != nil {
		t.Fatal(err)
	}
	b.taps[0] = nil
	if o := b.run(t, senderProgDuplicate, p.frame(), skb{}); o.verdict != tcRedirect || len(o.clones) != 0 {
		t.Errorf("interface deleted: verdict %d, %d clones", o.verdict, len(o.clones))
	}
	s, err := b.Stats()
	if err != nil || s.Paths[1].TooBig != 2 || s.Paths[1].Packets != 2 || s.Paths[0].Errors != 1 ||
		s.Paths[2].Packets != 2 {
		t.Errorf("%+v, %v", s.Paths, err)
	}
}

// Any of the eight paths can be the last, and each has its own DSCP.
func TestDuplicateEightPaths(t *testing.T) {
	b := newBench(t, SenderOptions{})
	for path := benchPaths + 1; path <= MaxPaths; path++ {
		b.addPath(t, path)
	}
	for bits := 1; bits <= 0xff; bits++ {
		b.policy(t, uint8(bits))
		for id, p := range []packet{b.plain4("over eight"), b.plain6("over eight")} {
			b.setIDs(t, uint32(id))
			o := b.run(t, senderProgDuplicate, p.frame(), skb{})
			last := mathbits.Len8(uint8(bits))
			if o.verdict != tcRedirect || len(o.clones) != mathbits.OnesCount8(uint8(bits))-1 {
				t.Fatalf("policy %08b: verdict %d, %d clones", bits, int32(o.verdict), len(o.clones))
			}
			o.clones[last] = o.left
			for path, frame := range o.clones {
				if bits>>(path-1)&1 == 0 {
					t.Errorf("policy %08b: replica on path %d", bits, path)
				}
				if mathbits.OnesCount8(uint8(bits)) == 1 {
					b.checkSteered(t, frame, p, path, true)
				} else {
					b.checkReplica(t, frame, p, path, uint16(id), true)
				}
			}
		}
	}
}

func TestDuplicateFlowLabel(t *testing.T) {
	b := newBench(t, SenderOptions{FlowLabel: true})
	b.policy(t, pathBits(1, 2))
	b.setIDs(t, 1<<20|0x54321)
	p := b.plain6("labelled")
	o := b.run(t, senderProgDuplicate, p.frame(), skb{})
	o.clones[2] = o.left
	for _, path := range []int{1, 2} {
		b.checkReplica(t, o.clones[path], p, path, 0, true)
		if v, _ := see(o.clones[path]); v.label() != 0x54321 {
			t.Errorf("path %d: label %#x", path, v.label())
		}
	}
}

// At egress, the replica of the path that leaves there is the packet itself.
func TestDuplicateOut(t *testing.T) {
	b := newBench(t, SenderOptions{})
	path2 := uint32(b.host.index(t, "path2"))
	tests := []struct {
		name    string
		bits    uint8
		skb     skb
		tags    []vlan
		verdict uint32
		clones  []int
		last    int // path of the remaining packet; 0 = unchanged
		mark    uint32
	}{
		{"among others", pathBits(1, 2, 3), skb{Ifindex: path2}, nil, tcPass, []int{1, 3}, 2, 0},
		{"alone", pathBits(2), skb{Ifindex: path2}, nil, tcPass, nil, 2, 0},
		{"not in the policy", pathBits(1, 3), skb{Ifindex: path2}, nil, tcRedirect, []int{1}, 3, 0x04000000},
		{"steered away", pathBits(4), skb{Ifindex: path2}, nil, tcRedirect, nil, 4, 0x04000000},
		{"a replica", pathBits(1, 2, 3), skb{Ifindex: path2, Mark: 0x04000001}, nil, tcPass, nil, 0, 1},
		{"other marks kept", pathBits(2, 3), skb{Ifindex: path2, Mark: 1}, nil, tcPass, []int{3}, 2, 1},
		{"off", 0, skb{Ifindex: path2}, nil, tcPass, nil, 0, 0},
		{"tagged", 7, skb{Ifindex: path2}, []vlan{{0x8100, 9}}, tcPass, nil, 0, 0},
	}
	for _, test := range tests {
		for _, p := range []packet{b.plain4("out of this host"), b.plain6("out of this host")} {
			t.Run(fmt.Sprintf("%s, %s", test.name, p.dst), func(t *testing.T) {
				b.policy(t, test.bits)
				b.setIDs(t, 11)
				p.tags, p.ttl = test.tags, 1 // the host routes the packet
				o := b.run(t, senderProgDuplicateOut, p.frame(), test.skb)
				if o.verdict != test.verdict || o.mark != test.mark || len(o.clones) != len(test.clones) {
					t.Fatalf(
						"verdict %d, mark %#x, %d clones; want %d, %#x, %d",
						int32(o.verdict),
						o.mark,
						len(o.clones),
						int32(test.verdict),
						test.mark,
						len(test.clones),
					)
				}
				for _, path := range test.clones {
					b.checkReplica(t, o.clones[path], p, path, 11, false)
				}
				if mathbits.OnesCount8(test.bits) == 1 {
					b.checkSteered(t, o.left, p, test.last, false)
				} else if test.last != 0 {
					b.checkReplica(t, o.left, p, test.last, 11, false)
				} else if !bytes.Equal(o.left, p.frame()) {
					t.Errorf("packet changed")
				}
			})
		}
	}
}

// Paths and policies read back as set.
func TestSenderState(t *testing.T) {
	b := newBench(t, SenderOptions{MaxPolicies: 3})
	paths, err := b.Paths()
	if err != nil || len(paths) != benchPaths || !paths[2].Up || paths[2].Index != 3 ||
		!bytes.Equal(paths[2].NextHop, b.macs[2][0]) {
		t.Fatalf("%+v, %v", paths, err)
	}
	moved := paths[2]
	moved.Interface, moved.NextHop = 99, net.HardwareAddr{2, 2, 2, 2, 2, 2}
	for range 3 { // a path alternates between its two entries
		if err := b.SetPath(moved); err != nil {
			t.Fatal(err)
		}
		got, err := b.Paths()
		if err != nil || got[2].Interface != moved.Interface || !bytes.Equal(got[2].NextHop, moved.NextHop) ||
			got[1].Interface != paths[1].Interface {
			t.Fatalf("%+v, %v", got, err)
		}
		moved.Interface++
	}
	b.setUp(t, 3, false)
	if got, err := b.Paths(); err != nil || got[2].Up || !got[3].Up {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []Path{{Index: 0}, {Index: 9}, {Index: 1, Up: true}, {Index: 1, Interface: 1, Up: true}} {
		if b.SetPath(bad) == nil {
			t.Errorf("path %+v was accepted", bad)
		}
	}

	b.policy(t, 5)
	if err := b.SetPolicy(addr("::ffff:10.0.0.1"), 9); err != nil {
		t.Fatal(err)
	}
	policies, err := b.Policies()
	if want := []Policy{{addr("10.0.0.1"), 9, 0}, {viewer4, 5, 0}, {viewer6, 5, 0}}; err != nil ||
		!slices.Equal(policies, want) {
		t.Errorf("%+v, %v", policies, err)
	}
	if err := b.SetPolicy(addr("10.0.0.2"), 1); !errors.Is(err, ErrMapFull) {
		t.Errorf("a fourth policy: %v", err)
	}
	if err := errors.Join(b.RemovePolicy(viewer4), b.RemovePolicy(viewer4),
		b.SetPolicy(addr("10.0.0.2"), 1)); err != nil {
		t.Error(err)
	}
	if b.SetPolicy(addr("::"), 1) == nil || b.SetPolicy(addr("fe80::1%eth0"), 1) == nil {
		t.Error("a policy was accepted without an address, or with a zone")
	}
}

func TestSenderOptions(t *testing.T) {
	if _, err := senderSpec(SenderOptions{UplinkMin: 300, UplinkMax: 200}); err == nil {
		t.Error("an empty window was accepted")
	}
	if _, err := OpenSender(SenderOptions{Pin: "/tmp/nowhere", Attach: []Attach{{"hb-none", Ingress}}}); err == nil {
		t.Error("a nonexistent interface was accepted")
	}
	if _, err := senderTargets([]Attach{{"lo", Ingress}, {"lo", Ingress}}); err == nil {
		t.Error("a duplicate interface was accepted")
	}
	if _, err := senderTargets([]Attach{{"lo", 7}}); err == nil {
		t.Error("direction 7 was accepted")
	}
}

// The uplink monitor reports every packet in its window and passes it.
func TestMonitor(t *testing.T) {
	b := newBench(t, SenderOptions{UplinkMin: 200, UplinkMax: 240})
	ring, err := openRing(b.maps[senderMapUplinks])
	if err != nil {
		t.Fatal(err)
	}
	b.uplinks = ring
	defer func() { _ = b.Close() }()
	up4 := func(length int) packet {
		return packet{
			nextHop: b.lanMAC,
			src:     viewer4,
			dst:     relay4,
			proto:   unix.IPPROTO_UDP,
			body:    udp(50000, 4443, make([]byte, length-28)),
		}
	}
	tests := []struct {
		name   string
		packet packet
		skb    skb
		seen   int // reported length; 0 = none
		ports  [2]uint16
		segs   int
	}{
		{"below", up4(199), skb{}, 0, [2]uint16{}, 0},
		{"lowest", up4(200), skb{}, 200, [2]uint16{50000, 4443}, 1},
		{"highest", up4(240), skb{}, 240, [2]uint16{50000, 4443}, 1},
		{"above", up4(241), skb{}, 0, [2]uint16{}, 0},
		{
			"IPv6",
			packet{src: viewer6, dst: relay6, proto: unix.IPPROTO_UDP, body: udp(50000, 4443, make([]byte, 172))},
			skb{},
			220,
			[2]uint16{50000, 4443},
			1,
		},
		{
			"TCP",
			packet{src: viewer4, dst: relay4, proto: unix.IPPROTO_TCP, body: tcp(50001, 443, 1, 1, make([]byte, 180))},
			skb{},
			220,
			[2]uint16{50001, 443},
			1,
		},
		{
			"ICMP",
			packet{src: viewer4, dst: relay4, proto: unix.IPPROTO_ICMP, body: make([]byte, 190)},
			skb{},
			210,
			[2]uint16{},
			1,
		},
		{"later fragment", func() packet { p := up4(210); p.fragment = 100; return p }(), skb{}, 210, [2]uint16{}, 1},
		{
			"VLAN",
			func() packet { p := up4(210); p.tags = []vlan{{0x8100, 3}}; return p }(),
			skb{},
			210,
			[2]uint16{50000, 4443},
			1,
		},
		{
			"options",
			func() packet { p := up4(210); p.options = []byte{1, 1, 1, 0}; return p }(),
			skb{},
			214,
			[2]uint16{50000, 4443},
			1,
		},
		{"GRO", up4(28 + 3*190), skb{GSOSegs: 3, GSOSize: 190}, 218, [2]uint16{50000, 4443}, 3},
		{
			"ethernet padding does not count",
			func() packet { p := up4(190); p.padding = 20; return p }(),
			skb{},
			0,
			[2]uint16{},
			0,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before, from := Now(), mustStats(t, b.Sender).Uplink
			o := b.run(t, senderProgMonitor, test.packet.frame(), test.skb)
			if o.verdict != tcPass || !bytes.Equal(o.left, test.packet.frame()) {
				t.Errorf("verdict %d", int32(o.verdict))
			}
			if seen := mustStats(t, b.Sender).Uplink - from; (seen == 1) != (test.seen != 0) {
				t.Fatalf("seen %d times", seen)
			}
			if test.seen == 0 {
				return
			}
			u, err := b.ReadUplink(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if u.Time < before || u.Time > Now() {
				t.Errorf("time %v is not between %v and now", u.Time, before)
			}
			if u.Length != test.seen || u.Segments != test.segs || u.Source.Addr() != test.packet.src ||
				u.Destination.Addr() != test.packet.dst ||
				u.Source.Port() != test.ports[0] ||
				u.Destination.Port() != test.ports[1] {
				t.Errorf("%+v", u)
			}
		})
	}

	t.Run("ring full", func(t *testing.T) {
		frame := up4(210).frame()
		b.host.must(t, func() error {
			_, err := b.programs[senderProgMonitor].Run(
				&ebpf.RunOptions{Data: frame, Repeat: 1 << 18 / 48, Context: &skb{Ifindex: uint32(b.lan)}},
			)
			return err
		})
		if s := mustStats(t, b.Sender); s.RingFull == 0 {
			t.Errorf("%+v", s)
		}
		if o := b.run(t, senderProgMonitor, frame, skb{}); o.verdict != tcPass {
			t.Errorf("verdict %d", o.verdict)
		}
	})
}

func mustStats(t testing.TB, s *Sender) SenderStats {
	t.Helper()
	stats, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

// Ring records convert to the struct that the program wrote.
func TestRecordLayout(t *testing.T) {
	var b [48]byte
	binary.NativeEndian.PutUint64(b[:], 5)
	a := relay6.As16()
	copy(b[8:], a[:])
	if u := recordOf[senderUplinkRecord](b[:]); u.Time != 5 || recordAddress(u.Source) != relay6 {
		t.Errorf("%+v", u)
	}
}
