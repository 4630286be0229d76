package steer

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
)

// passes is a reference implementation of the filter.
func passes(t tagger, packet []byte) bool {
	own := func(at int) bool {
		if len(packet) < at+IDLength {
			return false
		}
		return packet[at+IDLength-1] == t.tag([IDLength - 1]byte(packet[at:]))
	}
	if len(packet) == 0 {
		return false
	}
	if packet[0]&0x80 == 0 {
		return packet[0]&0x40 != 0 && len(packet) >= shortest && own(1)
	}
	if len(packet) < 5 {
		return false
	}
	version, initial := binary.BigEndian.Uint32(packet[1:]), byte(0)
	switch version {
	case 0:
		return false
	case version1:
	case version2:
		initial = 0x10
	default:
		return len(packet) >= firstBytes
	}
	if len(packet) < 6 {
		return false
	}
	n := int(packet[5])
	if n == IDLength {
		return own(6)
	}
	return n > IDLength && n <= 20 && len(packet) >= firstBytes && packet[6+n] <= 20 && packet[0]&0x30 == initial
}

// machine runs a filter as the kernel does, starting at the UDP header. Packets have no IP header
// here, and so no addresses.
func machine(t testing.TB, tags tagger, first shares) func(packet []byte) bool {
	t.Helper()
	vm, err := bpf.NewVM(tags.filter(first))
	if err != nil {
		t.Fatal(err)
	}
	return func(packet []byte) bool {
		n, err := vm.Run(append(make([]byte, udpHeader), packet...))
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	}
}

// short returns a short-header packet.
func short(id []byte) []byte { return append(append([]byte{0x40}, id...), make([]byte, 30)...) }

// key returns a test key.
var key = [32]byte{1, 2, 3}

// packets returns packets of each kind, grouped by the filter's verdict.
func packets(t testing.TB, tags tagger) (wanted, junk map[string][]byte) {
	t.Helper()
	id, err := ids{3, tags}.GenerateConnectionID()
	if err != nil {
		t.Fatal(err)
	}
	own := id.Bytes()
	other := append([]byte(nil), own...)
	other[IDLength-1]++
	build := func(first byte, version uint32, id []byte, source byte, size int) []byte {
		b := binary.BigEndian.AppendUint32([]byte{first}, version)
		b = append(append(append(b, byte(len(id))), id...), source)
		return append(b, make([]byte, size-len(b))...)
	}
	chosen := make([]byte, 8)
	wanted = map[string][]byte{
		"short header":                       short(own),
		"first packet":                       build(0xc0, version1, chosen, 0, firstBytes),
		"first packet with the longest IDs":  build(0xc0, version1, make([]byte, 20), 20, firstBytes),
		"first packet of version 2":          build(0xd0, version2, chosen, 5, firstBytes),
		"first packet of an unknown version": build(0x80, 0x1a2a3a4a, make([]byte, 30), 0, firstBytes),
		"Initial after the first":            build(0xc0, version1, own, 0, 50),
		"Handshake":                          build(0xe0, version1, own, 0, 50),
		"Handshake of version 2":             build(0xf0, version2, own, 0, 50),
		"many together":                      append(short(own), make([]byte, 60000)...),
	}
	junk = map[string][]byte{
		"empty":                          {},
		"one byte":                       {0x40},
		"no QUIC":                        append([]byte{0}, short(own)[1:]...),
		"short header, another ID":       short(other),
		"short header, too short":        short(own)[:shortest-1],
		"version alone":                  {0xc0, 0, 0, 0, 1},
		"small first packet":             build(0xc0, version1, chosen, 0, firstBytes-1),
		"small, of an unknown version":   build(0x80, 0x1a2a3a4a, chosen, 0, firstBytes-1),
		"version negotiation":            build(0xc0, 0, chosen, 0, firstBytes),
		"ID shorter than clients choose": build(0xc0, version1, chosen[:4], 0, firstBytes),
		"ID longer than allowed":         build(0xc0, version1, make([]byte, 21), 0, firstBytes),
		"source's ID longer":             build(0xc0, version1, chosen, 21, firstBytes),
		"0-RTT":                          build(0xd0, version1, chosen, 0, firstBytes),
		"0-RTT of version 2":             build(0xe0, version2, chosen, 0, firstBytes),
		"Handshake of another's":         build(0xe0, version1, other, 0, 50),
		"Handshake of a new connection":  build(0xe0, version1, chosen, 0, firstBytes),
		"Retry":                          build(0xf0, version1, chosen, 0, firstBytes),
	}
	return wanted, junk
}

func TestFilter(t *testing.T) {
	tags := newTagger(&key)
	run := machine(t, tags, shares{rest: 1})
	wanted, junk := packets(t, tags)
	for name, p := range wanted {
		if !run(p) || !passes(tags, p) {
			t.Errorf("%s is dropped", name)
		}
	}
	for name, p := range junk {
		if run(p) || passes(tags, p) {
			t.Errorf("%s passes", name)
		}
	}
	// The tag distinguishes the relay's own IDs, even from before a restart, from random IDs and IDs of
	// other relays.
	known, foreign, random := 0, 0, 0
	for i := range 2000 {
		id, err := ids{byte(i), newTagger(&key)}.GenerateConnectionID()
		if err != nil {
			t.Fatal(err)
		}
		count := func(n *int, id []byte) {
			if run(short(id)) {
				*n++
			}
		}
		count(&known, id.Bytes())
		another, _ := ids{byte(i), newTagger(nil)}.GenerateConnectionID()
		count(&foreign, another.Bytes())
		noise := id.Bytes()
		noise[IDLength-1] ^= byte(1 + i%255)
		count(&random, noise)
	}
	if known != 2000 || foreign > 60 || random != 0 {
		t.Errorf("of 2000 IDs of each kind %d own, %d foreign and %d wrongly tagged ones pass", known, foreign, random)
	}
}

// TestShares checks that a share of the connections' first packets passes, and that all of a
// connection's packets pass or none. Another salt selects other connections. All other packets are
// unaffected.
func TestShares(t *testing.T) {
	tags := newTagger(&key)
	wanted, junk := packets(t, tags)
	none, half, again := machine(
		t,
		tags,
		shares{},
	), machine(
		t,
		tags,
		shares{rest: 0.5, salt: 1},
	), machine(
		t,
		tags,
		shares{rest: 0.5, salt: 2},
	)
	for name, p := range wanted {
		if first := strings.HasPrefix(name, "first packet"); none(p) == first {
			t.Errorf("%s passes: %t with a share of 0", name, first)
		}
	}
	for name, p := range junk {
		if half(p) || again(p) {
			t.Errorf("%s passes", name)
		}
	}
	const n = 4000
	for what, id := range map[string]func(i int) uint64{
		"random": func(int) uint64 { return rand.Uint64() },
		"counts": func(i int) uint64 { return uint64(i) << 32 },
	} {
		passed, other := 0, 0
		for i := range n {
			p := bytes.Clone(wanted["first packet"])
			binary.BigEndian.PutUint64(p[6:], id(i))
			first, second := half(p), half(append(p, 1))
			if first != second {
				t.Fatalf("%s: only one of two packets of a connection passes", what)
			}
			if first {
				passed++
			}
			if again(p) != first {
				other++
			}
		}
		for _, count := range []int{passed, other} {
			if count < n*4/10 || count > n*6/10 {
				t.Errorf("%s: %d of %d pass, %d change with another salt; want half", what, passed, n, other)
			}
		}
	}
}

func FuzzFilter(f *testing.F) {
	tags := newTagger(&key)
	wanted, junk := packets(f, tags)
	for _, list := range []map[string][]byte{wanted, junk} {
		for _, p := range list {
			f.Add(p)
		}
	}
	run := machine(f, tags, shares{rest: 1})
	f.Fuzz(func(t *testing.T, packet []byte) {
		if got, want := run(packet), passes(tags, packet); got != want {
			t.Errorf("passes: %t, want %t", got, want)
		}
	})
}
