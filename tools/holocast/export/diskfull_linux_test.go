package export

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holocast/internal/camera"
	"holocast/internal/render"
)

// TestDiskFull simulates a full disk with a file size limit. The limit applies to a process, so the
// test runs itself in a child process. A full disk must cause a single error of one line. It must
// leave no partial file, except for recordings, which play up to the cut.
func TestDiskFull(t *testing.T) {
	const kind, recording = "EXPORT_KIND", "EXPORT_RECORDING"
	if os.Getenv(kind) != "" {
		exportBeyond(t, os.Getenv(kind), os.Getenv(recording))
		return
	}
	path := take{cameras: 2, frames: 2, descriptions: 1, layout: "A", drop: -1}.record(t)
	for _, name := range []string{"ply", "ply per camera", "k4a", "rgbd", "foxglove", "faces", "glb", "png", "film"} {
		t.Run(name, func(t *testing.T) {
			self := exec.Command(os.Args[0], "-test.run=^TestDiskFull$")
			self.Env = append(os.Environ(), kind+"="+name, recording+"="+path)
			if out, err := self.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

func exportBeyond(t *testing.T, kind, recording string) {
	signal.Ignore(syscall.SIGXFSZ)
	const size = 5000
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: size}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var err error
	switch kind {
	case "ply":
		_, err = PLY(t.Context(), recording, dir, true, quiet)
	case "ply per camera":
		_, err = PLY(t.Context(), recording, dir, false, quiet)
	case "k4a":
		_, err = K4A(t.Context(), recording, dir, camera.MJPG, quiet)
	case "rgbd":
		_, err = RGBD(t.Context(), recording, dir, quiet)
	case "faces":
		cfg := quiet
		cfg.Faces = true
		_, err = PLY(t.Context(), recording, dir, true, cfg)
	case "glb":
		_, err = GLB(t.Context(), recording, filepath.Join(dir, "a.glb"), 0, quiet)
	case "png":
		_, err = PNG(t.Context(), recording, filepath.Join(dir, "a.png"), 0, small, quiet)
	case "film":
		film := Turn{View: View{Look: render.Dotted, Width: 1280, Height: 960}}
		_, err = Turntable(t.Context(), recording, filepath.Join(dir, "a.mp4"), film, quiet)
	case "foxglove":
		_, err = Foxglove(t.Context(), recording, filepath.Join(dir, "a.mcap"), quiet)
	}
	full := errors.Is(err, syscall.EFBIG) && strings.Contains(err.Error(), dir)
	if kind == "film" { // FFmpeg writes it
		full = err != nil && strings.Contains(err.Error(), recording)
	}
	if !full || strings.Count(strings.ToLower(err.Error()), "file too large") != 1 || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one line with the file", err)
	}
	_ = filepath.WalkDir(dir, func(path string, e os.DirEntry, _ error) error {
		if !e.IsDir() && filepath.Ext(path) != ".mkv" {
			t.Errorf("%s is left", path)
		}
		return nil
	})
}
