//go:build linux

package main

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"holocast/netfunc/bpf"
	"holocast/netfunc/edge/neighbour"
	"holocast/netfunc/edge/probe"
)

// newTestWays returns a path monitor whose devices and next hops are all up.
func newTestWays(t *testing.T) (w *pathMonitor, sets map[int]bool) {
	t.Helper()
	cfg := defaultConfig()
	cfg.Probe.Down = time.Second
	for i := 1; i <= 3; i++ {
		cfg.Paths = append(cfg.Paths, Path{
			Index: i, Interface: "wan",
			Peer: netip.AddrFrom4([4]byte{10, 1, byte(i), 2}),
		})
	}
	w, sets = newPathMonitor(&cfg, nil, slog.New(slog.DiscardHandler)), map[int]bool{}
	w.set, w.changed, w.appeared = func(p bpf.Path) { sets[p.Index] = p.Up }, func() {}, func() {}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	for i := range w.all {
		w.change(i+1, func(one *monitoredPath) {
			one.hop = neighbour.State{Interface: i + 1, Source: mac, NextHop: mac, Up: true}
		})
	}
	return w, sets
}

func TestListen(t *testing.T) {
	w, sets := newTestWays(t)
	now := time.Unix(1_700_000_000, 0)
	answered := map[int]uint64{1: 10, 2: 10, 3: 10}
	silent := map[int]time.Duration{}
	// after advances time while the peer answers on the given paths.
	after := func(d time.Duration, answering ...int) {
		const step = 100 * time.Millisecond
		for ; d > 0; d -= step {
			now = now.Add(step)
			stats := map[int]probe.Stats{}
			for i := 1; i <= 3; i++ {
				silent[i] += step
			}
			for _, i := range answering {
				answered[i]++
				silent[i] = 0
			}
			for i := 1; i <= 3; i++ {
				stats[i] = probe.Stats{Answered: answered[i], Silent: silent[i]}
			}
			w.listen(now, stats)
		}
	}
	up := func(what string, want ...bool) {
		t.Helper()
		for i, v := range want {
			if sets[i+1] != v {
				t.Errorf("%s: path %d is up: %v, want %v", what, i+1, sets[i+1], v)
			}
		}
	}
	up("before any answer", true, true, true)
	after(5*time.Second, 1, 2, 3)
	up("all answer", true, true, true)
	after(900*time.Millisecond, 1, 2)
	up("path 3 is silent for less than down", true, true, true)
	after(200*time.Millisecond, 1, 2)
	up("path 3 is silent", true, true, false)
	after(200*time.Millisecond, 1, 2, 3)
	up("two answers", true, true, false)
	after(100*time.Millisecond, 1, 2, 3)
	up("three answers", true, true, true)
	after(5*time.Second, 2)
	up("one answers", false, true, false)
	after(400 * time.Millisecond)
	up("none answers for a moment", false, true, false)
	after(600 * time.Millisecond)
	up("none answers: the peer is gone, not its paths", true, true, true)
	after(10 * time.Second)
	up("none answers for long", true, true, true)
	after(300*time.Millisecond, 2)
	up("it comes back by one path first", true, true, true)
	after(600*time.Millisecond, 2)
	up("and has not been back for long", true, true, true)
	after(300*time.Millisecond, 2)
	up("and then answers on one path only", false, true, false)
	after(300*time.Millisecond, 1, 2, 3)
	up("and on all again", true, true, true)
}

// A path that gets worse is reported immediately, and again only when it is even worse.
func TestUrgentReports(t *testing.T) {
	w, _ := newTestWays(t)
	var reports int
	w.changed = func() { reports++ }
	const ms = time.Millisecond
	for i, c := range []struct {
		stats  probe.Stats
		urgent bool
	}{
		{probe.Stats{Answered: 9, RTT: 40 * ms, RecentRTT: 41 * ms, MinRTT: 40 * ms}, false},
		{probe.Stats{Answered: 9, RTT: 40 * ms, RecentRTT: 45 * ms, MinRTT: 40 * ms}, false},
		{probe.Stats{Answered: 9, RTT: 70 * ms, RecentRTT: 47 * ms, MinRTT: 40 * ms}, true},
		{probe.Stats{Answered: 9, RTT: 70 * ms, RecentRTT: 51 * ms, MinRTT: 40 * ms}, false},
		{probe.Stats{Answered: 9, RTT: 70 * ms, RecentRTT: 53 * ms, MinRTT: 40 * ms}, true},
		{probe.Stats{Answered: 9, RTT: 70 * ms, RecentRTT: 53 * ms, MinRTT: 40 * ms, Silent: 300 * ms}, false},
		{probe.Stats{Answered: 9, RTT: 70 * ms, RecentRTT: 53 * ms, MinRTT: 40 * ms, Silent: 400 * ms}, true},
		{probe.Stats{Answered: 9, RTT: 70 * ms, RecentRTT: 53 * ms, MinRTT: 40 * ms, Silent: 500 * ms}, false},
		{probe.Stats{Answered: 9, RTT: 300 * ms, RecentRTT: 300 * ms, MinRTT: 300 * ms, Silent: 300 * ms}, false},
		{probe.Stats{Silent: time.Minute}, false},
	} {
		before := reports
		w.listen(time.Unix(1_700_000_000, 0), map[int]probe.Stats{1: c.stats})
		if urgent := reports > before; urgent != c.urgent {
			t.Errorf("%d: %+v is urgent: %v", i, c.stats, urgent)
		} else if urgent {
			w.all[0].tell(c.stats)
		}
	}
}

func TestWhyDown(t *testing.T) {
	w, sets := newTestWays(t)
	var news int
	w.changed = func() { news++ }
	w.change(2, func(one *monitoredPath) { one.hop = neighbour.State{Problem: "interface wan has no carrier"} })
	w.change(2, func(one *monitoredPath) { one.hop = neighbour.State{Problem: "interface wan is down"} })
	s := w.status()
	if sets[2] || s[1].Up || s[1].Problem != "interface wan is down" || s[1].Peer != "10.1.2.2" || news != 1 {
		t.Errorf("%+v, told %d times", s[1], news)
	}
	if r := w.report(); r[1].Up || !r[0].Up || r[0].Index != 1 {
		t.Errorf("report %+v", r)
	}
}
