//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holocast/internal/moqt/wire"
)

// TestHostile sends packets that must not be forwarded. User space receives each of them unchanged, the
// viewer receives none, and the reasons are counted. Valid packets in between are forwarded.
func TestHostile(t *testing.T) {
	b := newBench(t, setting{alias: 7, viewAlias: 8, numberLen: 2})
	b.introduce(t)
	number := int64(0)
	honest := func() []byte {
		number++
		return b.up.seal(
			publisherID,
			number,
			2,
			0,
			append([]byte{0x30}, object(t, 7, 1, uint64(number), []byte("payload"))...),
		)
	}
	with := func(frames ...byte) []byte {
		number++
		return b.up.seal(publisherID, number, 2, 0, frames)
	}
	flip := func(p []byte, at int) []byte {
		p[at] ^= 1
		return p
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	plain := object(t, 7, 1, 1<<40, []byte("x"))
	first := honest()
	tests := []struct {
		name, reason string
		packet       []byte
	}{
		{"forged", "forged", append(join([]byte{0x41}, publisherID), random(300)...)},
		{"forged, minimum length", "forged", append(join([]byte{0x41}, publisherID), random(20)...)},
		{"cut off", "forged", append(join([]byte{0x41}, publisherID), random(5)...)},
		{"wrong tag", "forged", func() []byte { p := honest(); return flip(p, len(p)-1) }()},
		{"wrong text", "forged", func() []byte { p := honest(); return flip(p, len(p)-20) }()},
		{"wrong first byte", "forged", flip(honest(), 0)},
		{"other keys", "forged", newKeys().seal(publisherID, 500, 2, 0, join([]byte{0x30}, plain))},
		{"other key phase", "forged", b.up.seal(publisherID, 501, 2, 1, join([]byte{0x30}, plain))},
		{"replayed", "replayed", first},
		{"another alias", "alias", with(join([]byte{0x30}, object(t, 99, 1, 1, nil))...)},
		{"huge alias", "alias", with(join([]byte{0x30}, object(t, math.MaxUint64, 1, 1, nil))...)},
		{"status", "object", with(0x30, 0x24, 7, 1, 5, 3)},
		{"properties", "object", with(0x30, 0x05, 7, 1, 5, 1, 2, 3)},
		{"no object", "object", with(0, 0, 0, 0x30)},
		{"a truncated alias", "object", with(0x30, 0x04, 0xff, 1, 2)},
		{"a truncated group", "object", with(0x30, 0x04, 7)},
		{"no priority", "object", with(0x30, 0x04, 7, 1)},
		{"two datagrams", "frames", with(join([]byte{0x31, byte(len(plain))}, plain, []byte{0x30}, plain)...)},
		{"a stream besides", "frames", with(join([]byte{0x31, byte(len(plain))}, plain, []byte{0x08, 0, 1})...)},
		{"datagram longer than the packet", "frames", with(join([]byte{0x31, 0x7f, 0xff}, plain)...)},
		{"a truncated ACK", "frames", with(0x02, 5, 0, 0x3f, 0, 0, 0, 0)},
		{"an ACK with too many ranges", "frames", with(0x02, 5, 0, 0xc0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0)},
		{"an unknown frame", "frames", with(join([]byte{0x40, 0x99}, plain)...)},
		{"only padding", "frames", with(0, 0, 0, 0, 0)},
	}
	pass := func(p []byte, forwarded bool) {
		t.Helper()
		send(t, b.publish, p, b.toRelay)
		if got, _ := receive(t, b.serve, time.Minute); !bytes.Equal(got, p) {
			t.Fatalf("user space received %x", got)
		}
		// User space receives a packet after the programs are done with it.
		records := 0
		b.k.Drain(func(Record) { records++ })
		if got := records > 0; got != forwarded {
			c, _ := b.k.Counts()
			t.Fatalf("forwarded: %v; %+v", got, c)
		}
		if forwarded {
			if got, _ := receive(t, b.view, time.Minute); got == nil {
				t.Fatal("the viewer received nothing")
			}
		}
	}
	pass(first, true)
	pass(b.up.seal(publisherID, 502, 2, 1, join([]byte{0x30}, plain)), false)
	if c, _ := b.k.Counts(); c.UserSpace["key_phase"] != 1 {
		t.Errorf("an unknown key phase is not counted: %v", c.UserSpace)
	}
	b.k.Source(0).SetKeys(1, newKeys().Keys)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before, err := b.k.Counts()
			must(t, err)
			pass(tt.packet, false)
			after, err := b.k.Counts()
			must(t, err)
			if after.UserSpace[tt.reason] != before.UserSpace[tt.reason]+1 {
				t.Errorf("not counted as %s: %v, before %v", tt.reason, after.UserSpace, before.UserSpace)
			}
			pass(honest(), true)
			if next := b.k.Viewer(0).Next(); next > b.block+24 {
				b.block += 100
				b.k.Viewer(0).TakeBack()
				b.k.Viewer(0).Give(b.block, b.block+32, 0)
			}
		})
	}
	if got, _ := receive(t, b.view, 50*time.Millisecond); got != nil {
		t.Errorf("the viewer received %d extra bytes", len(got))
	}
}

// TestMerged sends two packets in one buffer, as a local publisher with UDP_SEGMENT or a device
// with GRO does. User space receives both, and the kernel forwards neither.
func TestMerged(t *testing.T) {
	b := newBench(t, setting{alias: 7, viewAlias: 7, numberLen: 2})
	b.introduce(t)
	packet := func(number int64) []byte {
		return b.up.seal(
			publisherID,
			number,
			2,
			0,
			append([]byte{0x30}, object(t, 7, 1, uint64(number), random(500))...),
		)
	}
	segment := func(size int) {
		t.Helper()
		raw, err := b.publish.SyscallConn()
		must(t, err)
		must(
			t,
			raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, size) }),
		)
		must(t, err)
	}
	first, second := packet(1), packet(2)
	segment(len(first))
	send(t, b.publish, append(bytes.Clone(first), second...), b.toRelay)
	for _, want := range [][]byte{first, second} {
		if got, _ := receive(t, b.serve, time.Minute); !bytes.Equal(got, want) {
			t.Fatalf("user space received %x", got)
		}
	}
	if c, err := b.k.Counts(); err != nil || c.UserSpace["gso"] != 1 || c.Opened != 0 || c.Forwarded != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	segment(0)
	send(t, b.publish, packet(3), b.toRelay)
	if got, _ := receive(t, b.view, time.Minute); got == nil {
		t.Error("a single packet was not forwarded afterwards")
	}
}

// TestFrames checks that a datagram is forwarded from packets that also hold an ACK, PING or
// padding.
func TestFrames(t *testing.T) {
	b := newBench(t, setting{alias: 7, viewAlias: 7, numberLen: 2})
	b.introduce(t)
	o := object(t, 7, 3, 4, []byte("payload"))
	ranges := []byte{0x02, 0x7f, 0xff, 0x40, 0x10, 32, 1}
	for range 32 {
		ranges = append(ranges, 0x40, 2, 3)
	}
	for i, frames := range [][]byte{
		append([]byte{0, 0, 0, 0x30}, o...),
		append(append([]byte{0x31, byte(len(o))}, o...), 0, 0, 0, 1),
		append(append([]byte{0x31, 0x40, byte(len(o))}, o...), 1),
		append(append(ranges[:len(ranges):len(ranges)], 0x30), o...),
		append([]byte{0x03, 5, 0, 0, 1, 1, 2, 0x80, 0, 0, 3, 0x30}, o...),
	} {
		send(t, b.publish, b.up.seal(publisherID, int64(i), 2, 0, frames), b.toRelay)
		got, _ := receive(t, b.view, time.Minute)
		if _, _, opened, err := b.down.open(got, 0); err != nil || !bytes.Equal(opened, append([]byte{0x30}, o...)) {
			c, _ := b.k.Counts()
			t.Fatalf("frames %d: %x, %v; %+v", i, opened, err, c)
		}
	}
}

// TestFallback checks for each reason that a copy falls back to user space, and that forwarding resumes
// afterwards.
func TestFallback(t *testing.T) {
	b := newBench(t, setting{alias: 7, viewAlias: 7, numberLen: 3})
	v := b.k.Viewer(0)
	number, group := int64(0), uint64(10)
	pass := func(reason string) {
		t.Helper()
		before, _ := b.k.Counts()
		number++
		p := b.up.seal(publisherID, number, 3, 0, append([]byte{0x30}, object(t, 7, group, 10, make([]byte, 100))...))
		send(t, b.publish, p, b.toRelay)
		if got, _ := receive(t, b.serve, time.Minute); !bytes.Equal(got, p) {
			t.Fatal("user space did not receive the packet")
		}
		if n, _, last, _ := v.Fallbacks(); n > 0 { // user space sends the object and the rest of its group
			v.CatchUp(n)
			group = last + 1
		}
		after, _ := b.k.Counts()
		if reason == "" && after.Forwarded != before.Forwarded+1 ||
			reason != "" && after.Fallback[reason] != before.Fallback[reason]+1 {
			t.Fatalf("want %q: %+v", reason, after)
		}
		if reason == "" {
			if got, _ := receive(t, b.view, time.Minute); got == nil {
				t.Fatal("the viewer received nothing")
			}
		}
	}
	track := func(s Subscription) {
		t.Helper()
		s.Alias = []byte{7}
		must(t, b.k.SetTrack(0, 7, 9, []Subscription{s}))
	}
	pass("route")
	b.introduce(t)
	pass("")
	track(Subscription{StartGroup: 11, LastGroup: math.MaxUint64})
	pass("filter")
	track(Subscription{StartGroup: 10, StartObject: 11, LastGroup: math.MaxUint64})
	pass("filter")
	track(Subscription{LastGroup: 9})
	pass("filter")
	track(Subscription{StartGroup: 10, StartObject: 10, LastGroup: 10})
	pass("")
	track(Subscription{LastGroup: math.MaxUint64})
	v.Allow(v.Sent() + 100)
	pass("budget")
	sent := v.Sent()
	v.Allow(1 << 30)
	pass("")
	if v.Sent() <= sent {
		t.Error("sent bytes are not counted")
	}
	v.Stop()
	pass("suspended")
	o := ViewerOptions{Remote: b.toViewer, HeaderKey: b.down.header, MaxSize: 100, MaxFrame: 1000}
	v.Start(o)
	pass("size")
	o.MaxSize, o.MaxFrame = 1000, 90
	v.Start(o)
	pass("size")
	o.MaxFrame = 1000
	v.Start(o)
	pass("")
	if next := v.TakeBack(); next != b.block+4 {
		t.Errorf("%d packet numbers were used, want 4", next-b.block)
	}
	pass("numbers")
	v.Give(2000, 2001, 1)
	v.SetKeys(1, b.down.Keys)
	pass("")
	pass("numbers")
	if next := v.TakeBack(); next != 2001 {
		t.Errorf("the block of one number ends before %d", next)
	}
	v.Give(3000, 3032, 0)
	pass("")
	b.k.Renew(Now() - 1)
	before, _ := b.k.Counts()
	number++
	p := b.up.seal(publisherID, number, 3, 0, append([]byte{0x30}, object(t, 7, 10, 10, nil)...))
	send(t, b.publish, p, b.toRelay)
	if got, _ := receive(t, b.serve, time.Minute); !bytes.Equal(got, p) {
		t.Fatal("user space did not receive the packet")
	}
	if after, _ := b.k.Counts(); after.Opened != before.Opened {
		t.Error("the programs forward after the lease expired")
	}
}

// TestMigrated checks that a viewer is suspended when its packets arrive from another address.
func TestMigrated(t *testing.T) {
	b := newBench(t, setting{alias: 7, viewAlias: 7, numberLen: 3})
	b.introduce(t)
	toRelay := netip.MustParseAddrPort("10.2.0.1:4443")
	packet := append(append([]byte{0x40}, viewerOwnID...), random(40)...)
	send(t, b.view, packet, toRelay)
	receive(t, b.serve, time.Minute)
	if !b.k.Viewer(0).On() {
		t.Fatal("suspended without an address change")
	}
	send(t, b.viewer.listen(t, "10.2.0.2:6001"), packet, toRelay)
	receive(t, b.serve, time.Minute)
	if c, _ := b.k.Counts(); b.k.Viewer(0).On() || c.Migrated != 1 {
		t.Errorf("not suspended: %+v", c)
	}
}

// TestChecksums sends publishers' packets with complete checksums, as from a network card. The
// viewer's stack verifies the copies.
func TestChecksums(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		b := newBench(t, setting{viewerV6: v6, alias: 7, viewAlias: 7, numberLen: 3, viewerID: random(rand.IntN(21))})
		b.introduce(t)
		send(t, b.publish, []byte("resolve"), b.toRelay)
		receive(t, b.serve, time.Minute)
		for i := range 200 {
			number := int64(i)
			p := b.up.seal(
				publisherID,
				number,
				3,
				0,
				append([]byte{0x30}, object(t, 7, 10, 10, random(rand.IntN(1100)))...),
			)
			b.publisher.sendFrames(t, "relay0", b.frame(t, p))
			if got, _ := receive(t, b.serve, time.Minute); !bytes.Equal(got, p) {
				t.Fatal("user space did not receive the packet")
			}
			if got, _ := receive(t, b.view, time.Minute); got == nil {
				t.Fatalf("the viewer's stack dropped packet %d", i)
			}
			v := b.k.Viewer(0)
			v.TakeBack()
			v.Give(int64(10000+i), int64(10001+i), 0)
		}
	}
}

// frame returns an Ethernet frame with a UDP packet from publisher to relay.
func (b *bench) frame(t testing.TB, payload []byte) []byte {
	t.Helper()
	udp := binary.BigEndian.AppendUint16(nil, 5000)
	udp = binary.BigEndian.AppendUint16(udp, relayPort)
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(payload)))
	udp = append(append(udp, 0, 0), payload...)
	addresses := []byte{10, 1, 0, 1, 10, 1, 0, 2}
	pseudo := append(append(addresses[:8:8], 0, 17, udp[4], udp[5]), udp...)
	binary.BigEndian.PutUint16(udp[6:], checksum(pseudo))
	ip := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0}
	ip = append(ip, addresses...)
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+len(udp)))
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	f := append([]byte(nil), b.relay.link(t, "publisher0").Attrs().HardwareAddr...)
	f = append(f, b.publisher.link(t, "relay0").Attrs().HardwareAddr...)
	return append(append(append(f, 8, 0), ip...), udp...)
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i, c := range b {
		sum += uint32(c) << (8 * (1 - i&1))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// TestManyViewers checks that a packet reaches the maximum number of viewers of a track, and that
// further subscriptions are ignored.
func TestManyViewers(t *testing.T) {
	b := newBench(t, setting{alias: 7, viewAlias: 7, numberLen: 3})
	b.introduce(t)
	var subs []Subscription
	for i := range MaxTrackViewers + 1 {
		if i < MaxTrackViewers {
			v := b.k.Viewer(i)
			v.Clear()
			v.SetKeys(0, b.down.Keys)
			v.Start(ViewerOptions{Remote: b.toViewer, HeaderKey: b.down.header, MaxSize: 1452, MaxFrame: 1200})
			v.Give(int64(100*i), int64(100*i+32), 0)
			v.Allow(1 << 20)
		}
		subs = append(subs, Subscription{Viewer: i, Alias: wire.AppendVarint(nil, uint64(i)), LastGroup: 5})
	}
	must(t, b.k.SetTrack(0, 7, 9, subs))
	payload := random(1100)
	send(t, b.publish, b.up.seal(publisherID, 5, 3, 0, append([]byte{0x30}, object(t, 7, 5, 6, payload)...)), b.toRelay)
	for i := range MaxTrackViewers {
		got, _ := receive(t, b.view, time.Minute)
		number, _, frames, err := b.down.open(got, 0)
		if err != nil || number != int64(100*i) ||
			!bytes.Equal(frames, append([]byte{0x30}, object(t, uint64(i), 5, 6, payload)...)) {
			t.Fatalf("viewer %d: packet %d, %v", i, number, err)
		}
	}
	if got, _ := receive(t, b.view, 50*time.Millisecond); got != nil {
		t.Error("SetTrack accepted one viewer too many")
	}
}

// TestSearch checks that when the kernel joins a running connection, it finds the packet number
// even if the fast path was off for a long time.
func TestSearch(t *testing.T) {
	b := newBench(t, setting{alias: 7, viewAlias: 7})
	b.introduce(t)
	found := func(number int64, within int) {
		t.Helper()
		for i := range within {
			frames := append([]byte{0x30}, object(t, 7, 1, uint64(number), []byte("x"))...)
			send(
				t,
				b.publish,
				b.up.seal(publisherID, number+int64(i), 2, 0, append(frames, make([]byte, 20)...)),
				b.toRelay,
			)
			receive(t, b.serve, time.Minute)
			records := 0
			b.k.Drain(func(Record) { records++ })
			if records > 0 {
				return
			}
		}
		c, _ := b.k.Counts()
		t.Fatalf("packet number %d not found with %d packets: %v", number, within, c.UserSpace)
	}
	found(40, 1)
	src := b.k.Source(0)
	start := func() {
		src.Stop()
		src.Start(SourceOptions{Remote: netip.MustParseAddrPort("10.1.0.1:5000"), HeaderKey: b.up.header})
	}
	start()
	found(1_000_000, 33)
	start()
	found(1_000_000+30, 1)
	start()
	found(3_000_000, 64)
}
