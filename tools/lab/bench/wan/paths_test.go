package wan

import (
	"strings"
	"testing"
	"time"

	"holocast/internal/netlab/topology"
)

// shown returns 30 frames per second from 0 s to the given second, all shown after delay.
func shown(seconds int, delay time.Duration) (list []sample) {
	for i := range seconds * fps {
		at := time.Duration(i) * time.Second / fps
		list = append(list, sample{at, at + delay})
	}
	return list
}

func TestRunFigures(t *testing.T) {
	smooth := shown(4, 50*time.Millisecond)
	var r PathRun
	r.figures([][]sample{smooth, smooth}, time.Second, 4*time.Second, 0)
	if r.FPS != 30 || r.DelayP50 != 50 || r.DelayP95 != 50 || r.Freezes200 != 0 || r.RecoveryS != 0 {
		t.Errorf("smooth: %+v", r)
	}
	// One camera misses the 7 frames from 2 s on (8 frame times are 267 ms), the other 15 (533 ms).
	hole := func(n int) []sample { return append(append([]sample(nil), smooth[:60]...), smooth[60+n:]...) }
	r = PathRun{}
	r.figures([][]sample{hole(7), hole(15)}, 0, 4*time.Second, 0)
	if r.Freezes200 != 2 || r.Freezes300 != 1 || r.LongestMs != 533.3 {
		t.Errorf("holes: %+v", r)
	}
	r = PathRun{}
	r.figures([][]sample{smooth[:60]}, 0, 4*time.Second, 0)
	if r.Freezes300 != 1 || r.FPS != 15 {
		t.Errorf("no frame in the second half: %+v", r)
	}
	if len(r.Delays.T) != 8 || r.Delays.Ms[0] != 50 || r.Delays.Ms[7] != 0 {
		t.Errorf("delays: %+v", r.Delays)
	}
}

func TestRecovery(t *testing.T) {
	list := shown(6, 50*time.Millisecond)
	for i := range list {
		if at := list[i].captured; at >= 2*time.Second && at < 3500*time.Millisecond {
			list[i].shown += 300 * time.Millisecond
		}
	}
	// 3 of 30 frames may be late, so the good second begins 100 ms before the last late frame.
	if got := recovery([][]sample{list}, 2*time.Second, 6*time.Second); got != 1.4 {
		t.Errorf("recovery after %g s, want 1.4", got)
	}
	if got := recovery([][]sample{list[:100]}, 2*time.Second, 6*time.Second); got != -1 {
		t.Errorf("recovery after %g s of a stream that ends", got)
	}
}

func TestPaths(t *testing.T) {
	list, err := paths("", false, 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range append(list, path{name: "trace", rates: scaled([]float64{3, 0, 9})}) {
		top, err := topology.OnePath("wan", p.conditions())
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		if got := top.Paths[0].Forward; len(got) != len(p.rates) || got[len(got)-1].QueueBytes == 0 {
			t.Errorf("%s: %d changes, want %d: %+v", p.name, len(got), len(p.rates), got)
		}
	}
	if _, err := paths(t.TempDir(), false, 20); err == nil || !strings.Contains(err.Error(), "network_traces") {
		t.Errorf("missing traces: %v", err)
	}
}
