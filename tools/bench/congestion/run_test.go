//go:build linux

package congestion

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holocast/tools/netlab"
)

func TestPlans(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    Options
		most time.Duration
	}{
		{"quick", Options{Quick: true}, 50 * time.Second},
		{"path1", Options{Parts: []string{"path1"}}, 6 * time.Minute},
		{"all", Options{}, 27 * time.Minute},
	} {
		plans, err := plansFor(tt.o)
		if err != nil {
			t.Fatal(err)
		}
		total := time.Duration(0)
		for _, p := range plans {
			total += p.load.warmup + p.load.duration
		}
		if total > tt.most {
			t.Errorf("%s takes %v", tt.name, total)
		}
		t.Logf("%s: %d measurements, %v", tt.name, len(plans), total)
	}
	if _, err := Run(t.Context(), Options{Parts: []string{"path7"}}); err == nil || !strings.Contains(err.Error(), "path7") {
		t.Errorf("part path7: %v", err)
	}
}

func TestProcessorTime(t *testing.T) {
	c, err := cpu(t.Context(), 1, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if c.BBR <= 0 || c.BBR > 100 || c.Stock <= 0 || c.Stock > 100 {
		t.Errorf("%+v", *c)
	}
}

// TestMeasure carries each kind of traffic over the lab for a second.
func TestMeasure(t *testing.T) {
	if err := netlab.Supported(); err != nil {
		t.Skip(err)
	}
	slow, err := path("slow", "rate: 20Mbit, delay: 5ms")
	if err != nil {
		t.Fatal(err)
	}
	short := load{warmup: 500 * time.Millisecond, duration: time.Second}
	frames := short
	frames.frame, frames.interval = 20_000, 33*time.Millisecond
	var r Result
	for _, tt := range []struct {
		transports []string
		load       load
	}{
		{[]string{"bbr"}, short}, {[]string{stock}, short}, {[]string{"tcp-cubic"}, short},
		{[]string{"bbr", "tcp-cubic"}, short}, {[]string{"bbr"}, frames},
	} {
		m, err := measure(t.Context(), slow, tt.transports, tt.load)
		if err != nil {
			t.Fatal(err)
		}
		if m.Mbps <= 0 || m.Mbps > 21 || len(m.Flows) != len(tt.transports) {
			t.Errorf("%v: %+v", tt.transports, *m)
		}
		if tt.load.frame > 0 && (m.Flows[0].FPS <= 0 || m.Flows[0].FrameP50Ms < 5) {
			t.Errorf("frames: %+v", m.Flows[0])
		}
		r.Runs = append(r.Runs, *m)
	}
	r.Runs[0].Path, r.Runs[4].Path = "path1", "path1"
	dir := t.TempDir()
	if err := r.SavePlots(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"congestion-path1.svg", "congestion-frames.svg"} {
		if svg, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Contains(svg, []byte("<svg")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if md := r.Markdown(); !strings.Contains(md, "| slow") || !strings.Contains(md, "Jain") {
		t.Error(md)
	}
}
