package cmaf

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"holocast/internal/loc"
	"holocast/internal/spherical"
	"holocast/internal/x264"
)

// file returns an init segment, an index and fragments.
func file(t Track, fragments [][]Sample) []byte {
	var media []byte
	var entries []Entry
	at := uint64(0)
	for i, samples := range fragments {
		f := Fragment(uint32(i+1), at, samples)
		e := Entry{Size: uint32(len(f))}
		for _, s := range samples {
			e.Duration += s.Duration
		}
		at += uint64(e.Duration)
		entries, media = append(entries, e), append(media, f...)
	}
	return append(append(Init(t, at), Index(t.Timescale, entries)...), media...)
}

func video(t testing.TB) (Track, [][]Sample) {
	e, err := x264.New(x264.Config{Width: 64, Height: 32, FPSNum: 10, FPSDen: 1, QP: 30, Preset: "ultrafast"})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	p := x264.Picture{Y: make([]byte, 2048), Cb: make([]byte, 512), Cr: make([]byte, 512), YStride: 64, CStride: 32}
	var fragments [][]Sample
	for n := range 20 {
		p.Y[100*n] = 200
		b, err := e.Encode(nil, p, n%10 == 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n%10 == 0 {
			fragments = append(fragments, nil)
		}
		fragments[n/10] = append(fragments[n/10], Sample{b, 1, n%10 == 0})
	}
	return Track{
		Timescale: 10, Width: 64, Height: 32, AVCConfig: e.Config(),
		Spherical: &spherical.Metadata{Stereo: spherical.TopBottom, Yaw: 30, Roll: -5},
	}, fragments
}

func TestRoundTrip(t *testing.T) {
	track, fragments := video(t)
	b := file(track, fragments)
	entries, at, err := ParseIndex(b)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%d fragments, %v", len(entries), err)
	}
	for i, e := range entries {
		if e.Duration != 10 {
			t.Errorf("fragment %d lasts %d", i, e.Duration)
		}
		got, err := ParseFragment(b[at : at+int64(e.Size)])
		if err != nil || !reflect.DeepEqual(got, fragments[i]) {
			t.Errorf("fragment %d: %d samples, %v", i, len(got), err)
		}
		bytes := int64(0)
		for _, s := range fragments[i] {
			bytes += int64(len(s.Data))
		}
		if n := FragmentSize(len(fragments[i]), bytes); n != int64(e.Size) {
			t.Errorf("fragment %d has %d bytes, expected %d", i, e.Size, n)
		}
		at += int64(e.Size)
	}
	if at != int64(len(b)) {
		t.Errorf("the index ends at %d of %d", at, len(b))
	}
	if m, err := spherical.Parse(bytes.NewReader(b), int64(len(b))); err != nil || m.Stereo != spherical.TopBottom ||
		m.Projection != spherical.Equirectangular {
		t.Errorf("spherical metadata %+v, %v", m, err)
	}
}

// TestFFmpegReads checks that FFmpeg decodes this package's files.
func TestFFmpegReads(t *testing.T) {
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("ffmpeg is not installed")
	}
	track, fragments := video(t)
	sound := func(codec, format string) []byte {
		b, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-f", "lavfi", "-i", "sine=duration=1",
			"-ac", "2", "-ar", "48000", "-c:a", codec, "-f", format, "pipe:1").
			Output()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	packets := func(next func() (loc.Packet, error)) (samples []Sample) {
		for {
			p, err := next()
			if err != nil {
				return samples
			}
			samples = append(samples, Sample{p.Data, uint32(p.Samples), true})
		}
	}
	opus, of, err := loc.NewOpusReader(bytes.NewReader(sound("libopus", "ogg")))
	if err != nil {
		t.Fatal(err)
	}
	aac, af, err := loc.NewAACReader(bytes.NewReader(sound("aac", "adts")))
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		file []byte
		want string
	}{
		"video": {
			file(track, fragments),
			"codec_name=h264\nprofile=Constrained Baseline\nwidth=64\nheight=32\nnb_read_frames=20\n",
		},
		"opus": {
			file(Track{Timescale: 48000, Audio: &of}, [][]Sample{packets(opus.Next)}),
			"codec_name=opus\nprofile=unknown\nsample_rate=48000\nchannels=2\nnb_read_frames=51\n",
		},
		"aac": {
			file(Track{Timescale: 48000, Audio: &af}, [][]Sample{packets(aac.Next)}),
			"codec_name=aac\nprofile=LC\nsample_rate=48000\nchannels=2\nnb_read_frames=48\n",
		},
	} {
		path := filepath.Join(t.TempDir(), "a.mp4")
		if err := os.WriteFile(path, tt.file, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-count_frames", "-show_entries",
			"stream=codec_name,profile,width,height,sample_rate,channels,nb_read_frames",
			"-of", "default=nw=1", path).
			CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), tt.want) {
			t.Errorf("%s: %v:\n%s\nwant\n%s", name, err, out, tt.want)
		}
	}
}

func TestDamaged(t *testing.T) {
	track, fragments := video(t)
	b := file(track, fragments)
	_, first, err := ParseIndex(b)
	if err != nil {
		t.Fatal(err)
	}
	for n := range first {
		if _, _, err := ParseIndex(b[:n]); !errors.Is(err, ErrShort) {
			t.Fatalf("cut off at %d: %v", n, err)
		}
	}
	f := Fragment(1, 0, fragments[0])
	for n := range f {
		if _, err := ParseFragment(f[:n]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("fragment cut off at %d: %v", n, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	track, fragments := video(f)
	f.Add(file(track, fragments[:1]))
	f.Add(Fragment(1, 0, fragments[0]))
	f.Fuzz(func(t *testing.T, b []byte) {
		entries, first, err := ParseIndex(b)
		if err == nil && (len(entries) > MaxFragments || first > int64(len(b))) {
			t.Errorf("%d fragments from %d on", len(entries), first)
		}
		if _, err := ParseHeader(b); errors.Is(err, ErrShort) && len(b) > 1<<20 {
			t.Error(err)
		}
		if samples, err := ParseFragment(b); err == nil {
			n := 0
			for _, s := range samples {
				n += len(s.Data)
			}
			if n > len(b) {
				t.Errorf("samples of %d bytes in %d", n, len(b))
			}
		}
	})
}
