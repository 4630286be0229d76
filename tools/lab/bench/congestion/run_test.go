//go:build linux

package congestion

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
)

func TestPlans(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    Options
		most time.Duration
	}{
		{"quick", Options{Quick: true}, 50 * time.Second},
		{"path1", Options{Parts: []string{"path1"}}, 8 * time.Minute},
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
	if _, err := Run(t.Context(), Options{Parts: []string{"path7"}}); err == nil || !strings.Contains(err.Error(),
		"path7") {
		t.Errorf("part path7: %v", err)
	}
}

func TestProcessorTime(t *testing.T) {
	c, err := cpu(t.Context(), 1, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if c.BBR <= 0 || c.BBR > 100 || c.Stock <= 0 || c.Stock > 100 {
		t.Errorf("%+v", *c)
	}
}

// TestMeasure transfers each kind of traffic over an emulated path for one second.
func TestMeasure(t *testing.T) {
	if err := netlab.Supported(); err != nil {
		t.Skip(err)
	}
	slow, err := topology.OnePath("slow", "rate: 20Mbit, delay: 5ms")
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
		{[]string{"bbr"}, short},
		{[]string{stock}, short},
		{[]string{"tcp-cubic"}, short},
		{[]string{"bbr", "tcp-cubic"}, short},
		{[]string{"bbr"}, frames},
	} {
		m, err := measure(t.Context(), slow, tt.transports, tt.load)
		if err != nil {
			t.Fatal(err)
		}
		if m.Mbps <= 0 || m.Mbps > 20 || len(m.Flows) != len(tt.transports) {
			t.Errorf("%v: %+v", tt.transports, *m)
		}
		if tt.load.frame > 0 && (m.Flows[0].FPS <= 0 || m.Flows[0].FrameP50Ms < 5) {
			t.Errorf("frames: %+v", m.Flows[0])
		}
		m.Part = "path1"
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
	r.Measured = []Part{{Name: "path1", Plots: plotsOf["path1"]}}
	if md := r.Markdown(); !strings.Contains(md, "| slow") || !strings.Contains(md, "Jain") {
		t.Error(md)
	}
}

// TestGoodput simulates a path that delivers 10 MB/s in 1250-byte packets, each with 1000 bytes of
// new data. A gap that opens before the measurement and closes during it blocks the application.
func TestGoodput(t *testing.T) {
	var g goodput
	for ms := int64(1000); ms <= 3000; ms += 10 {
		arrived := 12500 * ms
		read := 10000 * ms
		switch {
		case ms < 2500:
			read = 10000 * 800
		case ms > 2700:
			read = 10000 * 2700
		}
		g.look(read, arrived)
	}
	if got := g.mbps(12500*2000, 2*time.Second); got < 79.9 || got > 80 {
		t.Errorf("%.2f Mbit/s of 80", got)
	}
	if got := (&goodput{}).mbps(1000, time.Second); got != 0 {
		t.Errorf("%.2f Mbit/s although nothing was read", got)
	}
}

// TestWith adds a part to an earlier result.
func TestWith(t *testing.T) {
	run := func(part, path string, mbps ...float64) Measurement {
		m := Measurement{Part: part, Path: path, Load: "bulk", Mbps: mbps[0]}
		for _, v := range mbps {
			m.Flows = append(m.Flows, Flow{Transport: "bbr", Mbps: v})
		}
		return m
	}
	old := Result{
		CPU: &CPU{BBR: 1, Stock: 2}, Measured: []Part{{Name: "path1"}, {Name: "fairness", Plots: plotsOf["fairness"]}},
		Runs: []Measurement{run("path1", "path1", 100), run("fairness", "shared", 50, 40)},
	}
	data, err := json.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	now := Result{Measured: []Part{{Name: "path1", Seconds: 7}}, Runs: []Measurement{run("path1", "path1", 300)}}
	with, err := now.With(data)
	if err != nil {
		t.Fatal(err)
	}
	r := with.(Result)
	if r.Path1.BBRMbps != 300 || len(r.Runs) != 2 || len(r.Measured) != 2 || r.Measured[0].Seconds != 7 ||
		r.CPU == nil || len(r.Fairness["shared bbr+bbr"].Mbps) != 2 {
		t.Errorf("%+v", r)
	}
	if md := r.Markdown(); !strings.Contains(md, "fairness at") || !strings.Contains(md, fairnessPlot) {
		t.Error(md)
	}
}
