package loc

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"holocast/internal/moqt/wire"
)

func TestProperties(t *testing.T) {
	want := Properties{Timestamp: time.UnixMicro(1790000000123456), VideoConfig: []byte{1, 2, 3}, Previous: []byte{4}}
	got, err := Parse(want.Append(nil))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if b := want.Append(nil); !bytes.Contains(b, []byte{PropertyTimestamp - PropertyVideoConfig, 0xfe}) {
		t.Errorf("no timestamp of type %#x in %x", PropertyTimestamp, b)
	}
	for _, tt := range []struct {
		name string
		kvs  []wire.KeyValue
		want string
	}{
		{"none", nil, "no timestamp"},
		{"other units", []wire.KeyValue{{Type: PropertyTimescale, Int: 90000}, {Type: PropertyTimestamp, Int: 1}}, "in 90000 units per second"},
		{"far future", []wire.KeyValue{{Type: PropertyTimestamp, Int: 1 << 60}}, "beyond the year 9999"},
	} {
		if _, err := Parse(wire.AppendKeyValues(nil, tt.kvs...)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestTimestampVectors tests Parse with the vectors that all clients share.
func TestTimestampVectors(t *testing.T) {
	b, err := os.ReadFile("testdata/timestamps.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name, Properties string
		Micros           *int64
	}
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	for _, v := range vectors {
		b, err := hex.DecodeString(v.Properties)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Parse(b)
		switch {
		case v.Micros == nil:
			if !errors.Is(err, ErrNoTimestamp) {
				t.Errorf("%s: %v, %v, want no timestamp", v.Name, p.Timestamp, err)
			}
		case err != nil || p.Timestamp.UnixMicro() != *v.Micros:
			t.Errorf("%s: %d µs, %v, want %d", v.Name, p.Timestamp.UnixMicro(), err, *v.Micros)
		}
	}
}

func TestAVCConfig(t *testing.T) {
	sps, pps := []byte{0x67, 0x42, 0xc0, 0x1e, 9}, []byte{0x68, 7}
	b, err := AVCConfig(sps, pps)
	if err != nil {
		t.Fatal(err)
	}
	if codec, err := AVCCodec(b); err != nil || codec != "avc1.42c01e" {
		t.Errorf("codec %q, %v", codec, err)
	}
	if sets, err := ParameterSets(b); err != nil || len(sets) != 2 || !bytes.Equal(sets[0], sps) ||
		!bytes.Equal(sets[1], pps) {
		t.Errorf("parameter sets %x, %v", sets, err)
	}
	if got, err := AppendAnnexBConfig(nil, b); err != nil ||
		string(got) != "\x00\x00\x00\x01"+string(sps)+"\x00\x00\x00\x01"+string(pps) {
		t.Errorf("as a byte stream %x, %v", got, err)
	}
	if _, err := AVCConfig(pps, sps); err == nil {
		t.Error("parameter sets in the wrong order are taken")
	}
	for n := range b {
		if _, err := ParameterSets(b[:n]); err == nil && n < len(b)-1 {
			t.Errorf("avcC cut off at %d is taken", n)
		}
	}
}

func TestAnnexB(t *testing.T) {
	got, err := AppendAnnexB(nil, []byte("\x00\x00\x00\x02ab\x00\x00\x00\x01c"))
	if err != nil || string(got) != "\x00\x00\x00\x01ab\x00\x00\x00\x01c" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, b := range []string{"\x00\x00\x00\x03ab", "\x00\x00", "\xff\xff\xff\xffabc"} {
		if _, err := AppendAnnexB(nil, []byte(b)); err == nil {
			t.Errorf("%q is taken", b)
		}
	}
}

// sound encodes a second of audio with FFmpeg.
func sound(t testing.TB, args ...string) []byte {
	t.Helper()
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("ffmpeg is not installed")
	}
	args = append(
		[]string{"-v", "error", "-f", "lavfi", "-i", "sine=duration=1", "-ac", "2", "-ar", "48000"},
		append(args, "pipe:1")...)
	b, err := exec.Command("ffmpeg", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSound(t *testing.T) {
	opus := sound(t, "-c:a", "libopus", "-f", "ogg")
	aac := sound(t, "-c:a", "aac", "-f", "adts")
	for _, tt := range []struct {
		name string
		open func() (interface{ Next() (Packet, error) }, AudioFormat, error)
		want AudioFormat
		size int
	}{
		{"opus", func() (interface{ Next() (Packet, error) }, AudioFormat, error) {
			return NewOpusReader(bytes.NewReader(opus))
		}, AudioFormat{Codec: "opus", SampleRate: 48000, Channels: 2, PreSkip: 312}, 960},
		{"aac", func() (interface{ Next() (Packet, error) }, AudioFormat, error) {
			return NewAACReader(bytes.NewReader(aac))
		}, AudioFormat{Codec: "mp4a.40.2", SampleRate: 48000, Channels: 2, Config: []byte{0x11, 0x90}}, 1024},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, format, err := tt.open()
			if err != nil || !reflect.DeepEqual(format, tt.want) {
				t.Fatalf("format %+v, %v", format, err)
			}
			samples := 0
			for {
				p, err := r.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if p.Samples != tt.size || len(p.Data) == 0 {
					t.Fatalf("a packet of %d samples, %d bytes", p.Samples, len(p.Data))
				}
				samples += p.Samples
			}
			if samples < 48000 || samples > 48000+4*tt.size {
				t.Errorf("%d samples of a second", samples)
			}
		})
	}
	if _, _, err := NewOpusReader(bytes.NewReader(opus[:40])); !errors.Is(err, io.ErrUnexpectedEOF) && err != io.EOF {
		t.Errorf("cut off: %v", err)
	}
	if _, _, err := NewAACReader(bytes.NewReader(opus)); err == nil {
		t.Error("Ogg was accepted as ADTS")
	}
}

func FuzzSound(f *testing.F) {
	f.Add(
		[]byte(
			"OggS\x00\x02aaaaaaaaaaaaaaaaaaaa\x01\x13OpusHead\x01\x02\x38\x01\x80\xbb\x00\x00\x00\x00\x00OggS\x00\x00aaaaaaaaaaaaaaaaaaaa\x02\x08\x02OpusTags\xfcx",
		),
	)
	f.Add([]byte("\xff\xf1\x4c\x80\x01\x1f\xfca"))
	f.Fuzz(func(t *testing.T, b []byte) {
		drain := func(next func() (Packet, error)) {
			total := 0
			for {
				p, err := next()
				if err != nil {
					return
				}
				if total += len(p.Data); total > len(b) || p.Samples <= 0 {
					t.Fatalf("%d bytes and %d samples of %d bytes", total, p.Samples, len(b))
				}
			}
		}
		if r, _, err := NewOpusReader(bytes.NewReader(b)); err == nil {
			drain(r.Next)
		}
		if r, _, err := NewAACReader(bytes.NewReader(b)); err == nil {
			drain(r.Next)
		}
	})
}

func FuzzConfig(f *testing.F) {
	b, _ := AVCConfig([]byte{0x67, 0x64, 0, 0x1e}, []byte{0x68})
	f.Add(b)
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = ParameterSets(b)
		_, _ = AVCCodec(b)
		_, _ = AppendAnnexB(nil, b)
		_, _ = Parse(b)
	})
}
