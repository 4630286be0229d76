package export

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/ffmpeg"
	"holocast/internal/loc"
	"holocast/internal/opus"
	"holocast/internal/recording"
	"holocast/internal/render"
)

var dots = View{Look: render.Dotted, Width: 96, Height: 64}

func TestTurntable(t *testing.T) {
	gap := take{
		cameras: 1, frames: 12, descriptions: 1, layout: "A", drop: -1,
		missing: func(f, _ int) bool { return f == 5 || f == 6 },
	}.record(t)
	for _, tt := range []struct {
		name   string
		turn   Turn
		frames int
	}{
		{"recording", Turn{View: dots, Period: time.Second}, 12}, // two lost frames are bridged
		{"still viewer", Turn{View: dots}, 12},
		{"half the rate", Turn{View: dots, Rate: 15}, 7},
		{"one frame", Turn{View: small, Period: time.Second, Rate: 8, Still: true}, 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			out := filepath.Join(dir, "a.mp4")
			var progress uint64
			cfg := quiet
			cfg.Progress = func(n uint64) { progress = n }
			film, err := Turntable(t.Context(), gap, out, tt.turn, cfg)
			if err != nil || film.Frames != tt.frames || progress != 1000 {
				t.Fatalf("%+v at %d ‰, %v", film, progress, err)
			}
			in, err := ffmpeg.ParseInput(out)
			if err != nil {
				t.Fatal(err)
			}
			info, err := ffmpeg.Probe(t.Context(), in)
			if err != nil || info.Video.Width != 96 || info.Video.Codec != "h264" || info.Audio != nil {
				t.Errorf("%+v, %v", info.Video, err)
			}
			if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
				t.Errorf("%v are left, %v", list, err)
			}
		})
	}
	odd := Turn{View: View{Width: 95, Height: 64}}
	if _, err := Turntable(t.Context(), gap, filepath.Join(t.TempDir(), "a.mp4"), odd, quiet); err == nil ||
		!strings.Contains(err.Error(), "H.264 needs even numbers") {
		t.Errorf("odd size: %v", err)
	}
}

// TestTurntableStops checks that a canceled or failed film leaves nothing.
func TestTurntableStops(t *testing.T) {
	path := record(t, 1, 1, "A", -1)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cfg := quiet
	cfg.Progress = func(uint64) { cancel() }
	_, err := Turntable(ctx, path, filepath.Join(dir, "a.mp4"), Turn{View: small}, cfg)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if _, err := Turntable(t.Context(), path, filepath.Join(dir, "none", "a.mp4"), Turn{View: small}, quiet); !errors.Is(
		err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	t.Setenv("PATH", "")
	if _, err := Turntable(t.Context(), path, filepath.Join(dir, "a.mp4"), Turn{View: small}, quiet); !errors.Is(
		err, ffmpeg.ErrAbsent) {
		t.Errorf("without FFmpeg: %v", err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("%v are left, %v", list, err)
	}
}

// microphone hears a click. All times are after the first frame's capture.
type microphone struct{ from, to, click time.Duration }

func (m *microphone) describe() catalog.Track {
	return catalog.Track{
		Name: catalog.SoundTrack(0), Packaging: catalog.PackagingLOC, Role: catalog.RoleAudio,
		Codec: catalog.CodecOpus, Samplerate: opus.SampleRate, ChannelConfig: "1", Bitrate: 64000,
		Sound: &catalog.Sound{MicrophoneName: "test", Delivery: catalog.DeliveryStream, Packet: catalog.SoundPacket},
	}
}

// run calls put for each packet.
func (m *microphone) run(t *testing.T, put func(recording.Object)) {
	t.Helper()
	enc, err := opus.NewEncoder(1)
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	const packet = 10 * time.Millisecond
	for at := m.from; at < m.to; at += packet {
		pcm := make([]float32, opus.PacketSamples)
		for i := range pcm {
			if x := (at-m.click).Seconds()*opus.SampleRate + float64(i); x >= 0 && x < 48 {
				pcm[i] = float32(0.7 * math.Sin(math.Pi*x/4))
			}
		}
		b, err := enc.Encode(nil, pcm)
		if err != nil {
			t.Fatal(err)
		}
		captured := time.UnixMicro(firstCapture).Add(at - time.Duration(enc.Lookahead())*time.Second/opus.SampleRate)
		put(recording.Object{
			Group: uint64((at - m.from) / packet), Properties: loc.Properties{Timestamp: captured}.Append(nil), Payload: b,
		})
	}
}

// decode returns a film's pictures, each reduced to its brightness, and its sound at 48 kHz from the first picture on.
func decode(t *testing.T, film string) (pictures []byte, sound []int16) {
	t.Helper()
	run := func(args ...string) []byte {
		t.Helper()
		out, err := exec.CommandContext(
			t.Context(), "ffmpeg", append(append([]string{"-v", "error", "-i", film}, args...), "pipe:1")...,
		).Output()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	pictures = run("-vf", "scale=1:1:flags=area", "-pix_fmt", "gray", "-f", "rawvideo")
	pcm := run("-af", "aresample=48000:first_pts=0", "-ac", "1", "-f", "s16le")
	sound = make([]int16, len(pcm)/2)
	if _, err := binary.Decode(pcm, binary.LittleEndian, sound); err != nil {
		t.Fatal(err)
	}
	return pictures, sound
}

// TestTurntableSound compares the times of a click and of the picture in which the scene turns white.
func TestTurntableSound(t *testing.T) {
	const flash = 8 // frame
	at := flash * 33333 * time.Microsecond
	paint := func(f int, rgb []byte) {
		for i := range rgb {
			if rgb[i] = 30; f >= flash {
				rgb[i] = 250
			}
		}
	}
	for _, tt := range []struct {
		name    string
		sound   microphone
		rate    float64
		cameras []int
		missing func(f, n int) bool
		picture int // the first white one
	}{
		{"together", microphone{0, 500 * time.Millisecond, at}, 0, nil, nil, flash},
		{"sound first", microphone{-500 * time.Millisecond, 500 * time.Millisecond, at}, 0, nil, nil, flash},
		{"pictures first", microphone{130 * time.Millisecond, 900 * time.Millisecond, at}, 0, nil, nil, flash},
		{"half the rate", microphone{0, 500 * time.Millisecond, at}, 15, nil, nil, flash / 2},
		{
			"a camera that begins late",
			microphone{0, 500 * time.Millisecond, at},
			0,
			[]int{1},
			func(f, n int) bool { return n == 1 && f < 2 }, flash - 2,
		},
		{
			"lost frames",
			microphone{0, 500 * time.Millisecond, at},
			0, nil,
			func(f, _ int) bool { return f > 2 && f < 6 }, flash,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := take{
				cameras: 1 + len(tt.cameras), frames: 12, descriptions: 1, layout: "A", drop: -1, paint: paint,
				missing: tt.missing, microphone: &tt.sound,
				jitter: func(f int) time.Duration { return time.Duration(f*7%5) * time.Millisecond },
			}.record(t)
			out := filepath.Join(t.TempDir(), "a.mp4")
			cfg := quiet
			cfg.Cameras = tt.cameras
			film, err := Turntable(t.Context(), path, out, Turn{View: dots, Rate: tt.rate}, cfg)
			if err != nil {
				t.Fatal(err)
			}
			pictures, sound := decode(t, out)
			white := slices.IndexFunc(pictures, func(b byte) bool { return int(b) > int(pictures[0])+40 })
			if white != tt.picture || len(pictures) != film.Frames {
				t.Errorf("picture %d of %d is white, want %d of %d", white, len(pictures), tt.picture, film.Frames)
			}
			loudest := 0
			for i, x := range sound {
				if abs(x) > abs(sound[loudest]) {
					loudest = i
				}
			}
			rate := tt.rate
			if rate == 0 {
				rate = 30
			}
			off := time.Duration(float64(loudest)/48000*1e9 - float64(white)/rate*1e9)
			if t.Logf("the click is %v after the flash", off); off.Abs() > 10*time.Millisecond || abs(sound[loudest]) < 5000 {
				t.Errorf("the click, of %d, is %v after the flash", sound[loudest], off)
			}
		})
	}
}

func abs(x int16) int { return max(int(x), -int(x)) }
