package congestion

import (
	"testing"
	"time"
)

// TestLEDBAT runs a background transfer alone and against another flow over 100 Mbit/s, 15 ms one way
// and a queue of four bandwidth-delay products.
func TestLEDBAT(t *testing.T) {
	const warm, over = 10 * time.Second, 15 * time.Second
	run := func(first time.Duration, others ...string) (background, other float64, queue time.Duration) {
		s := newSim(simPath{rate: 100e6 / 8, delay: 15 * time.Millisecond, queue: 4 * 375_000}, 1)
		l := s.newSender(t, "ledbat")
		l.startBulk(first)
		var o *simSender
		for _, name := range others {
			o = s.newSender(t, name)
			o.startBulk(5*time.Second - first)
		}
		s.run(warm)
		l.mark()
		if o != nil {
			o.mark()
		}
		s.queueDelays = nil
		s.run(warm + over)
		if o != nil {
			other = o.mbps(over)
		}
		return l.mbps(over), other, percentile(s.queueDelays, 0.5)
	}
	alone, _, queue := run(0)
	t.Logf("alone %.1f Mbit/s, queue %v", alone, queue)
	if alone < 85 || queue > ledbatTarget {
		t.Errorf("alone %.1f Mbit/s, queue %v", alone, queue)
	}
	for _, name := range []string{"bbr", "cubic"} {
		for _, first := range []time.Duration{0, 5 * time.Second} {
			background, other, queue := run(first, name)
			t.Logf("from %v: %.1f Mbit/s against %s's %.1f, queue %v", first, background, name, other, queue)
			if background > 15 || other < 80 {
				t.Errorf("from %v: %.1f Mbit/s against %s's %.1f", first, background, name, other)
			}
		}
	}
}
