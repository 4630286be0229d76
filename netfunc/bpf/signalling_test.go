package bpf

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"holocast/netfunc/pathset"
	"holocast/netfunc/signal"
	"holocast/netfunc/signal/signaltest"
)

var edge4 = addr("192.0.2.254")

var testKey = []byte("0123456789abcdef0123456789abcdef")

var signalMessage = signal.Message{Destination: viewer4, Paths: 3, Nonce: 1 << 60}

// signalFrame returns a frame with a signalling packet's payload.
func (b *bench) signalFrame(payload []byte) packet {
	return packet{
		nextHop: b.lanMAC, src: addr("192.0.2.100"), dst: edge4, tos: signal.ToS,
		proto: unix.IPPROTO_UDP, body: udp(5555, signal.Port, payload),
	}
}

func message(t testing.TB, key []byte, m signal.Message) []byte {
	t.Helper()
	b, err := m.Append(nil, key)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newSignalBench returns a bench that accepts signals with testKey above nonce 100.
func newSignalBench(t testing.TB, o SenderOptions) *bench {
	o.SignalKey = testKey
	b := newBench(t, o)
	if err := b.raiseNonce(100); err != nil {
		t.Fatal(err)
	}
	ring, err := openRing(b.maps[senderMapSignals])
	if err != nil {
		t.Fatal(err)
	}
	b.signals = ring
	t.Cleanup(func() { _ = ring.close() })
	return b
}

func (b *bench) policyOf(t testing.TB, dst netip.Addr) (Policy, bool) {
	t.Helper()
	policies, err := b.Policies()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range policies {
		if p.Destination == dst {
			return p, true
		}
	}
	return Policy{}, false
}

func TestSignalApplied(t *testing.T) {
	b := newSignalBench(t, SenderOptions{})
	tests := []struct {
		name    string
		program string
		message signal.Message
		bits    uint8
	}{
		{"start", senderProgDuplicate, signal.Message{Destination: viewer4, Paths: 0x1f, Nonce: 101}, 0x1f},
		{"trim", senderProgMonitor, signal.Message{Destination: viewer4, Paths: 3, Nonce: 102}, 3},
		{"IPv6 destination", senderProgDuplicate, signal.Message{Destination: viewer6, Paths: 5, Nonce: 103}, 5},
		{"all eight paths", senderProgDuplicate, signal.Message{Destination: viewer4, Paths: 0xff, Nonce: 104}, 0xff},
		{"stop", senderProgDuplicate, signal.Message{Destination: viewer4, Paths: 0, Nonce: 105}, 0},
		{"off, IPv6", senderProgMonitor, signal.Message{Destination: viewer6, Paths: 0, Nonce: 1 << 62}, 0},
	}
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before := Now()
			o := b.run(t, test.program, b.signalFrame(message(t, testKey, test.message)).frame(), skb{})
			if o.verdict != tcShot {
				t.Errorf("verdict %d", int32(o.verdict))
			}
			if p, _ := b.policyOf(t, test.message.Destination); p.Bits != test.bits || p.Nonce != test.message.Nonce {
				t.Errorf("policy %+v", p)
			}
			s, err := b.ReadSignal(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if s.Time < before || s.Time > Now() {
				t.Errorf("time %v", s.Time)
			}
			s.Time = 0
			if want := (Signal{
				Destination: test.message.Destination, Bits: test.bits, Nonce: test.message.Nonce,
				Source: addr("192.0.2.100"), Version: signal.Version,
			}); s != want {
				t.Errorf("%+v, want %+v", s, want)
			}
			if n, err := b.Nonce(); err != nil || n != test.message.Nonce {
				t.Errorf("nonce %d, %v", n, err)
			}
			if s := mustStats(t, b.Sender); s.Applied != uint64(i+1) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Rejected signalling packets have no effect and are counted by reason.
func TestSignalRefused(t *testing.T) {
	b := newSignalBench(t, SenderOptions{})
	if err := b.SetPolicy(viewer4, 3); err != nil {
		t.Fatal(err)
	}
	good := message(t, testKey, signal.Message{Destination: viewer4, Paths: 0x1f, Nonce: 200})
	change := func(at int, to byte) []byte {
		c := bytes.Clone(good)
		c[at] = to
		return c
	}
	resigned := func(at int, to byte) []byte {
		c := change(at, to)
		mac := hmac.New(sha256.New, testKey)
		mac.Write(c[:32])
		return mac.Sum(c[:32])
	}
	fragment := b.signalFrame(good)
	fragment.fragment = 0x2000
	tests := []struct {
		name   string
		packet packet
		count  func(SenderStats) uint64
	}{
		{"wrong magic", b.signalFrame(resigned(0, 'h')), func(s SenderStats) uint64 { return s.Malformed }},
		{"version 1", b.signalFrame(resigned(4, 1)), func(s SenderStats) uint64 { return s.OtherVersion }},
		{"version 3", b.signalFrame(resigned(4, 3)), func(s SenderStats) uint64 { return s.OtherVersion }},
		{"another version, wrong HMAC", b.signalFrame(change(4, 1)), func(s SenderStats) uint64 { return s.Spoofed }},
		{"reserved bits", b.signalFrame(resigned(7, 1)), func(s SenderStats) uint64 { return s.Malformed }},
		{"too short", b.signalFrame(good[:63]), func(s SenderStats) uint64 { return s.Malformed }},
		{"too long", b.signalFrame(append(bytes.Clone(good), 0)), func(s SenderStats) uint64 { return s.Malformed }},
		{"empty", b.signalFrame(nil), func(s SenderStats) uint64 { return s.Malformed }},
		{"fragment", fragment, func(s SenderStats) uint64 { return s.Malformed }},
		{
			"no destination",
			b.signalFrame(
				message(t, testKey, signal.Message{Destination: netip.IPv6Unspecified(), Paths: 1, Nonce: 300}),
			),
			func(s SenderStats) uint64 { return s.Malformed },
		},
		{
			"IPv4 0.0.0.0",
			b.signalFrame(
				message(t, testKey, signal.Message{Destination: netip.IPv4Unspecified(), Paths: 1, Nonce: 300}),
			),
			func(s SenderStats) uint64 { return s.Malformed },
		},
		{"other policy", b.signalFrame(change(5, 1)), func(s SenderStats) uint64 { return s.Spoofed }},
		{"other nonce", b.signalFrame(change(8, 1)), func(s SenderStats) uint64 { return s.Spoofed }},
		{"other destination", b.signalFrame(change(31, 9)), func(s SenderStats) uint64 { return s.Spoofed }},
		{
			"first bit of the HMAC",
			b.signalFrame(change(32, good[32]^0x80)),
			func(s SenderStats) uint64 { return s.Spoofed },
		},
		{
			"last bit of the HMAC",
			b.signalFrame(change(63, good[63]^1)),
			func(s SenderStats) uint64 { return s.Spoofed },
		},
		{
			"other key",
			b.signalFrame(
				message(
					t,
					[]byte("another key of some bytes"),
					signal.Message{Destination: viewer4, Paths: 1, Nonce: 300},
				),
			),
			func(s SenderStats) uint64 { return s.Spoofed },
		},
		{
			"the last nonce again",
			b.signalFrame(message(t, testKey, signal.Message{Destination: viewer4, Paths: 1, Nonce: 100})),
			func(s SenderStats) uint64 { return s.Replayed },
		},
		{
			"an old nonce, another destination",
			b.signalFrame(message(t, testKey, signal.Message{Destination: viewer6, Paths: 1, Nonce: 99})),
			func(s SenderStats) uint64 { return s.Replayed },
		},
	}
	for _, test := range tests {
		for _, program := range []string{senderProgDuplicate, senderProgMonitor} {
			t.Run(test.name+", "+program, func(t *testing.T) {
				before := mustStats(t, b.Sender)
				o := b.run(t, program, test.packet.frame(), skb{})
				after := mustStats(t, b.Sender)
				if o.verdict != tcShot {
					t.Errorf("verdict %d", int32(o.verdict))
				}
				if test.count(after) != test.count(before)+1 ||
					refused(after) != refused(before)+1 || after.Applied != 0 {
					t.Errorf("counted %+v", after)
				}
				if p, _ := b.policyOf(t, viewer4); p.Bits != 3 || p.Nonce != 0 {
					t.Errorf("policy changed to %+v", p)
				}
				if _, ok := b.policyOf(t, viewer6); ok {
					t.Error("a policy was created")
				}
				if n, _ := b.Nonce(); n != 100 {
					t.Errorf("nonce changed to %d", n)
				}
			})
		}
	}

	t.Run("replay of an accepted packet", func(t *testing.T) {
		frame := b.signalFrame(good).frame()
		b.run(t, senderProgDuplicate, frame, skb{})
		before := mustStats(t, b.Sender)
		b.run(t, senderProgDuplicate, frame, skb{})
		if s := mustStats(t, b.Sender); s.Replayed != before.Replayed+1 || s.Applied != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func refused(s SenderStats) uint64 { return s.Malformed + s.Spoofed + s.OtherVersion + s.Replayed }

// A message of another version is reported. If an attacker replays a recorded one, it is only
// counted, so that it does not displace valid messages.
func TestSignalOfAnotherVersionReported(t *testing.T) {
	b := newSignalBench(t, SenderOptions{})
	of := func(version byte, nonce uint64) packet {
		m := message(t, testKey, signal.Message{Destination: viewer4, Paths: 0xff, Nonce: nonce})[:32]
		m[4] = version
		mac := hmac.New(sha256.New, testKey)
		mac.Write(m)
		return b.signalFrame(mac.Sum(m))
	}
	b.run(t, senderProgDuplicate, of(1, 99).frame(), skb{}) // below the bench's nonce
	b.run(t, senderProgDuplicate, of(1, 101).frame(), skb{})
	b.run(t, senderProgDuplicate, of(signal.Version, 101).frame(), skb{})
	for _, version := range []uint8{1, signal.Version} {
		s, err := b.ReadSignal(t.Context())
		if err != nil || s.Version != version || s.Nonce != 101 || s.Source != addr("192.0.2.100") {
			t.Errorf("%+v, %v; want version %d", s, err, version)
		}
	}
	if s := mustStats(t, b.Sender); s.OtherVersion != 2 || s.Applied != 1 {
		t.Errorf("%+v", s)
	}
}

// The programs accept and reject the same messages as package signal.
func TestSignalVectors(t *testing.T) {
	v := signaltest.Load(t)
	b := newBench(t, SenderOptions{SignalKey: v.EdgeKey})
	for _, c := range v.Messages {
		t.Run(c.Name, func(t *testing.T) {
			before := mustStats(t, b.Sender)
			if o := b.run(t, senderProgDuplicate, b.signalFrame(c.Message).frame(), skb{}); o.verdict != tcShot {
				t.Errorf("verdict %d", int32(o.verdict))
			}
			want := before
			switch c.Verdict {
			case "applied":
				want.Applied++
				if p, _ := b.policyOf(t, c.Destination); p != (Policy{c.Destination, uint8(c.Paths), c.Nonce}) {
					t.Errorf("policy %+v", p)
				}
			case "malformed":
				want.Malformed++
			case "spoofed":
				want.Spoofed++
			case "replayed":
				want.Replayed++
			default:
				want.OtherVersion++
			}
			if got := mustStats(t, b.Sender); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

// Packets that merely resemble signalling pass.
func TestSignalLookalikes(t *testing.T) {
	b := newSignalBench(t, SenderOptions{})
	good := message(t, testKey, signal.Message{Destination: viewer4, Paths: 0x1f, Nonce: 200})
	for name, change := range map[string]func(*packet){
		"other ToS":      func(p *packet) { p.tos = 0xf8 },
		"ECN":            func(p *packet) { p.tos |= 1 },
		"other port":     func(p *packet) { p.body = udp(5555, 4791, good) },
		"TCP":            func(p *packet) { p.proto = unix.IPPROTO_TCP },
		"later fragment": func(p *packet) { p.fragment = 8 },
		"tagged":         func(p *packet) { p.tags = []vlan{{unix.ETH_P_8021Q, 4}} },
		"IPv6":           func(p *packet) { p.src, p.dst = relay6, addr("2001:db8::fe") },
	} {
		t.Run(name, func(t *testing.T) {
			p := b.signalFrame(good)
			change(&p)
			for _, program := range []string{senderProgDuplicate, senderProgMonitor} {
				if o := b.run(t, program, p.frame(), skb{}); o.verdict != tcPass || !bytes.Equal(o.left, p.frame()) {
					t.Errorf("%s: verdict %d", program, int32(o.verdict))
				}
			}
			if s := mustStats(t, b.Sender); s.Applied+refused(s) != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Signalling packets for another edge are forwarded.
func TestSignalInTransit(t *testing.T) {
	b := newSignalBench(t, SenderOptions{})
	b.host.address(t, "lan", "192.0.2.254/24")
	b.host.address(t, "path1", "10.0.1.1/24")
	b.host.enable(t, "ipv4/conf/all/forwarding")
	p := b.signalFrame(message(t, testKey, signal.Message{Destination: viewer4, Paths: 0x1f, Nonce: 200}))
	p.dst = addr("10.0.1.9")
	if o := b.run(t, senderProgDuplicate, p.frame(), skb{}); o.verdict != tcPass {
		t.Errorf("in transit: verdict %d", int32(o.verdict))
	}
	if s := mustStats(t, b.Sender); s.Foreign != 1 || s.Applied != 0 {
		t.Errorf("%+v", s)
	}
	p.dst = edge4
	if o := b.run(t, senderProgDuplicate, p.frame(), skb{}); o.verdict != tcShot {
		t.Errorf("for this host, which forwards: verdict %d", int32(o.verdict))
	}
	if s := mustStats(t, b.Sender); s.Applied != 1 {
		t.Errorf("%+v", s)
	}
}

func TestSignalPolicyMapFull(t *testing.T) {
	b := newSignalBench(t, SenderOptions{MaxPolicies: 1})
	if err := b.SetPolicy(viewer4, 1); err != nil {
		t.Fatal(err)
	}
	b.run(
		t,
		senderProgDuplicate,
		b.signalFrame(message(t, testKey, signal.Message{Destination: viewer6, Paths: 3, Nonce: 200})).frame(),
		skb{},
	)
	s, err := b.ReadSignal(t.Context())
	if err != nil || !s.Full {
		t.Errorf("%+v, %v", s, err)
	}
	if s := mustStats(t, b.Sender); s.PolicyFull != 1 {
		t.Errorf("%+v", s)
	}
	if p, _ := b.policyOf(t, viewer4); p.Bits != 1 {
		t.Errorf("%+v", p)
	}
}

// Policies that are off make room for others, unless they are kept.
func TestRemoveOff(t *testing.T) {
	b := newSignalBench(t, SenderOptions{MaxPolicies: 2})
	nonce := uint64(200)
	told := func(dst netip.Addr, bits uint8) {
		nonce++
		b.run(
			t,
			senderProgDuplicate,
			b.signalFrame(message(t, testKey, signal.Message{
				Destination: dst, Paths: pathset.Set(bits),
				Nonce: nonce,
			})).
				frame(),
			skb{},
		)
	}
	kept, other := addr("198.51.100.1"), addr("198.51.100.2")
	told(kept, 0)
	told(other, 0)
	told(viewer4, 3)
	if _, ok := b.policyOf(t, viewer4); ok {
		t.Fatal("the map is not full")
	}
	if err := b.RemoveOff(func(a netip.Addr) bool { return a == kept }); err != nil {
		t.Fatal(err)
	}
	told(viewer4, 3)
	if p, _ := b.policyOf(t, viewer4); p.Bits != 3 {
		t.Errorf("%+v", p)
	}
	if err := b.RemoveOff(func(netip.Addr) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if policies, err := b.Policies(); err != nil || len(policies) != 1 || policies[0].Destination != viewer4 {
		t.Errorf("%+v, %v", policies, err)
	}
}

// Without a key no signal is valid, not even one with the HMAC of an empty key.
func TestSignalWithoutKey(t *testing.T) {
	b := newBench(t, SenderOptions{})
	for _, key := range [][]byte{nil, testKey} {
		b.run(
			t,
			senderProgDuplicate,
			b.signalFrame(message(t, key, signal.Message{Destination: viewer4, Paths: 1, Nonce: 1 << 62})).frame(),
			skb{},
		)
	}
	if s := mustStats(t, b.Sender); s.Spoofed != 2 || s.Applied != 0 {
		t.Errorf("%+v", s)
	}
}

// The program's HMAC equals crypto/hmac's for various keys and messages.
func TestSignalHMAC(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, length := range []int{1, 20, 32, 64, 65, 131} {
		t.Run(fmt.Sprint("key of ", length), func(t *testing.T) {
			key := make([]byte, length)
			for i := range key {
				key[i] = byte(random.Uint32())
			}
			spec, err := senderSpec(SenderOptions{SignalKey: key})
			c := unpinned(t, spec, err)
			s := &Sender{maps: c.Maps}
			h := newHost(t)
			run := func(payload []byte) error {
				p := packet{
					src:   relay4,
					dst:   edge4,
					tos:   signal.ToS,
					proto: unix.IPPROTO_UDP,
					body:  udp(1, signal.Port, payload),
				}
				_, err := c.Programs[senderProgMonitor].Run(&ebpf.RunOptions{Data: p.frame()})
				return err
			}
			h.must(t, func() error {
				for i := range 20 {
					var dst [16]byte
					binary.NativeEndian.PutUint64(dst[:], random.Uint64())
					binary.NativeEndian.PutUint64(dst[8:], random.Uint64())
					m := signal.Message{
						Destination: netip.AddrFrom16(dst),
						Paths:       pathset.Set(random.Uint32()),
						Nonce:       uint64(i+1)<<40 | random.Uint64N(1<<40),
					}
					b, err := m.Append(nil, key)
					if err := errors.Join(err, run(b)); err != nil {
						return err
					}
					if s, err := s.Stats(); err != nil || s.Applied != uint64(i+1) {
						return fmt.Errorf("message %x was rejected: %+v, %w", b, s, err)
					}
					bit := 256 + random.IntN(256) // of the HMAC
					b[bit/8] ^= 1 << (bit % 8)
					if err := run(b); err != nil {
						return err
					}
					if s, err := s.Stats(); err != nil || s.Spoofed != uint64(i+1) {
						return fmt.Errorf("message with bit %d changed was accepted: %+v, %w", bit, s, err)
					}
				}
				return nil
			})
		})
	}
}

// The states for RFC 4231's keys match the standard library's.
func TestHMACStates(t *testing.T) {
	for _, key := range [][]byte{bytes.Repeat([]byte{0x0b}, 20), []byte("Jefe"), bytes.Repeat([]byte{0xaa}, 131), {}} {
		inner, outer, err := hmacStates(key)
		if err != nil {
			t.Fatal(err)
		}
		text := []byte("what do ya want for nothing?")
		got := resume(t, outer, resume(t, inner, text))
		mac := hmac.New(sha256.New, key)
		mac.Write(text)
		if want := mac.Sum(nil); !bytes.Equal(got, want) {
			t.Errorf("key %x: %x, want %x", key, got, want)
		}
	}
}

// marshaling is a digest that marshals its state as given.
type marshaling struct {
	hash.Hash
	state string
	err   error
}

func (m marshaling) MarshalBinary() ([]byte, error) { return []byte(m.state), m.err }

func TestDigestStateErrors(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		digest hash.Hash
		want   string
		wraps  error
	}{
		"no state": {
			digest: struct{ hash.Hash }{},
			want:   "signalling key: struct { hash.Hash } cannot marshal its state",
		},
		"failed": {
			digest: marshaling{err: failed},
			want:   "signalling key: marshal the state of bpf.marshaling: failed", wraps: failed,
		},
		"short": {
			digest: marshaling{state: "sha\x03" + strings.Repeat("x", 31)},
			want:   "signalling key: the state of bpf.marshaling has an unknown encoding",
		},
		"other magic": {
			digest: marshaling{state: "sha\x02" + strings.Repeat("x", 32)},
			want:   "signalling key: the state of bpf.marshaling has an unknown encoding",
		},
	} {
		_, err := digestState(c.digest)
		if err == nil || err.Error() != c.want || errors.Unwrap(err) != c.wraps {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// resume continues hashing text from a state after one block.
func resume(t *testing.T, state [8]uint32, text []byte) []byte {
	t.Helper()
	b := []byte("sha\x03")
	for _, word := range state {
		b = binary.BigEndian.AppendUint32(b, word)
	}
	b = append(b, make([]byte, 64)...)
	b = binary.BigEndian.AppendUint64(b, 64)
	h := sha256.New()
	if err := h.(interface{ UnmarshalBinary([]byte) error }).UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	h.Write(text)
	return h.Sum(nil)
}
