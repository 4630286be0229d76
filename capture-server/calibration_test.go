package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"holocast/capture-server/publish"
	"holocast/capture-server/publish/publishtest"
	"holocast/internal/camera"
	"holocast/internal/catalog"
)

// TestPublishBeforeSolve checks that cameras are in the session while their poses, which take
// seconds, are being solved.
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
	cameras, unplaced, err := openSources(t.Context(), &cfg, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	if len(cameras) != 5 || len(unplaced) != 2 {
		t.Fatalf("%d cameras, %d studios to place, want 5 and 2", len(cameras), len(unplaced))
	}
	p := publish.New(publish.Config{Namespace: publishtest.Namespace, Log: log})
	defer p.Close()
	m, err := addPoints(p, &cfg, cameras)
	if err != nil {
		closeCameras(cameras)
		t.Fatal(err)
	}
	for n, pose := range newestPoses(t, p) {
		if pose != camera.Identity {
			t.Errorf("camera %d is at %v before it is placed", n, pose)
		}
	}
	for _, s := range unplaced {
		s.place(t.Context(), m, log)
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
