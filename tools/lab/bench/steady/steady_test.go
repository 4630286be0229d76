package steady

import (
	"math"
	"strings"
	"testing"
	"time"

	"holocast/tools/lab/bench/internal/load"
)

// TestRun runs it briefly with few viewers and checks the shape of the result, not its figures.
func TestRun(t *testing.T) {
	r, err := Run(t.Context(), Options{Viewers: 3, Time: 600 * time.Millisecond, Every: 200 * time.Millisecond, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if r.Viewers != 3 || len(r.Samples) == 0 || r.Sent == 0 || r.Lost < 0 {
		t.Errorf("the result is not whole: %+v", r)
	}
	for _, s := range r.Samples {
		if s.Seconds <= 0 || s.MemoryMB <= 0 {
			t.Errorf("the sample is not whole: %+v", s)
		}
	}
}

func TestCompare(t *testing.T) {
	series := func(heap ...float64) (r Result) {
		for i, h := range heap {
			r.Samples = append(r.Samples, Sample{Seconds: float64(i + 1), Goroutines: 100, HeapMB: h, MemoryMB: 50, Frames: 7, Quantiles: load.Quantiles{P50: 1, P99: 2}})
		}
		r.compare()
		return r
	}
	for name, c := range map[string]struct {
		heap   []float64
		growth float64
		flat   bool
	}{
		"grows at first": {[]float64{1, 5, 10, 10, 10, 10}, 0, true},
		"falls":          {[]float64{1, 5, 10, 10, 8, 8}, -0.2, true},
		"a little":       {[]float64{1, 5, 100, 100, 104, 104}, 0.04, true},
		"grows on":       {[]float64{10, 10, 20, 20, 30, 30}, 0.5, false},
		"seven samples":  {[]float64{1, 1, 1, 20, 20, 30, 30}, 0.5, false},
	} {
		r := series(c.heap...)
		if math.Abs(r.Growth.Heap-c.growth) > 1e-9 || r.Flat != c.flat || r.Growth.Goroutines != 0 || r.Growth.Memory != 0 {
			t.Errorf("%s: %+v, flat %t", name, r.Growth, r.Flat)
		}
	}
	if md := series(10, 20, 30).Markdown(); !strings.Contains(md, "**Not flat**") || !strings.Contains(md, "| 3 | 100 | 30.0 | 50.0 | 0.00 | 7 | 1.0 / 2.0 |") {
		t.Errorf("table:\n%s", md)
	}
	if r := series(1, 2); r.Flat {
		t.Error("two samples are flat")
	}
}
