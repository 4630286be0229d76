package panorama

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holocast/internal/spherical"
)

// The video moves in all directions, and its end matches its start.
func TestFrames(t *testing.T) {
	const w, h = 128, 64
	difference := func(a, b []byte) float64 {
		sum := 0.0
		for i := range a {
			sum += math.Abs(float64(a[i]) - float64(b[i]))
		}
		return sum / float64(len(a))
	}
	first := Frame(0, w, h)
	if d := difference(first, Frame(FPS*Seconds, w, h)); d != 0 {
		t.Errorf("the frame after the last differs from the first by %v", d)
	}
	step, far := difference(first, Frame(1, w, h)), difference(first, Frame(FPS, w, h))
	if step == 0 || far < 1 || far < step {
		t.Errorf("frames differ by %v, and a second apart by %v", step, far)
	}
	for quarter := range 4 {
		var a, b []byte
		for y := range h {
			at := 3 * (y*w + quarter*w/4)
			a, b = append(a, first[at:at+3*w/4]...), append(b, Frame(FPS, w, h)[at:at+3*w/4]...)
		}
		if difference(a, b) == 0 {
			t.Errorf("no motion in quarter %d", quarter)
		}
	}
}

func TestWrite(t *testing.T) {
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("ffmpeg is not installed")
	}
	const w, h = 256, 128 // the race detector makes rendering slow
	path := filepath.Join(t.TempDir(), "panorama.mp4")
	ctx, cancel := context.WithCancel(t.Context())
	if err := write(ctx, path, w, h, func(int, int) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if list, _ := os.ReadDir(filepath.Dir(path)); len(list) != 0 {
		t.Errorf("files left after an interruption: %v", list)
	}
	last := 0
	if err := write(t.Context(), path, w, h, func(done, _ int) { last = done }); err != nil || last != FPS*Seconds {
		t.Fatalf("%d frames, %v", last, err)
	}
	out, err := exec.CommandContext(
		t.Context(), "ffprobe", "-v", "error", "-count_packets", "-show_entries", "stream=codec_name,nb_read_packets",
		"-of", "csv=p=0", path,
	).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "h264,120") || !strings.Contains(string(out), "aac,") {
		t.Errorf("ffprobe: %v: %s", err, out)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := spherical.Parse(bytes.NewReader(b), int64(len(b))); err != nil ||
		m != (spherical.Metadata{Projection: spherical.Equirectangular, Stereo: spherical.Mono}) {
		t.Errorf("metadata %+v, %v", m, err)
	}
}
