//go:build linux

package netem

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"holocast/internal/netlab/wire"
)

const ms = time.Millisecond

func TestSupports(t *testing.T) {
	varied := &wire.Variation{Min: ms, Max: 2 * ms, EveryMin: ms, EveryMax: ms}
	for _, c := range []struct {
		name       string
		conditions wire.Conditions
		can        bool
	}{
		{"Table I", wire.Conditions{Rate: 400e6, Loss: 0.0005, Variation: varied, QueuePackets: 1000}, true},
		{"reordering without a rate", wire.Conditions{Variation: varied, Reorder: true}, true},
		{"bursts", wire.Conditions{Burst: &wire.BurstLoss{Average: 0.05, Length: 10, InBad: 1}}, false},
		{"overhead", wire.Conditions{Rate: 1e6, Overhead: 24}, false},
		{"reordering with a rate", wire.Conditions{Rate: 1e6, Reorder: true}, false},
		{"variation without a rate", wire.Conditions{Variation: varied}, false},
	} {
		if err := Supports(c.conditions); (err == nil) != c.can {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestParameters(t *testing.T) {
	for _, c := range []struct {
		name       string
		conditions wire.Conditions
		want       netlink.NetemQdiscAttrs
	}{
		{
			"the limit includes packets being delayed",
			wire.Conditions{Rate: 12.112e6, QueuePackets: 100}, // 1000 packets/s
			netlink.NetemQdiscAttrs{Latency: 50_000, Limit: 150, Rate64: 1_514_000},
		},
		{
			"the longest delay counts",
			wire.Conditions{Rate: 12.112e6, QueuePackets: 100, Variation: &wire.Variation{Min: 50 * ms, Max: 100 * ms}},
			netlink.NetemQdiscAttrs{Latency: 50_000, Limit: 200, Rate64: 1_514_000},
		},
		{
			"bytes",
			wire.Conditions{Rate: 12.112e6, QueueBytes: 10 * frame, QueuePackets: 100, Loss: 0.01},
			netlink.NetemQdiscAttrs{Latency: 50_000, Limit: 60, Rate64: 1_514_000, Loss: 1},
		},
		{"no limits", wire.Conditions{}, netlink.NetemQdiscAttrs{Latency: 50_000, Limit: math.MaxInt32}},
	} {
		if got := parameters(c.conditions, 50*ms); got != c.want {
			t.Errorf("%s: %+v, not %+v", c.name, got, c.want)
		}
	}
}

func TestStep(t *testing.T) {
	varied := wire.Conditions{Rate: 1e6, Variation: &wire.Variation{
		Min: 20 * ms, Max: 70 * ms, EveryMin: 50 * ms,
		EveryMax: 200 * ms,
	}}
	calm := wire.Conditions{Rate: 1e6, Delay: 20 * ms}
	p := &port{
		Port: Port{Timeline: []wire.Change{
			{Conditions: calm},
			{At: 10 * time.Second, Conditions: varied},
			{At: 50 * time.Second, Conditions: calm},
		}},
		random: rand.New(rand.NewPCG(1, 0)),
	}
	draws := 0
	for now := time.Duration(0); now < 60*time.Second; {
		changed := p.step(now)
		if inside := now >= 10*time.Second && now < 50*time.Second; inside {
			draws++
			if !changed || p.delay < 20*ms || p.delay > 70*ms {
				t.Fatalf("%v: changed %v, delay %v", now, changed, p.delay)
			}
		} else if p.delay != 20*ms {
			t.Fatalf("%v: delay %v", now, p.delay)
		}
		if p.next() <= now {
			t.Fatalf("%v: next at %v", now, p.next())
		}
		now = min(p.next(), 60*time.Second)
	}
	if draws < 250 || draws > 400 {
		t.Errorf("%d draws in 40 s", draws)
	}
}
