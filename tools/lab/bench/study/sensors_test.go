//go:build linux

package study

import (
	"os"
	"testing"
	"time"

	"holocast/internal/quiccc"
	"holocast/internal/sessiontest/fakepath"
	"holocast/tools/lab/bench/internal/cputime"
	"holocast/tools/lab/bench/internal/fakecamera"
	"holocast/tools/lab/bench/internal/quantile"
)

// TestSensors sends the frames of the paper's eight sensors, which it gives as over 300 Mbit/s, through
// one MOQT session over a path of 400 Mbit/s, in fake time. All sensors capture at the same instants.
func TestSensors(t *testing.T) {
	if !quiccc.Patched() {
		t.Skip("needs quic-go as patched by tools/quicpatch (make build)")
	}
	const (
		sensors = 8
		seconds = 4
	)
	for _, c := range []struct {
		name        string
		mbps        float64 // of each sensor
		rate        float64 // of the path, Mbit/s
		delay       time.Duration
		loss        float64
		least, late float64 // least share of frames on time, and largest p99 of the delay in ms
	}{
		{"LAN", 40, 400, time.Millisecond, 0, 0.999, 100},
		{"WAN", 40, 400, 20 * time.Millisecond, 0, 0.999, 300},
		{"WAN, 0.1 % loss", 40, 400, 20 * time.Millisecond, 0.001, 0.999, 300},
		{"layout W over 40 Mbit/s", 3.71, 40, 20 * time.Millisecond, 0.001, 0.999, 300},
	} {
		t.Run(c.name, func(t *testing.T) {
			before, err := cputime.Of(os.Getpid())
			if err != nil {
				t.Fatal(err)
			}
			fakepath.Test(t, func(t *testing.T) {
				direction := fakepath.Direction{
					Rate: func(int) float64 { return c.rate * 1e6 / 8 }, Delay: c.delay, Loss: c.loss,
					Queue: time.Duration(100 * 1294 * 8 / c.rate * float64(time.Microsecond)), // 100 packets
				}
				back := direction
				back.Loss = 0
				m := fakecamera.Cameras{Number: sensors, Mbps: c.mbps, Seconds: seconds}.Run(t, fakepath.New(direction, back))
				share, p50, p99 := m.Share(), quantile.Of(m.Delays, 0.5), quantile.Of(m.Delays, 0.99)
				t.Logf("%.0f Mbit/s: %.2f %% of %d frames on time, delay p50 %.1f p99 %.1f ms",
					sensors*c.mbps, 100*share, m.Sent, p50, p99)
				if share < c.least || p99 > c.late {
					t.Errorf("%.2f %% on time, p99 %.1f ms", 100*share, p99)
				}
			})
			after, err := cputime.Of(os.Getpid())
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%.2f s of processor time for publisher, path and viewer per second of media",
				(after-before).Seconds()/(1+seconds))
		})
	}
}
