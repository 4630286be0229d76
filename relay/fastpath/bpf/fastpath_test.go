//go:build linux && (amd64 || arm64)

package bpf

import (
	"bytes"
	"math"
	"net"
	"net/netip"
	"testing"
	"time"

	"holocast/internal/moqt/wire"
)

const relayPort = 4443

var (
	publisherID = []byte{1, 2, 3, 4} // connection IDs that the relay chose
	viewerOwnID = []byte{5, 6, 7, 8}
)

// bench is a publisher, a relay and a viewer, joined by two cables.
type bench struct {
	k                        *Kernel
	publisher, relay, viewer *host
	publish, serve, view     *net.UDPConn
	toRelay, toViewer        netip.AddrPort
	up, down                 keys
	viewerID                 []byte
	block                    int64
}

// setting is what a bench is made with.
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
	b := &bench{publisher: newHost(t), relay: newHost(t), viewer: newHost(t), up: newKeys(), down: newKeys(), viewerID: s.viewerID, block: 1000}
	cable(t, b.publisher, "relay0", []string{"10.1.0.1/24", "fd01::1/64"}, b.relay, "publisher0", []string{"10.1.0.2/24", "fd01::2/64"})
	cable(t, b.relay, "viewer0", []string{"10.2.0.1/24", "fd02::1/64"}, b.viewer, "relay0", []string{"10.2.0.2/24", "fd02::2/64"})
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
	must(t, k.SetTrack(0, s.alias, 9, []Subscription{{Viewer: 0, Alias: wire.AppendVarint(nil, s.viewAlias), LastGroup: math.MaxUint64}}))
	must(t, k.AddRoute(b.toViewer))
	v := k.Viewer(0)
	v.Clear()
	v.SetKeys(0, b.down.Keys)
	v.Start(ViewerOptions{Remote: b.toViewer, ConnID: s.viewerID, HeaderKey: b.down.header, Prefix: s.viewPrefix, MaxSize: 1452, MaxFrame: 65535})
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

// introduce has the relay's stack send the viewer a packet, from which the programs learn
// the route.
func (b *bench) introduce(t testing.TB) {
	t.Helper()
	send(t, b.serve, []byte("hello"), b.toViewer)
	if got, _ := receive(t, b.view, 5*time.Second); string(got) != "hello" {
		t.Fatalf("the viewer was sent %q", got)
	}
}

// object is an OBJECT_DATAGRAM.
func object(t testing.TB, alias, group, id uint64, payload []byte) []byte {
	t.Helper()
	d := wire.Datagram{TrackAlias: alias, Group: group, Object: id, Priority: 5, Payload: payload}
	b, err := d.Append(nil)
	must(t, err)
	return b
}

// TestForward sends an object through the kernel in every combination of addresses and
// headers, and opens what the viewer gets.
func TestForward(t *testing.T) {
	tests := map[string]setting{
		"IPv4":                 {alias: 7, viewAlias: 300, numberLen: 2},
		"IPv6":                 {publisherV6: true, viewerV6: true, alias: 1, viewAlias: 1, numberLen: 4},
		"IPv4 to IPv6":         {viewerV6: true, alias: 1 << 20, viewAlias: 2, numberLen: 1},
		"IPv6 to IPv4":         {publisherV6: true, alias: 1 << 60, viewAlias: 1<<64 - 1, numberLen: 3},
		"connection ID, odd":   {viewerID: []byte{9}, alias: 0, viewAlias: 0, numberLen: 2},
		"connection ID, even":  {viewerID: bytes.Repeat([]byte{8}, 20), alias: 5, viewAlias: 6, numberLen: 2},
		"connection ID, v6":    {viewerV6: true, viewerID: bytes.Repeat([]byte{8}, 19), alias: 5, viewAlias: 6, numberLen: 2},
		"WebTransport to QUIC": {sourcePrefix: []byte{0}, alias: 5, viewAlias: 6, numberLen: 2},
		"QUIC to WebTransport": {viewPrefix: []byte{0x40, 0x81}, alias: 5, viewAlias: 6, numberLen: 2},
		"WebTransport on both": {sourcePrefix: []byte{0x80, 1, 2, 3}, viewPrefix: []byte{0xc0, 0, 0, 0, 0, 0, 0, 1}, alias: 5, viewAlias: 6, numberLen: 2},
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
				if got, _ := receive(t, b.serve, 5*time.Second); !bytes.Equal(got, packet) {
					t.Fatalf("user space got %x, not the packet as it came", got)
				}
				got, from := receive(t, b.view, 5*time.Second)
				if got == nil {
					c, _ := b.k.Counts()
					t.Fatalf("%d bytes: the viewer got nothing: %+v", size, c)
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
				if number != b.block+int64(i) || phase != 0 || !bytes.Equal(opened, want) || !bytes.Equal(got[1:1+len(s.viewerID)], s.viewerID) {
					t.Fatalf("packet %d, phase %d, to %x:\n%x\nwant\n%x", number, phase, got[1:1+len(s.viewerID)], opened, want)
				}
				var records []Record
				b.k.Drain(func(r Record) { records = append(records, r) })
				if len(records) != 1 || records[0].Number != number || records[0].Group != 70000 || records[0].Object != uint64(i) ||
					records[0].Size != len(got) || records[0].Track != 9 || records[0].Time > Now() {
					t.Fatalf("records: %+v", records)
				}
			}
			if sent := b.k.Viewer(0).Sent(); sent == 0 {
				t.Error("the viewer's bytes are not counted")
			}
		})
	}
}

// TestLaboratory: packets without protection do not leave the machine.
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
