package wav

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"
)

// file returns a WAV file of one channel with the given samples.
func file(format, bits, channels uint16, data []byte) []byte {
	le := binary.LittleEndian
	b := append([]byte("RIFF"), 0, 0, 0, 0)
	b = append(b, "WAVEfmt "...)
	b = le.AppendUint32(b, 16)
	b = le.AppendUint16(b, format)
	b = le.AppendUint16(b, channels)
	b = le.AppendUint32(b, 44100)
	b = le.AppendUint32(b, 44100*uint32(channels*bits/8))
	b = le.AppendUint16(b, channels*bits/8)
	b = le.AppendUint16(b, bits)
	b = append(b, "data"...)
	b = le.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

func open(b []byte) (*File, error) { return New(bytes.NewReader(b), int64(len(b))) }

func TestFormats(t *testing.T) {
	le := binary.LittleEndian
	for _, tt := range []struct {
		name         string
		format, bits uint16
		data         []byte // −0.5, 0.25
	}{
		{"8 bits", 1, 8, []byte{64, 160}},
		{"16 bits", 1, 16, []byte{0, 0xc0, 0, 0x20}},
		{"24 bits", 1, 24, []byte{0, 0, 0xc0, 0, 0, 0x20}},
		{"32 bits", 1, 32, []byte{0, 0, 0, 0xc0, 0, 0, 0, 0x20}},
		{"float", 3, 32, le.AppendUint32(le.AppendUint32(nil, math.Float32bits(-0.5)), math.Float32bits(0.25))},
		{"double", 3, 64, le.AppendUint64(le.AppendUint64(nil, math.Float64bits(-0.5)), math.Float64bits(0.25))},
	} {
		f, err := open(file(tt.format, tt.bits, 1, tt.data))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var got [2]float32
		if err := f.Read(got[:], 0); err != nil || got != [2]float32{-0.5, 0.25} || f.Length != 2 || f.Rate != 44100 {
			t.Errorf("%s: got %v, %v of %+v", tt.name, got, err, f)
		}
	}
}

func TestHostile(t *testing.T) {
	good := file(1, 16, 2, make([]byte, 8))
	change := func(at int, with ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], with)
		return b
	}
	for _, tt := range []struct {
		name string
		b    []byte
		want string
	}{
		{"empty", nil, "not a WAV file"},
		{"a picture", []byte("\x89PNG\r\n\x1a\n0000"), "not a WAV file"},
		{"cut in the format", good[:25], "truncated format"},
		{"cut before the samples", good[:40], "no samples"},
		{"no samples", good[:44], "no samples"},
		{"no format", append(bytes.Clone(good[:12]), good[36:]...), "samples without a format"},
		{"a chunk of 4 GB", change(16, 0xff, 0xff, 0xff, 0xff), "no samples"},
		{"six channels", change(22, 6), "6 channels"},
		{"no rate", change(24, 0, 0, 0, 0), "sample rate 0 Hz"},
		{"ADPCM", change(20, 2), "format 2"},
		{"wrong alignment", change(32, 1), "block alignment is 1 bytes"},
	} {
		if _, err := open(tt.b); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	// A recorder that was killed leaves a length of 0xffffffff.
	if f, err := open(change(40, 0xff, 0xff, 0xff, 0xff)); err != nil || f.Length != 2 {
		t.Errorf("unknown length: %+v, %v", f, err)
	}
	nan := file(3, 32, 1, []byte{0, 0, 0xc0, 0x7f, 0, 0, 0x80, 0x7f})
	f, err := open(nan)
	if err != nil {
		t.Fatal(err)
	}
	var got [2]float32
	if err := f.Read(got[:], 0); err != nil || got != [2]float32{0, 1} {
		t.Errorf("NaN and infinity are %v, %v", got, err)
	}
}

func FuzzNew(f *testing.F) {
	f.Add(file(1, 16, 2, make([]byte, 16)))
	f.Add(file(3, 64, 1, make([]byte, 16)))
	f.Add(file(0xfffe, 24, 1, make([]byte, 9)))
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := open(b)
		if err != nil {
			return
		}
		got := make([]float32, min(w.Length, 1000)*int64(w.Channels))
		if err := w.Read(got, 0); err != nil {
			t.Fatal(err)
		}
		for _, x := range got {
			if !(x >= -1 && x <= 1) {
				t.Fatalf("sample %v", x)
			}
		}
	})
}
