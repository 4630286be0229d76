package main

import (
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holocast/tools/holocast/player"
)

// TestPlaySeeks checks scripted seeks and pauses of one player while the shared replay continues.
func TestPlaySeeks(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port)
	dir := t.TempDir()
	first, frames := filepath.Join(dir, "first.mcap"), filepath.Join(dir, "frames.csv")
	writeRecording(t, first)
	url := sessionURL(port, "again")
	start(t, "holocast", "replay", first, url, "--loop")
	p := start(
		t, "holocast", "play", url, "--wait", "--from", "500ms", "--seek", "1s:0s", "--pause-at", "800ms:300ms",
		"--seek", "900ms:1400ms", "--json", "--frames", frames, "--png", filepath.Join(dir, "cloud.png"),
	)
	p.mustSucceed() // exits at the end of the recording
	var r player.Report
	p.lastLine(&r)
	x := r.Recording
	if x == nil || !x.Own || x.Seeks != 3 || x.PositionS != x.LengthS || x.LengthS < 1.5 || x.PausedS != 0.3 {
		t.Fatalf("recording %s", p.Stdout.String())
	}
	// Frames are skipped if several are due at the same tick.
	if r.DelayFrom != "due" || r.PublisherRestarts != 0 || r.FramesDuplicate != 0 || r.Cameras != 2 ||
		r.FramesLost > r.FramesSkipped ||
		r.FramesPartial != 0 {
		t.Errorf("%s", p.Stdout.String())
	}
	var list []int64
	for _, f := range displayedFrames(t, frames) {
		if f.camera == 0 {
			list = append(list, f.captured)
		}
	}
	var back []int
	for i := 1; i < len(list); i++ {
		if list[i] < list[i-1] {
			back = append(back, i)
		}
	}
	// The seek back starts between 500 ms and 1 s.
	if len(back) != 1 || list[back[0]-1]-list[back[0]] < 200_000 || list[len(list)-1] <= list[back[0]-1] {
		t.Errorf("backward steps %v in captures %v, want one, followed by the rest of the recording", back, list)
	}
}

// TestPlaySphereSeeks checks scripted seeks and pauses of 360° video and draws the viewport during
// a pause.
func TestPlaySphereSeeks(t *testing.T) {
	folder, port := filepath.Join(t.TempDir(), "tour"), freePort(t)
	start(
		t, "holocast", "prepare", tourFilm(t), folder, "--grid", "4x2", "--qualities", "2", "--preset", "ultrafast",
	).mustSucceed()
	startRelay(t, port)
	url := sessionURL(port, "tour")
	start(t, "holocast", "replay", folder, url, "--loop")
	picture := filepath.Join(t.TempDir(), "viewport.png")
	p := start(
		t, "holocast", "play", url, "--wait", "--from", "1500ms", "--seek", "2s:0s", "--pause-at", "200ms:100ms",
		"--pause-at", "700ms", "--json", "--png", picture,
	)
	until(t, "the last pause", func() bool {
		lines := strings.Split(strings.TrimSpace(p.Stderr.String()), "\n")
		return strings.HasPrefix(lines[len(lines)-1], "0:00.7 / ") && strings.Contains(lines[len(lines)-1], " paused")
	})
	r := p.interrupt()
	x := r.Recording
	if x == nil || !x.Own || x.Playing || x.Seeks != 2 || x.PositionS != 0.7 || x.LengthS < 2.5 || x.PausedS < 0.1 {
		t.Fatalf("recording %+v", x)
	}
	s := r.Sphere
	if s == nil || s.GOPs != 2 || s.StallRatio > 0 || s.TileHits == 0 || s.Sound == nil || s.Sound.Packets == 0 {
		t.Errorf("sphere %+v", s)
	}
	f, err := os.Open(picture)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := png.Decode(f); err != nil {
		t.Error(err)
	}
}

// TestPlayReportsPosition checks that a player without flags reports the position of the shared replay.
func TestPlayReportsPosition(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port)
	first := filepath.Join(t.TempDir(), "first.mcap")
	writeRecording(t, first)
	url := sessionURL(port, "again")
	start(t, "holocast", "replay", first, url, "--loop")
	p := start(t, "holocast", "play", url, "--wait", "--duration", "1s", "--json")
	p.mustSucceed()
	var r player.Report
	p.lastLine(&r)
	if x := r.Recording; x == nil || x.Own || !x.Playing || x.Seeks != 0 || x.PositionS < 0 || x.PositionS > x.LengthS {
		t.Errorf("recording %+v", x)
	}
	if r.DelayFrom != "arrival" {
		t.Errorf("delay from %s", r.DelayFrom)
	}
}

func TestPlaySeekErrors(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port)
	url := sessionURL(port, "demo")
	publish(t, url, 1, 1)
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"a live session", []string{"--from", "1s"}, "the session is live: only a replay can be paused or seeked"},
		{"before the beginning", []string{"--from", "-1s"}, "--from -1s is below 0"},
		{"seek without target", []string{"--seek", "10s"}, "want AT:TO"},
		{"seek to a bad position", []string{"--seek", "10s:soon"}, `"soon" is not a position`},
		{"pause at a bad position", []string{"--pause-at", "later"}, `"later" is not a position`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if said := start(t, "holocast", append([]string{"play", url}, tt.args...)...).mustFail(); !strings.Contains(
				said, tt.want,
			) {
				t.Errorf("stderr %q, want %q", said, tt.want)
			}
		})
	}
}
