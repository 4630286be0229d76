package multipath

import (
	"testing"
	"time"

	"holocast/internal/congestion"
)

func TestRate(t *testing.T) {
	for _, c := range []struct {
		name string
		cc   congestion.Estimates
		rtt  time.Duration
		want float64
	}{
		{"after the handshake", congestion.Estimates{Phase: "startup", Bandwidth: 2e3, Window: 40e3}, time.Second, 40e3},
		{"before a round trip", congestion.Estimates{Phase: "startup", Bandwidth: 2e3, Window: 40e3}, 0, 2e3},
		{"starting fast", congestion.Estimates{Phase: "startup", Bandwidth: 9e6, Window: 40e3}, time.Second, 9e6},
		{"speeding up", congestion.Estimates{
			Phase: "startup", Bandwidth: 2e6, Window: 4e6, Delivered: 4e6, MinRTT: time.Second,
		}, time.Second, 4e6},
		{"at full speed", congestion.Estimates{
			Phase: "startup", Bandwidth: 2e6, Window: 4e6, Delivered: 6e6, MinRTT: time.Second,
		}, time.Second, 2e6},
		{"after many PINGs", congestion.Estimates{
			Phase: "startup", Bandwidth: 2e3, Window: 40e3, Delivered: 60e3, MinRTT: time.Second,
		}, time.Second, 40e3},
		{"filled", congestion.Estimates{Phase: "probe_bw_cruise", Bandwidth: 1e6, Window: 9e6}, time.Second, 1e6},
	} {
		if got, _ := rate(c.cc, c.rtt); got != c.want {
			t.Errorf("%s: %g bytes/s, want %g", c.name, got, c.want)
		}
	}
}
