package bottleneck

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSummary(t *testing.T) {
	narrow, wide := Path{RateMbps: 15, DelayMs: 30, QueueMs: 120, Loss: 0.001}, Path{
		RateMbps: 60, DelayMs: 30,
		QueueMs: 120, Loss: 0.001,
	}
	var r Result
	add := func(path Path, contender string, failures []string, fps ...float64) {
		for _, v := range fps {
			r.Runs = append(r.Runs, Measurement{
				Path: path, Contender: contender, Seconds: 4,
				Figures: Figures{FPS: v, DelayP50Ms: 10 * v, Wasted: 2 * v}, Failures: failures,
			})
		}
	}
	for _, path := range []Path{wide, narrow} {
		add(path, Holocast, nil, 9, 11, 10)
		add(path, DeliveryTimeout, []string{"late"}, 0, 0, 1)
		add(path, Queue, nil, 3, 3, 3)
	}
	r.summarize()
	if len(r.Paths) != 2 || r.Paths[0].Path != wide || r.Paths[1].Path != narrow {
		t.Fatalf("paths %+v", r.Paths)
	}
	s := r.Paths[1]
	if got := s.Of[Holocast]; got != (Figures{FPS: 10, DelayP50Ms: 100, Wasted: 20}) {
		t.Errorf("medians %+v", got)
	}
	if !slices.Equal(s.Late, []string{DeliveryTimeout}) {
		t.Errorf("late %q", s.Late)
	}
	if s.Fits < 11.8 || s.Fits > 12 || r.Paths[0].Fits != FramesPerS {
		t.Errorf("capacity %.2f and %.2f frames/s", s.Fits, r.Paths[0].Fits)
	}
	md := r.Markdown()
	for _, want := range []string{
		"medians of 3 measurements of 4 s", "### 15 Mbit/s, 0.1 % loss", "| holocast | 10.0 | 84 % | 100 / 0 | 20 % |",
		"| timeout* | 0.0 | 0 % | none arrived |", plotFile,
	} {
		if !strings.Contains(md, want) {
			t.Errorf("missing %q in\n%s", want, md)
		}
	}
	dir := t.TempDir()
	if err := r.SavePlots(dir); err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(filepath.Join(dir, plotFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", Holocast, "capacity", "Mbit/s of the path"} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("missing %q in the plot", want)
		}
	}
}
