//go:build linux

package congestion

import (
	"strings"
	"testing"
	"time"

	"holocast/tools/netlab"
)

func TestPlans(t *testing.T) {
	for _, quick := range []bool{true, false} {
		plans, err := plansFor(quick)
		if err != nil {
			t.Fatal(err)
		}
		total := time.Duration(0)
		for _, p := range plans {
			total += p.load.warmup + p.load.duration
		}
		if quick && total > 2*time.Minute {
			t.Errorf("the quick run takes %v", total)
		}
		t.Logf("quick %v: %d measurements, %v", quick, len(plans), total)
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
	if md := r.Markdown(); !strings.Contains(md, "| slow") || !strings.Contains(md, "Jain") {
		t.Error(md)
	}
}
