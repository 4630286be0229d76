package signal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"net/netip"
	"slices"
	"testing"

	"holocast/netfunc/signal/signaltest"
)

// testKey is 00 01 … 1f, as in the kernel program's fixtures.
func testKey() []byte {
	k := make([]byte, KeySize)
	for i := range k {
		k[i] = byte(i)
	}
	return k
}

// The bytes were computed independently, with Python's hmac.
func TestAppend(t *testing.T) {
	for name, c := range map[string]struct {
		m    Message
		want string
	}{
		"IPv4, three paths": {
			Message{netip.MustParseAddr("192.0.2.7"), 0x7, 1795287600000000001},
			"484353470207000018ea248f73a9e00100000000000000000000ffffc0000207e8d14251ae6eeadeac8f610ed6a2d1e2c04b7229f0ca1e1a231136e50fb449e5",
		},
		"IPv6, off": {
			Message{netip.MustParseAddr("2001:db8::7"), 0, 2},
			"4843534702000000000000000000000220010db8000000000000000000000007283a6da5a1a2fedb5ecdb756ff4ff25abda6c3fac8508a37c72b707dad0a782b",
		},
		"IPv6, eight paths": {
			Message{netip.MustParseAddr("2001:db8::7"), 0xff, 3},
			"4843534702ff0000000000000000000320010db8000000000000000000000007d80723483a4790500d3cd8d1bea2674322caceb358626876e6ca7737c2f21d3f",
		},
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

func TestVectors(t *testing.T) {
	v := signaltest.Load(t)
	key := EdgeKey(v.Key, v.Edge)
	if !bytes.Equal(key, v.EdgeKey) {
		t.Errorf("key of the edge %x, want %x", key, v.EdgeKey)
	}
	verdicts := map[string]error{
		"applied": nil, "malformed": ErrMalformed, "spoofed": ErrSpoofed, "replayed": ErrReplayed,
		"version 1": VersionError(1), "version 3": VersionError(3),
	}
	var g Guard
	for _, c := range v.Messages {
		t.Run(c.Name, func(t *testing.T) {
			want, known := verdicts[c.Verdict]
			if !known {
				t.Fatalf("verdict %q", c.Verdict)
			}
			before := g.Last()
			m, err := g.Accept(c.Message, key)
			if !errors.Is(err, want) || (want == nil) != (err == nil) {
				t.Fatalf("%v, want %v", err, want)
			}
			if err != nil {
				if g.Last() != before {
					t.Errorf("last nonce %d, want %d", g.Last(), before)
				}
				return
			}
			if m != (Message{c.Destination, c.Paths, c.Nonce}) {
				t.Errorf("%+v", m)
			}
			if b, err := m.Append(nil, key); err != nil || !bytes.Equal(b, c.Message) {
				t.Errorf("%x, %v", b, err)
			}
		})
	}
}

// The error names both versions and the remedy.
func TestVersionError(t *testing.T) {
	want := "signalling message of version 1, want version 2: upgrade the controller and all edges together"
	if got := VersionError(1).Error(); got != want {
		t.Errorf("%q", got)
	}
}

func message(t testing.TB, nonce uint64) []byte {
	t.Helper()
	b, err := Message{Destination: netip.MustParseAddr("192.0.2.7"), Paths: 3, Nonce: nonce}.Append(nil, testKey())
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
	resigned := func(at int, to byte) []byte { // with the right key
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
		"version 1":       {resigned(4, 1), testKey(), VersionError(1)},
		"version 3":       {resigned(4, 3), testKey(), VersionError(3)},
		"version changed": {change(4, 1), testKey(), ErrSpoofed},
		"reserved 1":      {resigned(6, 1), testKey(), ErrMalformed},
		"reserved 2":      {resigned(7, 1), testKey(), ErrMalformed},
		"paths changed":   {change(5, 0x1f), testKey(), ErrSpoofed},
		"nonce changed":   {change(15, 9), testKey(), ErrSpoofed},
		"destination":     {change(31, 8), testKey(), ErrSpoofed},
		"HMAC, first":     {change(32, good[32]^1), testKey(), ErrSpoofed},
		"HMAC, last":      {change(63, good[63]^0x80), testKey(), ErrSpoofed},
		"another key":     {good, otherKey, ErrSpoofed},
		"no destination": {sign(append([]byte("HCSG\x02\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05"),
			make([]byte, 16)...)), testKey(), ErrMalformed},
		"IPv4 unassigned": {sign([]byte("HCSG\x02\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x00\x00\x00\x00")), testKey(), ErrMalformed},
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

// Nonces must strictly increase; a rejected message has no effect.
func TestGuard(t *testing.T) {
	spoofed := message(t, math.MaxUint64)
	spoofed[40] ^= 1
	for name, c := range map[string]struct {
		b    []byte
		want error
		last uint64 // afterwards, starting from 100
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

// FuzzSigned lets the fuzzer choose the content of a correctly signed message.
func FuzzSigned(f *testing.F) {
	f.Add(message(f, 1)[:signed])
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != signed {
			return
		}
		full := appendMAC(slices.Clone(b), b, testKey())
		m, err := Parse(full, testKey())
		if err != nil {
			var other VersionError
			if !errors.Is(err, ErrMalformed) && (!errors.As(err, &other) || full[4] == Version) {
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
	m := Message{Destination: netip.MustParseAddr("192.0.2.7"), Paths: 3}
	for b.Loop() {
		m.Nonce++
		_, _ = m.Append(buf, key)
	}
}
