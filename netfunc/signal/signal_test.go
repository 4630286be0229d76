package signal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"net/netip"
	"slices"
	"testing"
)

// testKey is 00 01 … 1f, as in the fixtures of the kernel program.
func testKey() []byte {
	k := make([]byte, KeySize)
	for i := range k {
		k[i] = byte(i)
	}
	return k
}

// The bytes were computed apart from this package, with Python's hmac.
func TestAppend(t *testing.T) {
	for name, c := range map[string]struct {
		m    Message
		want string
	}{
		"IPv4, three paths": {Message{netip.MustParseAddr("192.0.2.7"), 0x7, 1795287600000000001},
			"484353470107000018ea248f73a9e00100000000000000000000ffffc0000207adbc21ee9e63b495e8ffda607ee7d96308cfd983f9917ca50e235a750325f3c5"},
		"IPv6, off": {Message{netip.MustParseAddr("2001:db8::7"), 0xff, 2},
			"4843534701ff0000000000000000000220010db80000000000000000000000079d72838382ff4f104ea9d22400d2dd54dc2aa0cee4e9d053e739e894158a21c2"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.m.Append([]byte("before"), testKey())
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.HasPrefix(got, []byte("before")) || hex.EncodeToString(got[6:]) != c.want {
				t.Errorf("%x, want %s", got[6:], c.want)
			}
			back, err := Parse(got[6:], testKey())
			if err != nil || back != c.m {
				t.Errorf("%+v, %v; want %+v", back, err, c.m)
			}
		})
	}
	for name, dst := range map[string]netip.Addr{"none": {}, "zone": netip.MustParseAddr("fe80::1%eth0")} {
		t.Run("destination "+name, func(t *testing.T) {
			if b, err := (Message{Destination: dst}).Append(nil, testKey()); err == nil || len(b) != 0 {
				t.Errorf("%x, %v", b, err)
			}
		})
	}
}

func TestPaths(t *testing.T) {
	for policy, want := range map[uint8]uint8{0: 0, 1: 1, 0xfe: 0xfe, TurnOff: 0} {
		if got := (Message{Policy: policy}).Paths(); got != want {
			t.Errorf("policy %#x: %#x, want %#x", policy, got, want)
		}
	}
}

func message(t testing.TB, nonce uint64) []byte {
	t.Helper()
	b, err := Message{Destination: netip.MustParseAddr("192.0.2.7"), Policy: 3, Nonce: nonce}.Append(nil, testKey())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseRefuses(t *testing.T) {
	good := message(t, 5)
	change := func(at int, to byte) []byte { b := slices.Clone(good); b[at] = to; return b }
	otherKey := testKey()
	otherKey[0] ^= 1
	resigned := func(at int, to byte) []byte { // by one who has the key
		b := change(at, to)
		return sign(b[:signed])
	}
	for name, c := range map[string]struct {
		b    []byte
		key  []byte
		want error
	}{
		"nothing":         {nil, testKey(), ErrMalformed},
		"a byte short":    {good[:Size-1], testKey(), ErrMalformed},
		"a byte more":     {append(slices.Clone(good), 0), testKey(), ErrMalformed},
		"magic":           {resigned(0, 'X'), testKey(), ErrMalformed},
		"version":         {resigned(4, 2), testKey(), ErrMalformed},
		"reserved 1":      {resigned(6, 1), testKey(), ErrMalformed},
		"reserved 2":      {resigned(7, 1), testKey(), ErrMalformed},
		"policy changed":  {change(5, 0x1f), testKey(), ErrSpoofed},
		"nonce changed":   {change(15, 9), testKey(), ErrSpoofed},
		"destination":     {change(31, 8), testKey(), ErrSpoofed},
		"HMAC, first":     {change(32, good[32]^1), testKey(), ErrSpoofed},
		"HMAC, last":      {change(63, good[63]^0x80), testKey(), ErrSpoofed},
		"another key":     {good, otherKey, ErrSpoofed},
		"no destination":  {sign(append([]byte("HCSG\x01\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05"), make([]byte, 16)...)), testKey(), ErrMalformed},
		"IPv4 unassigned": {sign([]byte("HCSG\x01\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x00\x00\x00\x00")), testKey(), ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			if m, err := Parse(c.b, c.key); !errors.Is(err, c.want) {
				t.Errorf("%+v, %v; want %v", m, err, c.want)
			}
		})
	}
}

// sign appends the HMAC to the first 32 bytes of a message.
func sign(b []byte) []byte {
	b = slices.Clone(b[:signed])
	return appendMAC(b, b, testKey())
}

// Nonces must strictly increase; what is refused leaves no trace.
func TestGuard(t *testing.T) {
	spoofed := message(t, math.MaxUint64)
	spoofed[40] ^= 1
	for name, c := range map[string]struct {
		b    []byte
		want error
		last uint64 // after it, starting from 100
	}{
		"next":            {message(t, 101), nil, 101},
		"with a gap":      {message(t, 1<<60), nil, 1 << 60},
		"the same":        {message(t, 100), ErrReplayed, 100},
		"older":           {message(t, 99), ErrReplayed, 100},
		"zero":            {message(t, 0), ErrReplayed, 100},
		"spoofed, newest": {spoofed, ErrSpoofed, 100},
		"malformed":       {spoofed[:20], ErrMalformed, 100},
	} {
		t.Run(name, func(t *testing.T) {
			var g Guard
			if _, err := g.Accept(message(t, 100), testKey()); err != nil {
				t.Fatal(err)
			}
			if _, err := g.Accept(c.b, testKey()); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if g.Last() != c.last {
				t.Errorf("last nonce %d, want %d", g.Last(), c.last)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(message(f, 1))
	f.Add([]byte("HCSG"))
	f.Add(make([]byte, Size))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b, testKey())
		if err != nil {
			if m != (Message{}) {
				t.Errorf("%+v with %v", m, err)
			}
			return
		}
		again, err := m.Append(nil, testKey())
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%x became %x, %v", b, again, err)
		}
	})
}

// FuzzSigned lets the fuzzer choose what a holder of the key would sign.
func FuzzSigned(f *testing.F) {
	f.Add(message(f, 1)[:signed])
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != signed {
			return
		}
		full := appendMAC(slices.Clone(b), b, testKey())
		m, err := Parse(full, testKey())
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("%x: %v", full, err)
			}
			return
		}
		if again, err := m.Append(nil, testKey()); err != nil || !bytes.Equal(again, full) {
			t.Errorf("%x became %x, %v", full, again, err)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	key, buf := testKey(), make([]byte, 0, Size)
	m := Message{Destination: netip.MustParseAddr("192.0.2.7"), Policy: 3}
	for b.Loop() {
		m.Nonce++
		_, _ = m.Append(buf, key)
	}
}
