package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ruling is the expected treatment of a frame.
type ruling int

const (
	untouched ruling = iota // pass unchanged
	replica                 // pass the first frame with its key, DSCP restored; drop the others
)

// rule models the receiver in Go, written from its specification rather than from the C code. It
// returns the treatment of a frame and the key shared by its replicas. Packets without an ID may
// share a key without being replicas.
func rule(frame []byte) (what ruling, key string, numbered bool) {
	at := 12
	next16 := func() (v uint16, ok bool) {
		if len(frame) < at+2 {
			return 0, false
		}
		v = binary.BigEndian.Uint16(frame[at:])
		at += 2
		return v, true
	}
	proto, ok := next16()
	for tags := 0; ok && tags < 2 && (proto == unix.ETH_P_8021Q || proto == unix.ETH_P_8021AD); tags++ {
		if _, ok = next16(); ok {
			proto, ok = next16()
		}
	}
	if !ok {
		return untouched, "", false
	}
	ip := frame[at:]
	var parts []any
	var length, headers int
	var next byte
	later := false
	switch {
	case proto == unix.ETH_P_IP && len(ip) >= 20:
		if _, ok := pathOf(ip[1] >> 2); !ok || !bytes.Equal(ip[16:20], viewer4.AsSlice()) {
			return untouched, "", false
		}
		length, headers, next = int(binary.BigEndian.Uint16(ip[2:])), int(ip[0]&15)*4, ip[9]
		later = binary.BigEndian.Uint16(ip[6:])&0x1fff != 0
		parts = append(parts, ip[4:8], ip[12:20])
		numbered = true
		if headers < 20 || ip[0]>>4 != 4 {
			return untouched, "", false
		}
	case proto == unix.ETH_P_IPV6 && len(ip) >= 40:
		word := binary.BigEndian.Uint32(ip)
		if _, ok := pathOf(uint8(word >> 22 & 0x3f)); !ok || !bytes.Equal(ip[24:40], viewer6.AsSlice()) {
			return untouched, "", false
		}
		length, headers, next = 40+int(binary.BigEndian.Uint16(ip[4:])), 40, ip[6]
		if ip[0]>>4 != 6 {
			return untouched, "", false
		}
		number, fragment := word&0xfffff, uint16(0)
		for i := 0; i < 4 && !later; i++ {
			size := 8
			switch next {
			case unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_DSTOPTS, unix.IPPROTO_FRAGMENT:
			default:
				i = 4
				continue
			}
			if len(ip) < headers+8 {
				return untouched, "", false
			}
			if next == unix.IPPROTO_FRAGMENT {
				fragment, number = binary.BigEndian.Uint16(ip[headers+2:]), binary.BigEndian.Uint32(ip[headers+4:])
				later = fragment>>3 != 0
			} else {
				size += int(ip[headers+1]) * 8
			}
			next = ip[headers]
			headers += size
		}
		parts = append(parts, ip[8:40], number, fragment)
		numbered = fragment != 0
	default:
		return untouched, "", false
	}
	if headers > length || length > len(ip) || length > 0x3fff || length < 20 {
		return untouched, "", false
	}
	payload := ip[headers:length]
	// Bytes after the checksum are equal in all replicas. Distinguishing bytes before it are added
	// separately.
	covered, ports, front := 0, true, 0
	switch {
	case later:
		ports = false
	case next == unix.IPPROTO_UDP:
		covered, front = 8, 8
	case next == unix.IPPROTO_TCP:
		covered, front = 20, 4
		if len(payload) >= 20 {
			parts = append(parts, payload[12:16], payload[20:max(20, min(int(payload[12]>>4)*4, len(payload)&^3))])
		}
	case next == unix.IPPROTO_SCTP:
		covered, front = 12, 12
	case next == unix.IPPROTO_ICMP || next == unix.IPPROTO_ICMPV6:
		covered, front, ports = 4, 4, false
	default:
		ports = false
	}
	if ports && len(payload) >= 4 {
		parts = append(parts, payload[:4])
	}
	if covered > 0 && len(payload) >= front+8 {
		parts = append(parts, payload[front:front+8])
	}
	if len(payload) > covered {
		tail := payload[covered:]
		if !numbered && next != unix.IPPROTO_TCP && next != unix.IPPROTO_ESP {
			parts = append(parts, tail)
		}
		parts = append(parts, tail[max(len(tail)-8, 0):])
	}
	return replica, fmt.Sprintf("%v %d %d %d %x", proto, length, headers, next, parts), numbered
}

// restoredFrame returns a frame with the DSCP of the gate's flows.
func restoredFrame(frame []byte) []byte {
	f := bytes.Clone(frame)
	v, _ := see(f)
	at := len(f) - len(v.ip)
	ip := f[at:]
	if v.v6 {
		word := binary.BigEndian.Uint32(ip)&^(0x3f<<22) | 46<<22
		binary.BigEndian.PutUint32(ip, word)
		return f
	}
	old := binary.BigEndian.Uint16(ip)
	ip[1] = 46<<2 | ip[1]&3
	// RFC 1624, equation 3. A wrong checksum stays wrong.
	sum := uint32(^binary.BigEndian.Uint16(ip[10:])) + uint32(^old) + uint32(binary.BigEndian.Uint16(ip))
	sum = sum&0xffff + sum>>16
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	return f
}

// known is the model's state of a key.
type known struct {
	first time.Time     // before its first packet; zero if packets may have been forgotten
	last  time.Time     // after its last packet
	on    [MaxPaths]int // packets per path
}

// The model's gate forgets a packet after modelStale, give or take its clock resolution.
const modelStale, modelCoarse = 30 * time.Second, 20 * time.Millisecond

// judge compares the program with the model on one frame, whose key may have been seen before. It
// skips keys whose packets the program may have forgotten because of their age (for example, after
// the machine stalled) or because a bucket was full.
func (g *gate) judge(t testing.TB, frame []byte, seen map[string]*known) {
	t.Helper()
	if len(frame) < 14 || len(frame) > 3000 {
		return // not a frame, or larger than a test run accepts
	}
	want, key, numbered := rule(frame)
	k, start := seen[key], time.Now()
	if k != nil && start.Sub(k.last) > modelStale+modelCoarse {
		k = nil // all forgotten
	}
	if k != nil && start.Sub(k.first) > modelStale-time.Second {
		return // uncertain until then
	}
	verdict, left := g.run(t, frame)
	if want == untouched {
		if verdict != xdpPass || !bytes.Equal(left, frame) {
			t.Fatalf("frame without a flow: verdict %d\n% x became\n% x", verdict, frame, left)
		}
		return
	}
	if k == nil {
		k = &known{first: start}
		seen[key] = k
	}
	k.last = time.Now()
	v, _ := see(frame)
	path, _ := pathOf(v.tos() >> 2)
	most := slices.Max(k.on[:])
	first := most == 0 || !numbered && k.on[path-1] == most && most < 8
	expected := xdpDrop
	if first {
		expected = xdpPass
	}
	unsure := k.last.Sub(k.first) > modelStale-modelCoarse
	switch {
	case verdict == xdpPass && !bytes.Equal(left, restoredFrame(frame)):
		t.Fatalf("% x became\n% x", frame, left)
	case verdict == expected && !unsure:
	case unsure || g.forgot(t):
		k.first = time.Time{}
	default:
		t.Fatalf("verdict %d, want %d, for packet % x; earlier packets per path: %v", verdict, expected, frame, k.on)
	}
	if k.on[path-1] < 8 {
		k.on[path-1]++
	}
}

// forgot reports whether the table evicted packets that were not stale.
func (g *gate) forgot(t testing.TB) bool {
	t.Helper()
	s := mustReceived(t, g.Receiver)
	return s.Evicted+s.Races > 0
}

// newModelGate returns a gate that forgets nothing for modelStale.
func newModelGate(t testing.TB) *gate { return newGate(t, ReceiverOptions{Stale: modelStale}) }

// randomFrame returns a frame with few distinct kinds and values, so that replicas and
// near-replicas are frequent.
func randomFrame(r *rand.Rand) []byte {
	pick := func(v ...int) int { return v[r.IntN(len(v))] }
	p := packet{
		src: relay4, dst: viewer4, tos: uint8(pick(0, 3, 7, 11, 31, 35,
			63))<<2 | uint8(r.IntN(4)), ttl: uint8(1 + r.IntN(255)),
		id: uint16(r.IntN(4)), fragment: uint16(pick(0, 0x4000, 0x4000, 0x2000, 100)),
		proto: uint8(
			pick(
				unix.IPPROTO_UDP,
				unix.IPPROTO_UDP,
				unix.IPPROTO_TCP,
				unix.IPPROTO_ICMP,
				unix.IPPROTO_SCTP,
				unix.IPPROTO_ICMPV6,
				59,
				253,
			),
		),
		body: make([]byte, pick(0, 3, 4, 7, 8, 9, 11, 12, 15, 16, 19, 20, 24, 27, 28, 40, 100)),
	}
	for i := range p.body {
		p.body[i] = uint8(r.IntN(20) / 19)
	}
	if r.IntN(2) == 0 {
		p.src, p.dst, p.label = relay6, viewer6, uint32(r.IntN(2))
		for n := r.IntN(6); n > 3; n-- {
			p.extensions = append(
				[]byte{
					uint8(pick(unix.IPPROTO_FRAGMENT, unix.IPPROTO_DSTOPTS, unix.IPPROTO_UDP)),
					uint8(pick(0, 0, 0, 1)),
					0,
					uint8(pick(0, 0, 8)),
					0,
					0,
					0,
					uint8(r.IntN(2)),
				},
				p.extensions...)
			p.ext = uint8(pick(unix.IPPROTO_FRAGMENT, unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING))
		}
	} else if r.IntN(5) == 0 {
		p.options = make([]byte, 4*r.IntN(11))
	}
	switch r.IntN(8) {
	case 0:
		p.tags = []vlan{{unix.ETH_P_8021Q, uint16(r.IntN(9))}}
	case 1:
		p.tags = []vlan{{unix.ETH_P_8021AD, 1}, {unix.ETH_P_8021Q, uint16(r.IntN(9))}}
	case 2:
		p.dst = relay4
		if p.src.Is6() {
			p.dst = relay6
		}
	}
	p.padding = pick(0, 0, 0, 10)
	f := p.frame()
	switch r.IntN(12) {
	case 0:
		f = f[:14+r.IntN(len(f)-13)]
	case 1:
		f[14+r.IntN(len(f)-14)] ^= 1 << r.IntN(8)
	}
	return f
}

// The program matches the model on random frames.
func TestEliminateModel(t *testing.T) {
	g := newModelGate(t)
	seen := make(map[string]*known)
	r := rand.New(rand.NewPCG(20, 26))
	const frames = 20_000
	for range frames {
		g.judge(t, randomFrame(r), seen)
	}
	s := mustReceived(t, g.Receiver)
	var first, late uint64
	for _, p := range s.Paths {
		first, late = first+p.First, late+p.Late
	}
	t.Logf(
		"%d frames: %d first, %d later, %d of other destinations, %d malformed",
		frames,
		first,
		late,
		s.Unknown,
		s.Short,
	)
	if first < frames/20 || late < frames/20 || s.Short < frames/100 || s.Races+s.Evicted != 0 {
		t.Errorf("%+v", s)
	}
}

func FuzzEliminate(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 40 {
		f.Add(randomFrame(r))
	}
	g := newModelGate(f)
	seen := make(map[string]*known)
	f.Fuzz(func(t *testing.T, frame []byte) { g.judge(t, frame, seen) })
}

// The sender passes any frame unchanged, except signalling packets and those to a destination with a
// policy.
func FuzzDuplicate(f *testing.F) {
	b := newSignalBench(f, SenderOptions{})
	b.policy(f, pathBits(1, 2, 3))
	r := rand.New(rand.NewPCG(2, 2))
	for range 20 {
		frame := randomFrame(r)
		copy(frame, b.lanMAC[:])
		f.Add(frame)
	}
	f.Add(b.signalFrame(message(f, testKey, signalMessage)).frame())
	f.Fuzz(func(t *testing.T, frame []byte) { b.host.must(t, func() error { return b.checkAny(frame) }) })
}

// Like FuzzDuplicate, with random frames.
func TestDuplicateAny(t *testing.T) {
	b := newSignalBench(t, SenderOptions{})
	b.policy(t, pathBits(1, 2, 3))
	r := rand.New(rand.NewPCG(3, 3))
	b.host.must(t, func() error {
		for range 2000 {
			frame := randomFrame(r)
			copy(frame, b.lanMAC[:])
			if err := b.checkAny(frame); err != nil {
				return err
			}
		}
		return nil
	})
	if s := mustStats(t, b.Sender); s.Duplicated == 0 || s.Short == 0 {
		t.Errorf("%+v", s)
	}
}

// checkAny runs the sender's programs on an arbitrary frame and checks their verdicts and output. Call
// it in the bench's namespace.
func (b *bench) checkAny(frame []byte) error {
	if len(frame) < 15 || len(frame) > 3000 {
		return nil
	}
	v, ok := see(frame)
	ours := ok &&
		(v.v6 && bytes.Equal(v.ip[24:40], viewer6.AsSlice()) || !v.v6 && bytes.Equal(v.ip[16:20], viewer4.AsSlice()))
	signal := ok && !v.v6 && v.ip[1] == 0xfc && v.ip[9] == unix.IPPROTO_UDP
	for _, program := range []string{senderProgDuplicate, senderProgDuplicateOut, senderProgMonitor} {
		run := ebpf.RunOptions{
			Data:    frame,
			DataOut: make([]byte, len(frame)+256),
			Context: &skb{Ifindex: uint32(b.lan)},
		}
		verdict, err := b.programs[program].Run(&run)
		if errors.Is(err, unix.EINVAL) {
			return nil // the kernel rejects such frames in test runs
		}
		if err != nil {
			return err
		}
		good := false
		switch verdict {
		case tcPass:
			good = bytes.Equal(run.DataOut, frame) || ours && program == senderProgDuplicateOut
		case tcRedirect:
			good = ours && program != senderProgMonitor
		case tcShot:
			good = signal && program != senderProgDuplicateOut
		}
		if !good {
			return fmt.Errorf("%s: verdict %d of\n% x which became\n% x", program, int32(verdict), frame, run.DataOut)
		}
	}
	for _, tp := range b.taps {
		if tp != nil {
			tp.frames()
		}
	}
	return nil
}
