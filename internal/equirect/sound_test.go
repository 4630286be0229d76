package equirect

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"

	"holocast/internal/ffmpeg"
	"holocast/internal/mp4box"
	"holocast/internal/spherical"
)

// leftOnly is sound from the left, as first-order ambisonics: W, Y, Z, X.
const leftOnly = "aevalsrc='0.4*sin(2*PI*440*t)|0.4*sin(2*PI*440*t)|0|0:c=4.0:d=1'"

// TestAmbisonics checks that a source on the left is heard on the left.
func TestAmbisonics(t *testing.T) {
	for _, tt := range []struct {
		name string
		path func(t *testing.T) string
		left bool
	}{
		{"Opus, mapping family 2", func(t *testing.T) string {
			return film(t, "a.mkv", "128x64", "-f", "lavfi", "-i", leftOnly, "-c:a", "libopus", "-mapping_family", "2")
		}, true},
		{"AAC with SA3D", func(t *testing.T) string {
			path := film(t, "a.mp4", "128x64", "-f", "lavfi", "-i", leftOnly, "-c:a", "aac")
			insertSA3D(t, path, 0, 1, 2, 3)
			return path
		}, true},
		{"AAC with SA3D, W last", func(t *testing.T) string {
			swapped := strings.Replace(leftOnly, "|0|0:", "|0|0.4*sin(2*PI*440*t):", 1)
			path := film(t, "a.mp4", "128x64", "-f", "lavfi", "-i", strings.Replace(swapped, "0.4*sin(2*PI*440*t)|", "0|", 1),
				"-c:a", "aac")
			insertSA3D(t, path, 3, 1, 2, 0)
			return path
		}, true},
		{"AAC for loudspeakers", func(t *testing.T) string {
			return film(t, "a.mp4", "128x64", "-f", "lavfi", "-i", leftOnly, "-c:a", "aac")
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, err := Open(t.Context(), tt.path(t), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if known := v.ambisonics.Channels > 0; known != tt.left {
				t.Fatalf("ambisonics %+v", v.ambisonics)
			}
			if !tt.left {
				return
			}
			if n := soundSamples(t, v); n < 48000 {
				t.Errorf("%d samples of a second", n)
			}
			out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-i", v.Input.File(), "-vn", "-af",
				downmix(v.ambisonics)+"anull", "-f", "f32le", "-").Output()
			if err != nil {
				t.Fatal(err)
			}
			var power [2]float64
			for i := 0; i+4 <= len(out); i += 4 {
				x := float64(math.Float32frombits(binary.LittleEndian.Uint32(out[i:])))
				power[i/4%2] += x * x
			}
			if power[0] < 1000*power[1] || power[0] < 1 {
				t.Errorf("power %.3g at the left, %.3g at the right", power[0], power[1])
			}
		})
	}
}

// soundSamples plays a film and counts the samples of its sound.
func soundSamples(t *testing.T, v *Video) (n int) {
	t.Helper()
	r, err := v.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, played := context.WithCancel(t.Context())
	go func() {
		defer played()
		for f := v.NewFrame(); r.Next(f) == nil; {
		}
	}()
	a, err := r.Audio()
	if err != nil {
		t.Fatal(err)
	}
	for {
		p, err := a.Next()
		if err == io.EOF {
			<-ctx.Done()
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		n += p.Samples
	}
}

func TestLayoutNames(t *testing.T) {
	of := spherical.ACN
	file := spherical.Ambisonics{Channels: 4, W: 0, Y: 1}
	for _, tt := range []struct {
		audio *ffmpeg.Audio
		want  spherical.Ambisonics
	}{
		{nil, spherical.Ambisonics{}},
		{&ffmpeg.Audio{Layout: "ambisonic 1", Channels: 4}, of(1, false)},
		{&ffmpeg.Audio{Layout: "ambisonic 1+stereo", Channels: 6}, of(1, true)},
		{&ffmpeg.Audio{Layout: "ambisonic 3", Channels: 16}, of(3, false)},
		{&ffmpeg.Audio{Layout: "ambisonic x", Channels: 2}, spherical.Ambisonics{}},
		{&ffmpeg.Audio{Layout: "quad", Channels: 4}, file},
		{&ffmpeg.Audio{Layout: "stereo", Channels: 2}, spherical.Ambisonics{}}, // another track's metadata
	} {
		if got := ambisonicsOf(tt.audio, file); got != tt.want {
			t.Errorf("%+v: %+v, want %+v", tt.audio, got, tt.want)
		}
	}
	const want = "pan=stereo|c0=0.5*c0+0.5*c1+c4|c1=0.5*c0-0.5*c1+c5,"
	if got := downmix(of(1, true)); got != want {
		t.Errorf("filter %q, want %q", got, want)
	}
}

// insertSA3D adds an SA3D box with the given channel map to a film's sound.
func insertSA3D(t *testing.T, path string, components ...uint32) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content := binary.BigEndian.AppendUint32([]byte{0, 0, 0, 0, 0, 1, 0, 0}, uint32(len(components)))
	for _, c := range components {
		content = binary.BigEndian.AppendUint32(content, c)
	}
	sa3d := mp4box.Append(nil, "SA3D", content)
	at := strings.Index(string(b), "esds") - 4
	grow(b, at, len(sa3d))
	if err := os.WriteFile(path, []byte(string(b[:at])+string(sa3d)+string(b[at:])), 0o600); err != nil {
		t.Fatal(err)
	}
}

// grow adds n bytes to the sizes of the boxes around a position.
func grow(b []byte, at, n int) {
	for start := 0; start+8 <= len(b); {
		size := int(binary.BigEndian.Uint32(b[start:]))
		if end := start + size; end <= at {
			start = end
			continue
		}
		header := map[string]int{"stsd": 16, "mp4a": 36}[string(b[start+4:start+8])]
		binary.BigEndian.PutUint32(b[start:], uint32(size+n))
		if header == 0 {
			header = 8
		}
		if start += header; start >= at {
			return
		}
	}
}
