package main

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
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
			p := start(t, "holocast", append([]string{"play", sessionURL(port, "demo"), "--duration", "2s", "--json",
				"--png", filepath.Join(dir, "cloud.png"), "--ply", filepath.Join(dir, "cloud.ply")}, tt.args...)...)
			p.mustSucceed()
			// On a busy machine a description comes too late now and then.
			const whole = testWidth * testHeight
			least := 1.0
			if tt.descriptions > 1 {
				least = 0.7
			}
			var r player.Report
			p.lastLine(&r)
			if r.Cameras != tt.shown || r.Frames < 10 || r.PointsPerFrame > whole || r.PointsPerFrame < least*whole || r.DelayFrom != "capture" || r.Clock != "relay" {
				t.Errorf("%+v", r)
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
			ply, err := os.Open(filepath.Join(dir, "cloud.ply"))
			if err != nil {
				t.Fatal(err)
			}
			defer ply.Close()
			c, err := plyfile.Read(ply)
			// The newest frame may lack all descriptions but one.
			if all := 3 * tt.shown * whole; err != nil || len(c.XYZ) > all || len(c.XYZ) < all/tt.descriptions {
				t.Errorf("%d coordinates, %v", len(c.XYZ), err)
			}
		})
	}
}

// A viewer that comes when nothing is sent any more has the newest frame all the same:
// it fetched it.
func TestPlayLate(t *testing.T) {
	t.Parallel()
	for _, descriptions := range []int{1, 4} {
		t.Run(strconv.Itoa(descriptions), func(t *testing.T) {
			port := freePort(t)
			startRelay(t, port)
			pub := publish(t, sessionURL(port, "demo"), 1, descriptions)
			until(t, "the first frames", func() bool { l, _ := pub.tracks[0].Largest(); return l.Group > pub.first })
			pub.pause.Store(true)
			p := start(t, "holocast", "play", sessionURL(port, "demo"), "--duration", "1s", "--json")
			p.mustSucceed()
			var r player.Report
			p.lastLine(&r)
			if r.Frames != 1 || r.PointsPerFrame != testWidth*testHeight || r.Density != 1 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// fps is the frame rate that the program shows now, -1 before it shows one.
func (p *process) fps() float64 {
	text := p.Stderr.String()
	text = text[:strings.LastIndexByte(text, '\n')+1]
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if rate, _, found := strings.Cut(lines[i], " fps "); found {
			if at := strings.LastIndexByte(strings.TrimSpace(rate), ' '); at >= 0 {
				rate = rate[at:] // behind the position in a recording
			}
			if v, err := strconv.ParseFloat(strings.TrimSpace(rate), 64); err == nil {
				return v
			}
		}
	}
	return -1
}

// interrupt ends the program as Ctrl-C does and reads its report.
func (p *process) interrupt() player.Report {
	p.t.Helper()
	p.Signal(syscall.SIGINT)
	p.mustSucceed()
	var r player.Report
	p.lastLine(&r)
	return r
}

func TestPublisherReturns(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port)
	url := sessionURL(port, "demo")
	pub := publish(t, url, 2, 1)
	p := start(t, "holocast", "play", url, "--json")
	until(t, "playing", func() bool { return p.fps() > 0 })
	pub.stop()
	until(t, "the stall", func() bool { return p.fps() == 0 })
	publish(t, url, 2, 1)
	until(t, "playing again", func() bool { return p.fps() > 0 })
	if r := p.interrupt(); r.PublisherRestarts != 2 || r.FramesLost > 20 {
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
	until(t, "playing", func() bool { return p.fps() > 0 })
	relay.Kill()
	until(t, "the stall", func() bool { return p.fps() == 0 })
	startRelay(t, port)
	until(t, "playing again", func() bool { return p.fps() > 0 })
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
		{"no quality", []string{sessionURL(port, "demo"), "--quality", "best"}, `camera 0 has no quality "best", only ["full"]`},
		{"no name in the URL", []string{"moqt://127.0.0.1"}, "names no session"},
		{"no scheme in the URL", []string{"localhost:4443/demo"}, `URL "localhost:4443/demo" must begin with moqt://`},
		{"no folder of the picture", []string{sessionURL(port, "demo"), "--png", "/nowhere/cloud.png"}, "--png: folder /nowhere does not exist"},
		{"no URL", nil, "URL is missing: holocast play URL"},
		{"not a URL", []string{"moqt://%"}, `URL "moqt://%"`},
		{"other certificate", []string{sessionURL(port, "demo"), "--certificate-hash", strings.Repeat("ab", 32)}, "certificate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if said := start(t, "holocast", append([]string{"play"}, tt.args...)...).mustFail(); !strings.Contains(said, tt.want) {
				t.Errorf("said %q, want %q", said, tt.want)
			}
		})
	}
}

// With --wait the session may come later than the viewer.
func TestPlayWaits(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	url := sessionURL(port, "demo")
	p := start(t, "holocast", "play", url, "--wait", "--duration", "1s", "--json")
	startRelay(t, port)
	publish(t, url, 1, 1)
	p.mustSucceed()
	var r player.Report
	if p.lastLine(&r); r.Frames == 0 {
		t.Errorf("%+v", r)
	}
}
