package wire

import (
	"bytes"
	"io"
	"testing"
)

func TestVarintExamples(t *testing.T) {
	// §1.4.1, Example Integer Encodings, and the limits of each length.
	for _, tt := range []struct {
		bytes string
		value uint64
	}{
		{"25", 37},
		{"bbbd", 15_293},
		{"ed7f3e7d", 226_442_877},
		{"faa1a0e403d8", 2_893_212_287_960},
		{"fc8998abc66bc0", 151_288_809_941_952},
		{"fefa318fa8e3ca11", 70_423_237_261_249_041},
		{"ffffffffffffffffff", 18_446_744_073_709_551_615},
		{"00", 0},
		{"7f", 127},
		{"8080", 128},
		{"bfff", 16_383},
		{"c04000", 16_384},
		{"dfffff", 2_097_151},
		{"e0200000", 2_097_152},
		{"f010000000", 268_435_456},
		{"f80800000000", 34_359_738_368},
		{"fc040000000000", 4_398_046_511_104},
		{"fe02000000000000", 562_949_953_421_312},
		{"feffffffffffffff", 72_057_594_037_927_935},
		{"ff0100000000000000", 72_057_594_037_927_936},
	} {
		want := unhex(t, tt.bytes)
		if got := AppendVarint(nil, tt.value); !bytes.Equal(got, want) {
			t.Errorf("AppendVarint(%d) = %x, want %x", tt.value, got, want)
		}
		if n := VarintLen(tt.value); n != len(want) {
			t.Errorf("VarintLen(%d) = %d, want %d", tt.value, n, len(want))
		}
		if v, n, err := ParseVarint(append(want, 0xee)); v != tt.value || n != len(want) || err != nil {
			t.Errorf("ParseVarint(%x) = %d, %d, %v, want %d, %d", want, v, n, err, tt.value, len(want))
		}
		if v, err := ReadVarint(bytes.NewReader(want)); v != tt.value || err != nil {
			t.Errorf("ReadVarint(%x) = %d, %v, want %d", want, v, err, tt.value)
		}
	}
}

func TestVarintNonMinimal(t *testing.T) {
	// Any length that can represent the value is valid.
	for _, s := range []string{
		"8025", "c00025", "e0000025", "f000000025", "f80000000025", "fc000000000025",
		"fe00000000000025", "ff0000000000000025",
	} {
		b := unhex(t, s)
		if v, n, err := ParseVarint(b); v != 37 || n != len(b) || err != nil {
			t.Errorf("ParseVarint(%s) = %d, %d, %v, want 37", s, v, n, err)
		}
		if v, err := ReadVarint(bytes.NewReader(b)); v != 37 || err != nil {
			t.Errorf("ReadVarint(%s) = %d, %v, want 37", s, v, err)
		}
	}
}

func TestVarintTruncated(t *testing.T) {
	for _, v := range varintEdges() {
		b := AppendVarint(nil, v)
		for n := range b {
			if _, _, err := ParseVarint(b[:n]); err != io.ErrUnexpectedEOF {
				t.Errorf("ParseVarint(%x): %v, want io.ErrUnexpectedEOF", b[:n], err)
			}
			want := io.ErrUnexpectedEOF
			if n == 0 {
				want = io.EOF
			}
			if _, err := ReadVarint(bytes.NewReader(b[:n])); err != want {
				t.Errorf("ReadVarint(%x): %v, want %v", b[:n], err, want)
			}
		}
	}
}

func TestVarintRoundTrip(t *testing.T) {
	rnd := newRand(1)
	values := varintEdges()
	for range 10_000 {
		values = append(values, rnd.Uint64()>>rnd.UintN(64))
	}
	for _, v := range values {
		b := AppendVarint(nil, v)
		if got, n, err := ParseVarint(b); got != v || n != len(b) || err != nil {
			t.Fatalf("ParseVarint(AppendVarint(%d)) = %d, %d, %v", v, got, n, err)
		}
	}
}

func BenchmarkVarint(b *testing.B) {
	values := varintEdges()
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		buf := make([]byte, 0, 16)
		for i := 0; b.Loop(); i++ {
			buf = AppendVarint(buf[:0], values[i%len(values)])
		}
	})
	var encoded [][]byte
	for _, v := range values {
		encoded = append(encoded, AppendVarint(nil, v))
	}
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, _, err := ParseVarint(encoded[i%len(encoded)]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		r := new(bytes.Reader)
		for i := 0; b.Loop(); i++ {
			r.Reset(encoded[i%len(encoded)])
			if _, err := ReadVarint(r); err != nil {
				b.Fatal(err)
			}
		}
	})
}
