package main

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

var demoURL = regexp.MustCompile(`moqt://([^/]+)/demo`)

// gone reports whether the demo's relay no longer answers.
func (p *process) gone() bool {
	m := demoURL.FindStringSubmatch(p.Stderr.String())
	if m == nil {
		p.t.Fatalf("no URL in the demo's output: %q", p.Stderr.String())
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + m[1] + "/healthz")
	if err == nil {
		_ = resp.Body.Close()
	}
	return err != nil
}

// startDemo starts a demo with small synthetic frames.
func startDemo(t *testing.T, args ...string) (p *process, out string) {
	t.Helper()
	out = filepath.Join(t.TempDir(), "demo-out")
	small := []string{
		"demo", "--out", out, "--source", "synthetic", "--capture-arg=--depth-mode=NFOV_2X2BINNED", "--capture-arg=--fps=10",
	}
	return start(t, "holocast", append(small, args...)...), out
}

func TestDemo(t *testing.T) {
	p, out := startDemo(t, "--seconds", "2")
	p.mustSucceed()
	var r map[string]any
	p.lastLine(&r)
	keys := []string{"fps", "frame_delay_ms", "frames", "frames_lost", "points_per_frame", "mbit_per_s", "cameras"}
	for _, key := range keys {
		if _, ok := r[key]; !ok {
			t.Errorf("no %s in %v", key, r)
		}
	}
	if frames, _ := r["frames"].(float64); frames < 1 {
		t.Errorf("%v frames", r["frames"])
	}
	delay, err := json.Marshal(r["frame_delay_ms"])
	if err != nil || !strings.Contains(string(delay), `"p95"`) {
		t.Errorf("frame delay %s", delay)
	}
	picture := filepath.Join(out, "cloud.png")
	if info, err := os.Stat(picture); err != nil || info.Size() < 1000 || !strings.Contains(p.Stdout.String(), picture) {
		t.Errorf("picture: %v, said %q", err, p.Stdout.String())
	}
	if !p.gone() {
		t.Error("the relay still answers")
	}
}

func TestDemoEnds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		signal syscall.Signal
		ok     bool
	}{
		{"interrupted", syscall.SIGINT, true},
		{"killed", syscall.SIGKILL, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, _ := startDemo(t)
			until(t, "frames", func() bool { return p.fps() > 0 })
			_ = p.Cmd.Process.Signal(tt.signal)
			if err := p.wait(); (err == nil) != tt.ok {
				t.Errorf("ended with %v", err)
			}
			until(t, "the relay's exit", p.gone)
		})
	}
}

// TestDemoChildFails checks that the demo ends and shows the log when one of its programs fails.
func TestDemoChildFails(t *testing.T) {
	out := filepath.Join(t.TempDir(), "demo-out")
	p := start(t, "holocast", "demo", "--out", out, "--source", "nonsense")
	said := p.mustFail()
	if !strings.Contains(said, "capture-server failed") || !strings.Contains(said, "capture-server.log") ||
		!strings.Contains(said, "nonsense\"") {
		t.Errorf("stderr %q", said)
	}
	if !p.gone() {
		t.Error("the relay still answers")
	}
	p = start(t, "holocast", "demo", "--out", out, "--relay-arg=--cache-max-bytes=-1")
	if said := p.mustFail(); !strings.Contains(said, "relay failed") ||
		!strings.Contains(said, "cache.maxBytes must be above 0") {
		t.Errorf("stderr %q", said)
	}
}

// TestDemo360 checks that the demo renders a 360° video if there is no sample data.
func TestDemo360(t *testing.T) {
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("ffmpeg is not installed")
	}
	t.Setenv("HOLOCAST_DATA", filepath.Join(t.TempDir(), "nothing"))
	out := filepath.Join(t.TempDir(), "demo-out")
	p := start(t, "holocast", "demo", "--360", "--out", out, "--seconds", "3600", "--capture-arg=--size=512x256")
	rated := regexp.MustCompile(`viewport [2-9]\d\.\d dB`)
	until(t, "measured video", func() bool { return rated.MatchString(p.Stderr.String()) })
	p.Signal(syscall.SIGINT)
	p.mustSucceed()
	var r struct {
		Frames int `json:"frames"`
		Delay  struct {
			P50 float64 `json:"p50"`
		} `json:"frame_delay_ms"`
		Sphere struct {
			GOPs int     `json:"gops"`
			Mean float64 `json:"viewport_psnr_mean"`
		} `json:"sphere"`
	}
	p.lastLine(&r)
	if r.Sphere.GOPs < 1 || r.Sphere.Mean < 20 || r.Frames < 1 || r.Delay.P50 <= 0 {
		t.Errorf("%d GoPs at %.1f dB, %d frames, delay %.0f ms", r.Sphere.GOPs, r.Sphere.Mean, r.Frames, r.Delay.P50)
	}
	for _, name := range []string{"panorama.mp4", "viewport.png"} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() < 1000 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
