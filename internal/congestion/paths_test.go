package congestion

import (
	"testing"
	"time"
)

const mbit = 1e6 / 8

func TestExplore(t *testing.T) {
	path1 := simPath{rate: 400 * mbit, delay: 20 * time.Millisecond, loss: 0.0005, queue: 2 << 20}
	vary := path1
	vary.vary = 50 * time.Millisecond
	for _, p := range []struct {
		name string
		p    simPath
	}{{"path1", path1}, {"vary", vary}, {"lan", simPath{rate: 1000 * mbit, delay: 100 * time.Microsecond, queue: 256 << 10}},
		{"shallow", simPath{rate: 400 * mbit, delay: 20 * time.Millisecond, queue: 100 << 10}},
		{"deep", simPath{rate: 50 * mbit, delay: 30 * time.Millisecond, queue: 4 << 20}},
		{"loss1", simPath{rate: 400 * mbit, delay: 20 * time.Millisecond, queue: 2 << 20, loss: 0.01}},
		{"aggr", simPath{rate: 100 * mbit, delay: 10 * time.Millisecond, queue: 1 << 20, aggregate: 10 * time.Millisecond}},
	} {
		for _, name := range Names() {
			s := newSim(p.p, 1)
			f := s.newSender(t, name)
			f.startBulk(0)
			s.run(3 * time.Second)
			f.mark()
			s.queueDelays = s.queueDelays[:0]
			s.run(15 * time.Second)
			t.Logf("%-8s %-8s %6.1f Mbit/s queue p50 %v p99 %v drops %d  %+v", p.name, name, f.mbps(12*time.Second), percentile(s.queueDelays, .5), percentile(s.queueDelays, .99), s.drops, f.flow.Estimates().Phase)
		}
	}
}
