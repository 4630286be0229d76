package main

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"holocast/internal/catalog"
	"holocast/internal/spherical"
)

// tourFilm generates three seconds of stereo 360° video with sound.
func tourFilm(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("ffmpeg is not installed")
	}
	path := filepath.Join(t.TempDir(), "film.mp4")
	out, err := exec.CommandContext(
		t.Context(), "ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=128x128:rate=10", "-f", "lavfi",
		"-i", "sine", "-t", "3", "-qp", "4", path,
	).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := spherical.Tag(path, spherical.Metadata{Stereo: spherical.TopBottom}); err != nil {
		t.Fatal(err)
	}
	return path
}

func decodeFilm(t *testing.T, path string) []byte {
	t.Helper()
	b, err := exec.CommandContext(
		t.Context(), "ffmpeg", "-v", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "yuv420p", "pipe:1",
	).Output()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func psnr(a, b []byte) float64 {
	sum := 0.0
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		sum += d * d
	}
	return 10 * math.Log10(255*255*float64(len(a))/sum)
}

// TestPrepareReplayRecordExport prepares a video, publishes and records it through a relay and
// exports the recording. The export must equal the source up to compression loss.
func TestPrepareReplayRecordExport(t *testing.T) {
	film, dir := tourFilm(t), t.TempDir()
	folder := filepath.Join(dir, "tour")
	p := start(t, "holocast", "prepare", film, folder, "--grid", "4x2", "--qualities", "2", "--preset", "ultrafast")
	p.mustSucceed()
	if !strings.Contains(p.Stdout.String(), "3.0 s of 4×2 tiles at 2 qualities") {
		t.Errorf("prepare says %q", p.Stdout.String())
	}
	source := decodeFilm(t, film)
	for _, program := range []string{"holocast", "capture-server"} {
		t.Run(program, func(t *testing.T) {
			port := freePort(t)
			startRelay(t, port)
			url := sessionURL(port, "tour")
			recorded := filepath.Join(dir, program+".mcap")
			r := start(t, "holocast", "record", url, recorded, "--wait")
			var pub *process
			if program == "holocast" {
				pub = start(t, "holocast", "replay", folder, url, "--loop", "--wait-viewer")
			} else {
				pub = start(t, "capture-server", "--source", "tiles:"+folder, url)
			}
			until(t, "50 recorded frames", func() bool { return recordedTracks(recorded)[catalog.VideoTrack] >= 50 })
			r.Signal(syscall.SIGINT)
			r.mustSucceed()
			pub.Signal(syscall.SIGINT)
			_ = pub.wait()
			out := filepath.Join(dir, program+".mp4")
			x := start(t, "holocast", "export", recorded, "--mp4", out, "--json")
			x.mustSucceed()
			var sum struct {
				MP4 struct{ Frames, Missing int }
			}
			x.lastLine(&sum)
			got := decodeFilm(t, out)
			size := 128 * 128 * 3 / 2
			if sum.MP4.Frames < 40 || len(got) != sum.MP4.Frames*size {
				t.Fatalf("%d frames reported, %d exported", sum.MP4.Frames, len(got)/size)
			}
			// The loop may start anywhere, so every frame must match some source frame.
			for n := 0; n < sum.MP4.Frames; n += 7 {
				best := 0.0
				for at := 0; at < len(source); at += size {
					best = max(best, psnr(got[n*size:(n+1)*size], source[at:at+size]))
				}
				if best < 28 && sum.MP4.Missing == 0 {
					t.Errorf("frame %d: PSNR %.1f dB, want at least 28", n, best)
				}
			}
			b, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			if m, err := spherical.Parse(bytes.NewReader(b), int64(len(b))); err != nil || m.Stereo != spherical.TopBottom ||
				m.Projection != spherical.Equirectangular {
				t.Errorf("spherical metadata %+v, %v", m, err)
			}
		})
	}
	// Export the folder directly.
	out := filepath.Join(dir, "folder.mp4")
	start(t, "holocast", "export", folder, "--mp4", out).mustSucceed()
	if got := decodeFilm(t, out); len(got) != len(source) || psnr(got, source) < 30 {
		t.Errorf("%d bytes of pictures, PSNR %.1f dB", len(got), psnr(got, source[:len(got)]))
	}
	// Only point clouds have a viewer and surfaces.
	for _, args := range [][]string{{"--mp4", out, "--force", "--azimuth", "30"}, {"--png", "a.png"}, {"--glb", "a.glb"}} {
		for _, from := range []string{folder, filepath.Join(dir, "holocast.mcap")} {
			said := start(t, "holocast", append([]string{"export", from}, args...)...).mustFail()
			if !strings.Contains(said, from) || !strings.Contains(said, "no point clouds") {
				t.Errorf("export %s %v: %q", from, args, said)
			}
		}
	}
}

// soundPackets matches the sound packets in a live line. A packet holds 1024 samples at 44.1 kHz.
var soundPackets = regexp.MustCompile(`  (\d+) sound packets`)

// TestPlayLoopingSphere checks that a player continues across loops of a replay, with sound.
func TestPlayLoopingSphere(t *testing.T) {
	folder, port := filepath.Join(t.TempDir(), "tour"), freePort(t)
	start(
		t, "holocast", "prepare", tourFilm(t), folder, "--grid", "4x2", "--qualities", "2", "--preset", "ultrafast",
	).mustSucceed()
	startRelay(t, port)
	url := sessionURL(port, "tour")
	start(t, "holocast", "replay", folder, url, "--loop")
	p := start(t, "holocast", "play", url, "--wait", "--json")
	until(t, "six seconds of sound", func() bool {
		m := soundPackets.FindAllStringSubmatch(p.Stderr.String(), -1)
		if m == nil {
			return false
		}
		n, err := strconv.Atoi(m[len(m)-1][1])
		return err == nil && n >= 260
	})
	var report struct {
		Sphere struct {
			GOPs     int     `json:"gops"`
			TileHits float64 `json:"tile_hits"`
			Stalls   float64 `json:"stall_ratio"`
			Sound    *struct {
				Codec   string
				Packets int
				Missing int `json:"packets_missing"`
			}
		}
	}
	p.interrupted(&report)
	s := report.Sphere
	if s.GOPs <= 3 || s.TileHits == 0 || s.Stalls == 1 {
		t.Errorf("%d GoPs, %.0f %% tile hits, %.0f %% stalls", s.GOPs, 100*s.TileHits, 100*s.Stalls)
	}
	if s.Sound == nil || s.Sound.Missing > s.Sound.Packets/10 {
		t.Errorf("sound %+v", s.Sound)
	}
}

// TestPrepareInterrupted checks that the same command resumes an interrupted preparation.
func TestPrepareInterrupted(t *testing.T) {
	film, folder := tourFilm(t), filepath.Join(t.TempDir(), "tour")
	p := start(
		t, "holocast", "prepare", film, folder, "--preset", "veryslow", "--qualities", "4", "--grid", "2x1", "--size",
		"512x256",
	)
	until(t, "the first GoP", func() bool {
		list, _ := filepath.Glob(filepath.Join(folder, ".prepare", "*.json"))
		select {
		case <-p.Done():
			return true
		default:
			return len(list) > 1
		}
	})
	_ = p.Cmd.Process.Signal(syscall.SIGINT)
	if p.wait() == nil {
		t.Skip("preparation finished before the interrupt")
	}
	out := start(t, "holocast", "export", folder, "--mp4", filepath.Join(t.TempDir(), "a.mp4")).mustFail()
	if !strings.Contains(out, "its preparation was interrupted") {
		t.Errorf("export of an interrupted preparation: %s", out)
	}
	start(
		t, "holocast", "prepare", film, folder, "--preset", "veryslow", "--qualities", "4", "--grid", "2x1", "--size",
		"512x256",
	).mustSucceed()
}

func TestPrepareRefuses(t *testing.T) {
	film := tourFilm(t)
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"no film", []string{"/nonexistent.mp4"}, "no such file"},
		{"absurd grid", []string{film, "--grid", "100x100"}, "a grid of 100×100 tiles"},
		{"invalid grid", []string{film, "--grid", "many"}, `--grid is "many"`},
		{"too many qualities", []string{film, "--qualities", "9"}, "qualities: 9"},
		{"live", []string{"rtmp://127.0.0.1:1/x"}, "rtmp://127.0.0.1:1/x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"prepare", tt.args[0], filepath.Join(t.TempDir(), "out")}, tt.args[1:]...)
			if out := start(t, "holocast", args...).mustFail(); !strings.Contains(out, tt.want) {
				t.Errorf("says %q, want %q", out, tt.want)
			}
		})
	}
}
