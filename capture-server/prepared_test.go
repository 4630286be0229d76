package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holocast/capture-server/publish"
	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/prepared"
)

// tour prepares two seconds of video and returns the folder.
func tour(ctx context.Context, t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("ffmpeg is not installed")
	}
	film, dir := filepath.Join(t.TempDir(), "film.mp4"), filepath.Join(t.TempDir(), "tour")
	if out, err := exec.CommandContext(ctx, "ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=64x32:rate=10",
		"-f", "lavfi", "-i", "sine",
		"-t", "2", film).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := prepared.Prepare(ctx, film, dir,
		prepared.Options{Columns: 2, Rows: 1, Qualities: 2, Preset: "ultrafast"}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPreparedVideoBesideCamera checks that prepared video in a session with a camera is live: it
// has current timestamps, and its group IDs are higher than in earlier runs and the same in all
// tracks, in every pass of the loop.
func TestPreparedVideoBesideCamera(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir := tour(ctx, t)
	target, ns := startRelay(t)
	began := uint64(time.Now().UnixMilli())
	start(t, filepath.Join(bin, "capture-server"), "--source", "tiles:"+dir, "--source", "synthetic", "--fps", "5",
		target.URL)
	s := view(ctx, t, target)
	listed := subscribe(ctx, t, s, ns, catalog.TrackName)
	c, err := catalog.Parse(newestObject(ctx, t, listed))
	if err != nil {
		t.Fatal(err)
	}
	video := c.Sphere()
	if video == nil || !video.IsLive || len(c.Cameras()) != 1 || len(c.TileTracks(1)) != 2 {
		t.Fatalf("the catalog has a sphere %v and cameras %v", video, c.Cameras())
	}
	names := []string{catalog.VideoTrack, "tiles/1/1", catalog.AudioTrack, catalog.RatesTrack}
	collected := &gops{groups: map[string]map[uint64]*gop{}, came: make(chan struct{}, 1)}
	for _, name := range names {
		sub := subscribe(ctx, t, s, ns, name)
		if replayed, _ := sub.Properties.Int(connect.ReplayProperty); replayed != 0 {
			t.Errorf("%s says that it is a replay", name)
		}
		go collected.collect(ctx, sub)
	}
	points, err := c.Select(0, "")
	if err != nil {
		t.Fatal(err)
	}
	next(ctx, t, subscribe(ctx, t, s, ns, points.Name))

	var last uint64
	for pass := 0; pass < 4; { // a pass of the video has two groups
		group, all := collected.complete(ctx, t, names)
		collected.mu.Lock()
		for _, groups := range collected.groups {
			delete(groups, group)
		}
		collected.mu.Unlock()
		if group <= last {
			continue // overtaken by its successor
		}
		last = group
		pass++
		if group < began || group > uint64(time.Now().UnixMilli()) {
			t.Errorf("group %d, begun at %d", group, began)
		}
		stamp := all[catalog.VideoTrack].stamps[0]
		if age := time.Since(stamp); age < -time.Second || age > 5*time.Minute {
			t.Errorf("group %d is %s old", group, age)
		}
		if tile := all["tiles/1/1"].stamps[0]; !tile.Equal(stamp) {
			t.Errorf("group %d: a tile of %s, the sphere of %s", group, tile, stamp)
		}
		rates, err := catalog.ParseRates(all[catalog.RatesTrack].payload, video.Sphere)
		if err != nil || (rates.T-stamp.UnixMilli())*(rates.T-stamp.UnixMilli()) > 40*40 {
			t.Errorf("group %d: rates of %d, the sphere of %d, %v", group, rates.T, stamp.UnixMilli(), err)
		}
	}
}

// TestPreparedVideoEndsBesideCamera checks that a video that does not loop leaves the session while
// the camera continues.
func TestPreparedVideoEndsBesideCamera(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	dir := tour(ctx, t)
	target, ns := startRelay(t)
	start(t, filepath.Join(bin, "capture-server"), "--source", "synthetic", "--fps", "5", "--source", "tiles:"+dir,
		"--loop=false", target.URL)
	s := view(ctx, t, target)
	for {
		sub := subscribe(ctx, t, s, ns, catalog.TrackName)
		c, err := catalog.Parse(newestObject(ctx, t, sub))
		sub.Cancel()
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Cameras()) != 1 {
			t.Fatalf("cameras %v", c.Cameras())
		}
		if c.Sphere() == nil {
			points, err := c.Select(0, "")
			if err != nil {
				t.Fatal(err)
			}
			next(ctx, t, subscribe(ctx, t, s, ns, points.Name))
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal("the film stays in the catalog")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func TestPreparedVideoErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "film.mp4")
	if err := os.WriteFile(file, []byte("a film"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, dir, want string }{
		{
			"nothing", filepath.Join(t.TempDir(), "none"),
			"is not a folder; create one from a video with holocast prepare",
		},
		{"a film", file, "is not a folder; create one from a video with holocast prepare"},
		{"another folder", t.TempDir(), "it has no catalog.json: holocast prepare did not write it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := publish.New(publish.Config{Namespace: moqt.Namespace{"holocast", "test"}})
			defer p.Close()
			if _, err := newPreparedMedium(p, tt.dir, true); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}
