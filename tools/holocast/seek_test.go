package main

import (
	"image/png"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"holocast/tools/holocast/player"
)

// captures reads the capture times, UNIX µs, of a camera's frames from a file of --frames.
func captures(t *testing.T, path, camera string) (list []int64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n")[1:] {
		fields := strings.Split(line, ",")
		at, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if fields[0] == camera {
			list = append(list, at)
		}
	}
	return list
}

// A viewer moves about in a recording of point clouds by itself, through a relay, while the
// replay goes on for the others.
func TestPlayMovesAbout(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port)
	dir := t.TempDir()
	first, frames := filepath.Join(dir, "first.mcap"), filepath.Join(dir, "frames.csv")
	recordSession(t, port, first)
	url := sessionURL(port, "again")
	start(t, "holocast", "replay", first, url, "--loop")
	p := start(t, "holocast", "play", url, "--wait", "--from", "500ms", "--seek", "1s:0s", "--pause-at", "800ms:300ms", "--seek", "900ms:1400ms",
		"--json", "--frames", frames, "--png", filepath.Join(dir, "cloud.png"))
	p.mustSucceed() // it ends with the recording
	var r player.Report
	p.lastLine(&r)
	x := r.Recording
	if x == nil || !x.Own || x.Seeks != 3 || x.PositionS != x.LengthS || x.LengthS < 1.5 || x.PausedS != 0.3 {
		t.Fatalf("recording %s", p.Stdout.String())
	}
	// Of frames that are due at once, as the player was held up, the newest is shown.
	if r.DelayFrom != "due" || r.PublisherRestarts != 0 || r.FramesDuplicate != 0 || r.Cameras != 2 || r.FramesLost > r.FramesSkipped+r.Frames/3 {
		t.Errorf("%s", p.Stdout.String())
	}
	list := captures(t, frames, "0")
	// Frames were recorded when they arrived, on a busy machine some time after their capture: it
	// shows that they went back once, and roughly from where to where.
	var turns []int
	for i := 1; i < len(list); i++ {
		if list[i] < list[i-1] {
			turns = append(turns, i)
		}
	}
	if len(turns) != 1 || list[turns[0]-1]-list[turns[0]] < 200_000 || list[len(list)-1] <= list[turns[0]-1] {
		t.Errorf("it went back at %v in captures %v, want once, and then on to the end", turns, list)
	}
}

// The same of 360° video: what is seen at a pause is what is drawn.
func TestPlaySphereMovesAbout(t *testing.T) {
	folder, port := filepath.Join(t.TempDir(), "tour"), freePort(t)
	start(t, "holocast", "prepare", tourFilm(t), folder, "--grid", "4x2", "--qualities", "2", "--preset", "ultrafast").mustSucceed()
	startRelay(t, port)
	url := sessionURL(port, "tour")
	start(t, "holocast", "replay", folder, url, "--loop")
	picture := filepath.Join(t.TempDir(), "viewport.png")
	p := start(t, "holocast", "play", url, "--wait", "--from", "1500ms", "--seek", "2s:0s", "--pause-at", "200ms:100ms", "--pause-at", "700ms",
		"--duration", "5s", "--json", "--png", picture)
	p.mustSucceed()
	var r player.Report
	p.lastLine(&r)
	x := r.Recording
	if x == nil || !x.Own || x.Playing || x.Seeks != 2 || x.PositionS != 0.7 || x.LengthS < 2.5 || x.PausedS < 0.1 {
		t.Fatalf("recording %+v", x)
	}
	s := r.Sphere
	if s == nil || s.GOPs != 2 || s.StallRatio > 0 || s.TileHits < 0.5 || s.Sound == nil || s.Sound.Packets < 20 {
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

// Without flags the position of the replay that all share is told.
func TestPlayTellsPosition(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port)
	first := filepath.Join(t.TempDir(), "first.mcap")
	recordSession(t, port, first)
	url := sessionURL(port, "again")
	start(t, "holocast", "replay", first, url, "--loop")
	p := start(t, "holocast", "play", url, "--wait", "--duration", "1s", "--json")
	p.mustSucceed()
	var r player.Report
	p.lastLine(&r)
	if x := r.Recording; x == nil || x.Own || !x.Playing || x.Seeks != 0 || x.PositionS <= 0 || x.PositionS > x.LengthS {
		t.Errorf("recording %+v", x)
	}
	if r.DelayFrom != "arrival" {
		t.Errorf("delay from %s", r.DelayFrom)
	}
}

func TestPlayCannotMoveAbout(t *testing.T) {
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
		{"a live session", []string{"--from", "1s"}, "the session is live: only a replay can be paused and moved about in"},
		{"before the beginning", []string{"--from", "-1s"}, "--from -1s is below 0"},
		{"nowhere to go", []string{"--seek", "10s"}, "want AT:TO"},
		{"no position", []string{"--seek", "10s:soon"}, `"soon" is not a position`},
		{"no time", []string{"--pause-at", "later"}, `"later" is not a position`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if said := start(t, "holocast", append([]string{"play", url}, tt.args...)...).mustFail(); !strings.Contains(said, tt.want) {
				t.Errorf("said %q, want %q", said, tt.want)
			}
		})
	}
}
