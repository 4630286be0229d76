package main

import (
	"bytes"
	"fmt"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"holocast/internal/plyfile"
	"holocast/tools/holocast/player"
)

func TestPlay(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                  string
		cameras, descriptions int
		args                  []string
		shown                 int
	}{
		{"one camera", 1, 1, nil, 1},
		{"two cameras, four descriptions", 2, 4, nil, 2},
		{"one of two", 2, 1, []string{"--camera", "1"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			port := freePort(t)
			startRelay(t, port)
			publish(t, sessionURL(port, "demo"), tt.cameras, tt.descriptions)
			dir := t.TempDir()
			p := start(t, "holocast", append([]string{
				"play", sessionURL(port, "demo"), "--json", "--delivery-timeout", "1m",
				"--frames", filepath.Join(dir, "frames.csv"),
				"--png", filepath.Join(dir, "cloud.png"), "--ply", filepath.Join(dir, "cloud.ply"),
				"--glb", filepath.Join(dir, "surfaces.glb"),
			}, tt.args...)...)
			frames := func() []displayed { return displayedFrames(t, filepath.Join(dir, "frames.csv")) }
			until(t, "10 frames", func() bool { return len(frames()) >= 10 && p.fps() > 0 })
			r := p.interrupt()
			const points = testWidth * testHeight
			if r.Cameras != tt.shown || r.DelayFrom != "capture" || r.Clock != "relay" {
				t.Errorf("%+v", r)
			}
			// On a busy machine, an object of the next frame may arrive before the last description
			// of a frame.
			if math.Abs(r.PointsPerFrame-r.Density*points) > 1 || tt.descriptions == 1 && r.Density != 1 {
				t.Errorf("%.1f points per frame at density %v", r.PointsPerFrame, r.Density)
			}
			if !slices.ContainsFunc(frames(), func(f displayed) bool { return f.points == points }) {
				t.Error("no complete frame displayed")
			}
			if !strings.Contains(p.Stderr.String(), " fps  delay ") {
				t.Errorf("no live line in %q", p.Stderr.String())
			}
			picture, err := os.ReadFile(filepath.Join(dir, "cloud.png"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := png.Decode(bytes.NewReader(picture)); err != nil {
				t.Error(err)
			}
			glb, err := os.ReadFile(filepath.Join(dir, "surfaces.glb"))
			if n := strings.Count(string(glb), `{"mesh":`); err != nil || !bytes.HasPrefix(glb, []byte("glTF")) || n != tt.shown {
				t.Errorf("%d meshes, %v", n, err)
			}
			ply, err := os.Open(filepath.Join(dir, "cloud.ply"))
			if err != nil {
				t.Fatal(err)
			}
			defer ply.Close()
			c, err := plyfile.Read(ply)
			// The last frame has at least one description.
			if all := 3 * tt.shown * points; err != nil || len(c.XYZ) > all || len(c.XYZ) < all/tt.descriptions {
				t.Errorf("%d coordinates, %v", len(c.XYZ), err)
			}
		})
	}
}

// TestPlayLateJoin checks that a player that joins after the last frame fetches that frame.
func TestPlayLateJoin(t *testing.T) {
	t.Parallel()
	for _, descriptions := range []int{1, 4} {
		t.Run(strconv.Itoa(descriptions), func(t *testing.T) {
			port := freePort(t)
			startRelay(t, port)
			pub := publish(t, sessionURL(port, "demo"), 1, descriptions)
			until(t, "the first frames", func() bool { l, _ := pub.tracks[0].Largest(); return l.Group > pub.first })
			pub.pause.Store(true)
			p := start(t, "holocast", "play", sessionURL(port, "demo"), "--json")
			until(t, "a frame", p.measured)
			if r := p.interrupt(); r.Frames != 1 || r.PointsPerFrame != testWidth*testHeight || r.Density != 1 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// displayed is a line of a --frames file.
type displayed struct {
	camera, sequence         int64
	captured, arrived, shown int64 // Unix µs
	points, bytes            int64
}

// displayedFrames reads the complete lines of a --frames file.
func displayedFrames(t *testing.T, path string) (list []displayed) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	lines := strings.Split(string(text[:bytes.LastIndexByte(text, '\n')+1]), "\n")
	for _, line := range lines[min(1, len(lines)):] {
		var f displayed
		if line == "" {
			continue
		}
		if n, err := fmt.Sscanf(line, "%d,%d,%d,%d,%d,%d,%d",
			&f.camera, &f.sequence, &f.captured, &f.arrived, &f.shown, &f.points, &f.bytes); n != 7 {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, f)
	}
	return list
}

// fps returns the frame rate in the newest live line, or -1 if there is no live line.
func (p *process) fps() float64 {
	text := p.Stderr.String()
	text = text[:strings.LastIndexByte(text, '\n')+1]
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if rate, _, found := strings.Cut(lines[i], " fps "); found {
			if at := strings.LastIndexByte(strings.TrimSpace(rate), ' '); at >= 0 {
				rate = rate[at:] // follows the position in a recording
			}
			if v, err := strconv.ParseFloat(strings.TrimSpace(rate), 64); err == nil {
				return v
			}
		}
	}
	return -1
}

var livePoints = regexp.MustCompile(`\)  [1-9]\d* points`)

// measured reports whether a live line has counted a frame. Frames count once the relay's clock is
// known.
func (p *process) measured() bool { return livePoints.MatchString(p.Stderr.String()) }

// interrupt sends SIGINT to "holocast play" and returns its report.
func (p *process) interrupt() (r player.Report) {
	p.t.Helper()
	p.interrupted(&r)
	return r
}

func TestPublisherReturns(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port)
	url := sessionURL(port, "demo")
	pub := publish(t, url, 2, 1)
	p := start(t, "holocast", "play", url, "--json", "--delivery-timeout", "1m")
	until(t, "frames", func() bool { return p.fps() > 0 })
	pub.stop()
	until(t, "the stall", func() bool { return p.fps() == 0 })
	publish(t, url, 2, 1)
	until(t, "frames again", func() bool { return p.fps() > 0 })
	if r := p.interrupt(); r.PublisherRestarts != 2 || r.FramesLost > r.FramesSkipped+20 {
		t.Errorf("%+v, want a restart of each of two cameras", r)
	}
}

func TestRelayReturns(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	relay := startRelay(t, port)
	url := sessionURL(port, "demo")
	publish(t, url, 1, 1)
	p := start(t, "holocast", "play", url, "--json")
	until(t, "frames", func() bool { return p.fps() > 0 })
	relay.Kill()
	until(t, "the stall", func() bool { return p.fps() == 0 })
	startRelay(t, port)
	until(t, "frames again", func() bool { return p.fps() > 0 })
	if r := p.interrupt(); r.PublisherRestarts != 0 || r.FramesDuplicate > 1 {
		t.Errorf("%+v", r)
	}
}

func TestPlayRefused(t *testing.T) {
	port := freePort(t)
	startRelay(t, port)
	publish(t, sessionURL(port, "demo"), 1, 1)
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"no session", []string{sessionURL(port, "nothing")}, `the relay has no session "nothing"`},
		{"no camera", []string{sessionURL(port, "demo"), "--camera", "3"}, "the session has no camera 3, only [0]"},
		{
			"no quality",
			[]string{sessionURL(port, "demo"), "--quality", "best"},
			`camera 0 has no quality "best", only ["full"]`,
		},
		{"no name in the URL", []string{"moqt://127.0.0.1"}, "names no session"},
		{"no scheme in the URL", []string{"localhost:4443/demo"}, `URL "localhost:4443/demo" must begin with moqt://`},
		{
			"no folder for the picture",
			[]string{sessionURL(port, "demo"), "--png", "/nowhere/cloud.png"},
			"--png: folder /nowhere does not exist",
		},
		{
			"a device for the picture",
			[]string{sessionURL(port, "demo"), "--png", os.DevNull},
			"--png: " + os.DevNull + " is a folder or a device",
		},
		{
			"no such look",
			[]string{sessionURL(port, "demo"), "--png", "cloud.png", "--look", "dots"},
			`--look "dots" is unknown`,
		},
		{"look without a picture", []string{sessionURL(port, "demo"), "--look", "points"}, "--look needs --png"},
		{"faces without a file", []string{sessionURL(port, "demo"), "--mesh"}, "--mesh needs --ply"},
		{"no URL", nil, "URL is missing: holocast play URL"},
		{"not a URL", []string{"moqt://%"}, `URL "moqt://%"`},
		{
			"other certificate",
			[]string{sessionURL(port, "demo"), "--certificate-hash", strings.Repeat("ab", 32)},
			"certificate",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if said := start(t, "holocast", append([]string{"play"}, tt.args...)...).mustFail(); !strings.Contains(
				said, tt.want,
			) {
				t.Errorf("said %q, want %q", said, tt.want)
			}
		})
	}
}

// TestPlayWaits checks that a player with --wait may start before the session.
func TestPlayWaits(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	url := sessionURL(port, "demo")
	p := start(t, "holocast", "play", url, "--wait", "--json")
	startRelay(t, port)
	publish(t, url, 1, 1)
	until(t, "a frame", p.measured)
	if r := p.interrupt(); r.Frames == 0 {
		t.Errorf("%+v", r)
	}
}
