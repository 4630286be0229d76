package relay

import (
	"math"
	"strings"
	"testing"
	"time"

	"holocast/tools/lab/bench/internal/load"
)

func TestSoak(t *testing.T) {
	r, err := Run(t.Context(), Options{
		Parts: []string{soakPart}, Log: t.Output(),
		soak: soakOptions{viewers: 3, time: 600 * time.Millisecond, interval: 200 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := r.Soak
	if s.Viewers != 3 || len(s.Samples) == 0 || s.Sent == 0 || s.Lost < 0 {
		t.Errorf("incomplete result: %+v", s)
	}
	for _, s := range s.Samples {
		if s.Seconds <= 0 || s.MemoryMB <= 0 {
			t.Errorf("incomplete sample: %+v", s)
		}
	}
}

func TestSoakGrowth(t *testing.T) {
	series := func(heap ...float64) (r Soak) {
		for i, h := range heap {
			r.Samples = append(r.Samples, SoakSample{
				Seconds: float64(i + 1), Goroutines: 100, HeapMB: h, MemoryMB: 50, Frames: 7,
				Quantiles: load.Quantiles{P50: 1, P99: 2},
			})
		}
		r.compare()
		return r
	}
	for name, c := range map[string]struct {
		heap   []float64
		growth float64
		flat   bool
	}{
		"warm-up":       {[]float64{1, 5, 10, 10, 10, 10}, 0, true},
		"shrinks":       {[]float64{1, 5, 10, 10, 8, 8}, -0.2, true},
		"below limit":   {[]float64{1, 5, 100, 100, 104, 104}, 0.04, true},
		"grows":         {[]float64{10, 10, 20, 20, 30, 30}, 0.5, false},
		"seven samples": {[]float64{1, 1, 1, 20, 20, 30, 30}, 0.5, false},
	} {
		r := series(c.heap...)
		if math.Abs(r.Growth.Heap-c.growth) > 1e-9 || r.Flat != c.flat || r.Growth.Goroutines != 0 ||
			r.Growth.Memory != 0 {
			t.Errorf("%s: %+v, flat %t", name, r.Growth, r.Flat)
		}
	}
	r := series(10, 20, 30)
	if md := r.markdown(); !strings.Contains(md, "**Not flat**") || !strings.Contains(md,
		"| 3 | 100 | 30.0 | 50.0 | 0.00 | 7 | 1.0 / 2.0 |") {
		t.Errorf("table:\n%s", md)
	}
	if r := series(1, 2); r.Flat {
		t.Error("two samples are flat")
	}
}
