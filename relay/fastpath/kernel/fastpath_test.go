//go:build linux && (amd64 || arm64)

package kernel

import (
	"bytes"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"holocast/internal/bpfload"
	"holocast/internal/moqt/wire"
)

const relayPort = 4443

var (
	publisherID = []byte{1, 2, 3, 4} // connection IDs chosen by the relay
	viewerOwnID = []byte{5, 6, 7, 8}
)

// bench is a publisher, a relay and a viewer, connected by two cables.
type bench struct {
	k                        *Forwarder
	publisher, relay, viewer *host
	publish, serve, view     *net.UDPConn
	toRelay, toViewer        netip.AddrPort
	up, down                 keys
	viewerID                 []byte
	block                    int64
	attached                 *Attachment // towards the viewer
}

// setting configures a bench.
type setting struct {
	publisherV6, viewerV6    bool
	viewerID                 []byte
	sourcePrefix, viewPrefix []byte
	alias, viewAlias         uint64
	numberLen                int
	unprotected              bool
}

func newBench(t testing.TB, s setting) *bench {
	t.Helper()
	b := &bench{
		publisher: newHost(t),
		relay:     newHost(t),
		viewer:    newHost(t),
		up:        newKeys(),
		down:      newKeys(),
		viewerID:  s.viewerID,
		block:     1000,
	}
	cable(
		t,
		b.publisher,
		"relay0",
		[]string{"10.1.0.1/24", "fd01::1/64"},
		b.relay,
		"publisher0",
		[]string{"10.1.0.2/24", "fd01::2/64"},
	)
	cable(
		t,
		b.relay,
		"viewer0",
		[]string{"10.2.0.1/24", "fd02::1/64"},
		b.viewer,
		"relay0",
		[]string{"10.2.0.2/24", "fd02::2/64"},
	)
	address := func(v6 bool, four, six string) string {
		if v6 {
			return six
		}
		return four
	}
	from := address(s.publisherV6, "10.1.0.1:5000", "[fd01::1]:5000")
	at := address(s.viewerV6, "10.2.0.2:6000", "[fd02::2]:6000")
	b.publish, b.serve, b.view = b.publisher.listen(t, from), b.relay.listen(t, "[::]:4443"), b.viewer.listen(t, at)
	b.toRelay = netip.MustParseAddrPort(address(s.publisherV6, "10.1.0.2:4443", "[fd01::2]:4443"))
	b.toViewer = netip.MustParseAddrPort(at)

	k, err := Open(Options{Port: relayPort, ConnIDLen: 4, Unprotected: s.unprotected})
	if err != nil {
		t.Fatal(err)
	}
	b.k = k
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"publisher0", "viewer0"} {
		index := b.relay.link(t, name).Attrs().Index
		b.relay.must(t, func() error {
			a, err := k.Attach(index, false)
			t.Cleanup(func() { _ = a.Detach() })
			b.attached = a
			return err
		})
	}
	k.Renew(Now() + time.Hour)
	src := k.Source(0)
	src.Clear()
	src.SetKeys(0, b.up.Keys)
	src.Start(SourceOptions{Remote: netip.MustParseAddrPort(from), HeaderKey: b.up.header, Prefix: s.sourcePrefix})
	must(t, k.SetConnection(publisherID, Role{Source: 0, Viewer: -1}))
	must(t, k.SetConnection(viewerOwnID, Role{Source: -1, Viewer: 0}))
	must(
		t,
		k.SetTrack(
			0,
			s.alias,
			9,
			[]Subscription{{Viewer: 0, Alias: wire.AppendVarint(nil, s.viewAlias), LastGroup: math.MaxUint64}},
		),
	)
	must(t, k.AddRoute(b.toViewer))
	v := k.Viewer(0)
	v.Clear()
	v.SetKeys(0, b.down.Keys)
	v.Start(
		ViewerOptions{
			Remote:    b.toViewer,
			ConnID:    s.viewerID,
			HeaderKey: b.down.header,
			Prefix:    s.viewPrefix,
			MaxSize:   1452,
			MaxFrame:  65535,
		},
	)
	v.Give(b.block, b.block+32, 0)
	v.Allow(1 << 30)
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// introduce makes the relay's stack send a packet to the viewer, so that the programs learn the
// route.
func (b *bench) introduce(t testing.TB) {
	t.Helper()
	send(t, b.serve, []byte("hello"), b.toViewer)
	if got, _ := receive(t, b.view, time.Minute); string(got) != "hello" {
		t.Fatalf("the viewer received %q", got)
	}
}

// object encodes an OBJECT_DATAGRAM.
func object(t testing.TB, alias, group, id uint64, payload []byte) []byte {
	t.Helper()
	d := wire.Datagram{TrackAlias: alias, Group: group, Object: id, Priority: 5, Payload: payload}
	b, err := d.Append(nil)
	must(t, err)
	return b
}

// TestForward forwards an object for each combination of addresses and headers, and decrypts the
// viewer's packet.
func TestForward(t *testing.T) {
	tests := map[string]setting{
		"IPv4":               {alias: 7, viewAlias: 300, numberLen: 2},
		"IPv6":               {publisherV6: true, viewerV6: true, alias: 1, viewAlias: 1, numberLen: 4},
		"IPv4 to IPv6":       {viewerV6: true, alias: 1 << 20, viewAlias: 2, numberLen: 1},
		"IPv6 to IPv4":       {publisherV6: true, alias: 1 << 60, viewAlias: 1<<64 - 1, numberLen: 3},
		"odd connection ID":  {viewerID: []byte{9}, alias: 0, viewAlias: 0, numberLen: 2},
		"even connection ID": {viewerID: bytes.Repeat([]byte{8}, 20), alias: 5, viewAlias: 6, numberLen: 2},
		"connection ID, v6": {
			viewerV6:  true,
			viewerID:  bytes.Repeat([]byte{8}, 19),
			alias:     5,
			viewAlias: 6,
			numberLen: 2,
		},
		"WebTransport to QUIC": {sourcePrefix: []byte{0}, alias: 5, viewAlias: 6, numberLen: 2},
		"QUIC to WebTransport": {viewPrefix: []byte{0x40, 0x81}, alias: 5, viewAlias: 6, numberLen: 2},
		"WebTransport on both": {
			sourcePrefix: []byte{0x80, 1, 2, 3},
			viewPrefix:   []byte{0xc0, 0, 0, 0, 0, 0, 0, 1},
			alias:        5,
			viewAlias:    6,
			numberLen:    2,
		},
	}
	for name, s := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, s)
			b.introduce(t)
			for i, size := range []int{1, 2, 3, 100, 1101, 1102, 1103, 1150} {
				payload := random(size)
				frames := append([]byte{0x30}, s.sourcePrefix...)
				frames = append(frames, object(t, s.alias, 70000, uint64(i), payload)...)
				packet := b.up.seal(publisherID, int64(i), s.numberLen, 0, frames)
				send(t, b.publish, packet, b.toRelay)
				if got, _ := receive(t, b.serve, time.Minute); !bytes.Equal(got, packet) {
					t.Fatalf("user space received %x, not the original packet", got)
				}
				got, from := receive(t, b.view, time.Minute)
				if got == nil {
					c, _ := b.k.Counts()
					t.Fatalf("%d bytes: the viewer received nothing: %+v", size, c)
				}
				if from.Port() != relayPort {
					t.Fatalf("from %v", from)
				}
				number, phase, opened, err := b.down.open(got, len(s.viewerID))
				if err != nil {
					t.Fatalf("%d bytes: the viewer cannot open its packet: %v", size, err)
				}
				want := append([]byte{0x30}, s.viewPrefix...)
				want = append(want, object(t, s.viewAlias, 70000, uint64(i), payload)...)
				if number != b.block+int64(i) || phase != 0 || !bytes.Equal(opened, want) ||
					!bytes.Equal(got[1:1+len(s.viewerID)], s.viewerID) {
					t.Fatalf(
						"packet %d, phase %d, to %x:\n%x\nwant\n%x",
						number,
						phase,
						got[1:1+len(s.viewerID)],
						opened,
						want,
					)
				}
				var records []Record
				before := b.k.Drained()
				b.k.Drain(func(r Record) { records = append(records, r) })
				if before || !b.k.Drained() {
					t.Fatalf("Drained before Drain: %v, after: %v", before, b.k.Drained())
				}
				if len(records) != 1 || records[0].Number != number || records[0].Group != 70000 ||
					records[0].Object != uint64(i) ||
					records[0].Size != len(got) ||
					records[0].Track != 9 ||
					records[0].Time > Now() {
					t.Fatalf("records: %+v", records)
				}
			}
			if sent := b.k.Viewer(0).Sent(); sent == 0 {
				t.Error("bytes sent to the viewer are not counted")
			}
		})
	}
}

// TestOrder checks that objects that would overtake a fallback fall back too: all objects until
// user space has passed it on, and the rest of its group even after that.
func TestOrder(t *testing.T) {
	b := newBench(t, setting{alias: 7, viewAlias: 7, numberLen: 3})
	b.introduce(t)
	v := b.k.Viewer(0)
	number := int64(0)
	publish := func(group, id uint64, reason string) { // expected reason for a fallback; "" = none
		t.Helper()
		before, err := b.k.Counts()
		must(t, err)
		left, _, _, _ := v.Fallbacks()
		number++
		send(
			t,
			b.publish,
			b.up.seal(publisherID, number, 3, 0, append([]byte{0x30}, object(t, 7, group, id, nil)...)),
			b.toRelay,
		)
		if got, _ := receive(t, b.serve, time.Minute); got == nil {
			t.Fatal("user space did not receive the packet")
		}
		after, err := b.k.Counts()
		must(t, err)
		n, track, lastGroup, lastObject := v.Fallbacks()
		if reason == "" {
			if after.Forwarded != before.Forwarded+1 || n != left {
				t.Fatalf("object %d/%d fell back: %v", group, id, after.Fallback)
			}
			return
		}
		if after.Fallback[reason] != before.Fallback[reason]+1 || n != left+1 || track != 9 || lastGroup != group ||
			lastObject != id {
			t.Fatalf("object %d/%d: forwarded %d, fallbacks %v; the last of %d is %d/%d of track %d",
				group, id, after.Forwarded, after.Fallback, n, lastGroup, lastObject, track)
		}
	}
	publish(1, 0, "")
	v.Allow(v.Sent())
	publish(1, 1, "budget")
	v.Allow(1 << 30) // there is room again, but the object is queued in user space
	publish(1, 2, "order")
	publish(2, 0, "order")
	publish(2, 1, "order")
	publish(3, 0, "order")
	v.CatchUp(5)
	publish(3, 1, "order") // of the same group
	v.CatchUp(6)
	publish(4, 0, "")
	publish(4, 1, "")
	v.TakeBack()
	publish(5, 0, "numbers")
	v.Give(2000, 2032, 0)
	publish(6, 0, "") // groups of one object do not wait
	publish(7, 0, "")
	publish(5, 1, "order")
	publish(8, 0, "order")
	v.CatchUp(9)
	publish(9, 0, "")
}

// TestKeyStreams seals packets without a precomputed key stream, with one for another number, with one
// that is too short, and with a matching one. The viewer sees no difference.
func TestKeyStreams(t *testing.T) {
	b := newBench(t, setting{alias: 7, viewAlias: 7, numberLen: 3})
	b.introduce(t)
	streams := b.k.KeyStreams(0)
	if streams == nil {
		t.Skip("key streams are not precomputed on this CPU")
	}
	c, err := NewCipher(b.down.Keys)
	must(t, err)
	streams.Clear()
	for i := int64(0); i < 200; i++ {
		number := b.block + i
		if i%32 == 0 && i > 0 {
			b.k.Viewer(0).TakeBack()
			b.k.Viewer(0).Give(number, number+32, 0)
		}
		payload := random(16 + rand.IntN(1134)) // half the length, in 8-byte words, which is too short for the packet
		before, err := b.k.Counts()
		must(t, err)
		fits := false
		switch i % 4 {
		case 1:
			streams.Make(c, number, len(payload)+20)
			fits = true
		case 2:
			streams.Make(c, number-PrecomputedPackets, 1200)
		case 3:
			streams.Make(c, number, len(payload)/2)
		}
		o := object(t, 7, 1, uint64(i), payload)
		send(t, b.publish, b.up.seal(publisherID, i, 3, 0, append([]byte{0x30}, o...)), b.toRelay)
		receive(t, b.serve, time.Minute)
		got, _ := receive(t, b.view, time.Minute)
		n, _, opened, err := b.down.open(got, 0)
		if err != nil || n != number || !bytes.Equal(opened, append([]byte{0x30}, o...)) {
			t.Fatalf("packet %d of %d bytes: number %d, %x, %v", i, len(payload), n, opened, err)
		}
		after, err := b.k.Counts()
		must(t, err)
		if ahead := after.Precomputed > before.Precomputed; ahead != fits {
			t.Fatalf("packet %d of %d bytes: precomputed key stream used: %v", i, len(payload), ahead)
		}
		b.k.Drain(func(Record) {})
	}
}

// TestDetachedByForce detaches the programs behind their owner's back. The owner notices and
// attaches them again. Each viewer loses one packet and is suspended.
func TestDetachedByForce(t *testing.T) {
	for _, clsact := range []bool{false, true} {
		t.Run(map[bool]string{false: "TCX", true: "clsact"}[clsact], func(t *testing.T) {
			b := newBench(t, setting{alias: 7, viewAlias: 7, numberLen: 3})
			down := b.relay.link(t, "viewer0").Attrs().Index
			again := func() {
				t.Helper()
				b.relay.must(t, func() (err error) {
					if err = b.attached.Detach(); err == nil {
						b.attached, err = b.k.Attach(down, clsact)
					}
					return err
				})
				t.Cleanup(func() { b.relay.must(t, b.attached.Detach) })
			}
			intact := func() (ok bool) {
				b.relay.must(t, func() error { ok = b.attached.Intact(); return nil })
				return ok
			}
			number := int64(0)
			pass := func(there bool) {
				t.Helper()
				number++
				send(
					t,
					b.publish,
					b.up.seal(publisherID, number, 3, 0, append([]byte{0x30}, object(t, 7, 1, uint64(number), nil)...)),
					b.toRelay,
				)
				if got, _ := receive(t, b.serve, time.Minute); got == nil {
					t.Fatal("user space did not receive the packet")
				}
				wait := time.Minute
				if !there {
					wait = 100 * time.Millisecond // user space receives packets after the programs are done
				}
				if got, _ := receive(t, b.view, wait); there && got == nil {
					c, _ := b.k.Counts()
					t.Fatalf("the viewer did not receive the packet: %+v", c)
				} else if !there && got != nil {
					t.Fatalf("the viewer received %x", got)
				}
			}
			again()
			if !clsact && len(b.attached.links) == 0 {
				t.Skip("TCX needs Linux 6.6: everything is attached with clsact")
			}
			b.introduce(t)
			pass(true)
			if !intact() {
				t.Error("Intact is false with the programs attached")
			}
			b.relay.must(t, func() error {
				if clsact {
					return netlink.QdiscDel(bpfload.Clsact(down))
				}
				return b.attached.links[0].Detach()
			})
			if intact() {
				t.Error("Intact is true with the programs detached")
			}
			pass(false)
			pass(false)
			if c, err := b.k.Counts(); err != nil || c.Failed != 1 || c.Fallback["suspended"] != 1 {
				t.Errorf("%+v, %v", c, err)
			}
			again()
			b.k.Viewer(0).
				Start(ViewerOptions{Remote: b.toViewer, HeaderKey: b.down.header, MaxSize: 1452, MaxFrame: 65535})
			pass(true)
			if !intact() {
				t.Error("Intact is false with the programs attached again")
			}
		})
	}
}

// TestLaboratory checks that unprotected packets do not leave the machine.
func TestLaboratory(t *testing.T) {
	privileged(t)
	k, err := Open(Options{Port: relayPort, ConnIDLen: 4, Unprotected: true})
	must(t, err)
	t.Cleanup(func() { must(t, k.Close()) })
	interfaces, err := net.Interfaces()
	must(t, err)
	for _, i := range interfaces {
		a, err := k.Attach(i.Index, false)
		if loopback := i.Flags&net.FlagLoopback != 0; (err == nil) != loopback {
			t.Errorf("interface %s: %v", i.Name, err)
		}
		if err == nil {
			must(t, a.Detach())
		}
	}
}
