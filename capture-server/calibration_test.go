package main

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holocast/capture-server/depthmap"
	"holocast/capture-server/points"
	"holocast/capture-server/publish"
	"holocast/capture-server/publish/publishtest"
	"holocast/internal/camera"
	"holocast/internal/catalog"
)

// TestPublishBeforeSolve checks that cameras are in the session while their poses are still being
// solved, which takes seconds.
func TestPublishBeforeSolve(t *testing.T) {
	data := os.Getenv("HOLOCAST_DATA")
	if data == "" {
		data = filepath.Join("..", "..", "shared", "data")
	}
	dir := filepath.Join(data, "livescan_testdata")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("HOLOCAST_DATA not found: %v", err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	cfg := defaultConfig()
	// The second studio's camera of the same name is renamed; its pose must still be found.
	cfg.Sources = []string{"livescan:" + filepath.Join(dir, "virtualdevice0"), "livescan:" + dir}
	cameras, unsolved, err := openSources(t.Context(), &cfg, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	if len(cameras) != 5 || len(unsolved) != 2 {
		t.Fatalf("%d cameras, %d studios to place, want 5 and 2", len(cameras), len(unsolved))
	}
	p := publish.New(publish.Config{Namespace: publishtest.Namespace, Log: log})
	defer p.Close()
	m, err := addPoints(p, &cfg, cameras)
	if err != nil {
		t.Fatal(err)
	}
	for n, pose := range newestPoses(t, p) {
		if pose != camera.Identity {
			t.Errorf("camera %d is at %v before it is placed", n, pose)
		}
	}
	for _, s := range unsolved {
		s.solve(t.Context(), m, log)
	}
	poses := newestPoses(t, p)
	seen := map[camera.Transform]int{}
	for n, pose := range poses {
		if other, twice := seen[pose]; twice {
			t.Errorf("cameras %d and %d are both at %v", other, n, pose)
		}
		seen[pose] = n
		if pose == camera.Identity {
			t.Errorf("camera %d is still at the origin", n)
		}
	}
	if len(poses) != 5 {
		t.Errorf("%d poses, want 5", len(poses))
	}
}

func newestPoses(t *testing.T, p *publish.Publisher) map[int]camera.Transform {
	t.Helper()
	documents := publishtest.Objects(t, p, catalog.PoseTrack)
	events, err := catalog.ParsePoses(documents[len(documents)-1])
	if err != nil {
		t.Fatal(err)
	}
	poses := map[int]camera.Transform{}
	for _, e := range events {
		poses[e.Data.Camera] = e.Data.Pose
	}
	return poses
}

// TestReplaceWhileSolving checks that a calibration file replaces poses that are being solved.
func TestReplaceWhileSolving(t *testing.T) {
	cfg := defaultConfig()
	cfg.Sources = []string{"synthetic"}
	cameras, _, err := openSources(t.Context(), &cfg, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	p := publish.New(publish.Config{Namespace: publishtest.Namespace, Log: slog.New(slog.DiscardHandler)})
	defer p.Close()
	m, err := addPoints(p, &cfg, cameras)
	if err != nil {
		t.Fatal(err)
	}
	at := func(x float64) camera.Transform { return camera.Transform{R: camera.Identity.R, T: [3]float64{x}} }
	file := writeFile(t, filepath.Join(t.TempDir(), "poses.yaml"), []byte("cameras:\n  synthetic-0: "+
		"{rotation: [1, 0, 0, 0, 1, 0, 0, 0, 1], translation: [2000, 0, 0]}\n"))
	solved := func() {
		if err := m.Place(map[int]camera.Transform{0: at(1000)}); err != nil {
			t.Error(err)
		}
	}
	if err := replace(m, cameraNames(cameras), calibrationAuto, file, solved); err != nil {
		t.Fatal(err)
	}
	if got := newestPoses(t, p)[0]; got != at(2000) {
		t.Errorf("the camera is at %v, want %v", got, at(2000))
	}
}

// TestStoredPoses checks that the setting auto prefers poses stored with a take over markers.
func TestStoredPoses(t *testing.T) {
	dir := studio(t, 1280, 720)
	serial := camerasOf(t, dir, calibrationNone, nil)[0].Source.Calibration().Serial
	const matrix = "1 0 0 0.5 0 1 0 1.25 0 0 1 -2 0 0 0 1\n"
	for name, tt := range map[string]struct {
		calibration, file string
		stored            bool
		log               string
	}{
		"auto":          {calibrationAuto, "0\t" + serial + "\t7\n" + matrix, true, "camera poses read from the take"},
		"none":          {calibrationNone, "0\t" + serial + "\t7\n" + matrix, false, ""},
		"another take":  {calibrationAuto, "0\tother\t7\n" + matrix, false, "no pose for camera kinect"},
		"damaged":       {calibrationAuto, "0\t" + serial, false, "ignored the stored camera poses"},
		"without poses": {calibrationAuto, "", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "Extrinsics_Open3D.log")
			if tt.file == "" {
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
			} else {
				writeFile(t, path, []byte(tt.file))
			}
			var log bytes.Buffer
			c := camerasOf(t, dir, tt.calibration, &log)[0]
			want := camera.Transform{}
			if tt.stored {
				want = camera.Transform{R: camera.Identity.R, T: [3]float64{500, 1250, -2000}}.
					Compose(c.Source.Calibration().DepthToColor)
			}
			if c.Pose != want || !strings.Contains(log.String(), tt.log) || tt.log == "" && log.Len() > 0 {
				t.Errorf("pose %v, log %q, want %v and %q", c.Pose, log.String(), want, tt.log)
			}
		})
	}
}

// camerasOf opens a livescan source. It checks that the studio is unsolved only if the calibration is
// auto, and that its poses are known if they are stored.
func camerasOf(t *testing.T, dir, calibration string, log io.Writer) []points.Camera {
	t.Helper()
	if log == nil {
		log = io.Discard
	}
	cfg := defaultConfig()
	cfg.Sources, cfg.Calibration = []string{"livescan:" + dir}, calibration
	cameras, unsolved, err := openSources(t.Context(), &cfg, nil, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeCameras(cameras) })
	if (len(unsolved) == 1) != (calibration == calibrationAuto) {
		t.Errorf("%d studios to solve with calibration %s", len(unsolved), calibration)
	}
	for _, s := range unsolved {
		if known, stored := s.poses != nil, cameras[0].Pose != (camera.Transform{}); known != stored {
			t.Errorf("poses known: %v, stored: %v", known, stored)
		}
	}
	return cameras
}

// TestGainsInFile checks that a calibration file's gains apply, also when the file is read again, and
// that bad ones are refused.
func TestGainsInFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "poses.yaml")
	write := func(gain string) {
		writeFile(t, file, []byte("cameras:\n  synthetic-0: {rotation: [1, 0, 0, 0, 1, 0, 0, 0, 1], "+
			"translation: [0, 0, 0]"+gain+"}\n"))
	}
	for gain, want := range map[string]string{
		", gain: [1, 2]":     "camera synthetic-0 has 2 gain values, want 3",
		", gain: [1, 0, 1]":  "gain of green is 0, want 0.25 to 4",
		", gain: [1, 1, 9]":  "gain of blue is 9, want 0.25 to 4",
		", gain: [.nan,1,1]": "gain of red is NaN",
	} {
		write(gain)
		if _, err := loadPoses(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", gain, err, want)
		}
	}
	write(", gain: [1.5, 1, 0.5]")
	p, err := loadPoses(file)
	if err != nil {
		t.Fatal(err)
	}
	want := depthmap.Gain{1.5, 1, 0.5}
	if got := p.gainsOf([]string{"synthetic-0", "other"}); got[0] != want || got[1] != (depthmap.Gain{}) {
		t.Errorf("gains %v, want %v for the first", got, want)
	}
	cfg := defaultConfig()
	cfg.Sources, cfg.Calibration = []string{"synthetic"}, file
	cameras, _, err := openSources(t.Context(), &cfg, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeCameras(cameras) })
	if cameras[0].Gain != want {
		t.Errorf("the camera's gain is %v, want %v", cameras[0].Gain, want)
	}
}
