package duplication

import (
	"testing"
	"time"

	"holocast/internal/quiccc"
	"holocast/internal/sessiontest/fakepath"
	"holocast/tools/lab/bench/internal/fakecamera"
)

// TestPerPacketDelays measures the frame rates of the paper's levels when the delays of Table I change with
// each packet, which reorders packets: over path 1, and duplicated over paths 1 and 2. It runs in fake time,
// with an ideal pair of edges.
func TestPerPacketDelays(t *testing.T) {
	if !quiccc.Patched() {
		t.Skip("needs quic-go as patched by tools/quicpatch (make build)")
	}
	direction := func(least, spread time.Duration) fakepath.Direction {
		return fakepath.Direction{
			Rate: func(int) float64 { return 400e6 / 8 }, Delay: least, Spread: spread, Loss: 0.0005,
			Queue: 100 * time.Millisecond,
		}
	}
	const ms = time.Millisecond
	for _, level := range []struct {
		name string
		mbps float64
	}{{"NFOV", 71}, {"HD", 114}, {"FHD", 216}} {
		for _, congestion := range []string{"bbr", "cubic"} {
			run := func(path fakepath.Direction) (m fakecamera.Measured) {
				fakepath.Test(t, func(t *testing.T) {
					net := fakepath.New(path, path)
					net.Congestion = congestion
					m = fakecamera.Cameras{Number: 1, Mbps: level.mbps, Seconds: 4}.Run(t, net)
				})
				t.Logf("%s, %s, replica %v: %.1f frames/s on time, delay p50 %.0f p99 %.0f ms", level.name, congestion,
					path.Replica != nil, 30*m.Share(), quantile(m.Delays, 0.5), quantile(m.Delays, 0.99))
				return m
			}
			single := direction(20*ms, 50*ms)
			both, second := single, direction(30*ms, 5*ms)
			both.Replica = &second
			one, two := run(single), run(both)
			if two.Share() < one.Share() {
				t.Errorf("%s, %s: duplication delivers %d frames on time, one path %d", level.name, congestion, two.OnTime,
					one.OnTime)
			}
		}
	}
}
