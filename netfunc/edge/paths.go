//go:build linux

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/bpf"
	"holocast/netfunc/edge/neighbour"
	"holocast/netfunc/edge/probe"
)

// answersToReturn is the number of answers after which a silent path is used again.
const answersToReturn = 3

// pathMonitor tracks which of the edge's paths can carry packets.
type pathMonitor struct {
	log       *slog.Logger
	down      time.Duration // of silence
	set       func(bpf.Path)
	changed   func()    // a path went up or down
	appeared  func()    // a path has a new device
	answering time.Time // when the peer began to answer on some path; used by listen

	mu  sync.Mutex
	all []*monitoredPath // by index
}

// monitoredPath is one path.
type monitoredPath struct {
	Path
	prober *probe.Prober // nil without a peer address
	hop    neighbour.State
	silent bool   // the peer answers only on other paths
	after  uint64 // number of answers at which the silence ends

	// Known to the controller from the last report.
	told     time.Duration // excess
	toldMute bool
}

// worse is the growth of a path's excess that is reported immediately.
const worse = 5 * time.Millisecond

func newPathMonitor(cfg *Config, key []byte, log *slog.Logger) *pathMonitor {
	w := &pathMonitor{log: log, down: cfg.Probe.Down}
	for _, p := range cfg.Paths {
		one := &monitoredPath{Path: p}
		one.hop.Problem = "not looked at yet"
		if p.Peer.IsValid() {
			one.prober = &probe.Prober{
				Path: p.Index, Interface: p.Interface, Peer: netip.AddrPortFrom(p.Peer, cfg.Probe.Port),
				Every: cfg.Probe.Every, Timeout: cfg.Probe.Timeout, Key: key, Log: log,
			}
		}
		w.all = append(w.all, one)
	}
	return w
}

// run follows the paths until ctx is done.
func (w *pathMonitor) run(ctx context.Context, every time.Duration) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	hops := make([]neighbour.Hop, 0, len(w.all))
	for _, one := range w.all {
		hops = append(hops, neighbour.Hop{
			Path: one.Index, Interface: one.Interface, Address: one.Gateway,
			Peer: one.Peer,
		})
		if one.prober != nil {
			wg.Go(func() { one.prober.Run(ctx) })
		}
	}
	wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				w.listen(now, w.probes())
			}
		}
	})
	table := &neighbour.Table{Hops: hops, Log: w.log, Changed: func(h neighbour.Hop, s neighbour.State) {
		w.change(h.Path, func(one *monitoredPath) { one.hop = s })
	}}
	return table.Run(ctx)
}

// up reports whether the path can carry packets, and why if it cannot.
func (one *monitoredPath) up() (bool, string) {
	switch {
	case !one.hop.Up:
		return false, one.hop.Problem
	case one.silent:
		return false, fmt.Sprintf("%s answers on other paths, but not on this one", one.Peer)
	}
	return true, ""
}

func (one *monitoredPath) path() bpf.Path {
	up, _ := one.up()
	return bpf.Path{
		Index: one.Index, Interface: one.hop.Interface, Source: one.hop.Source, NextHop: one.hop.NextHop,
		Up: up,
	}
}

// change updates a path, passes it to set, and calls appeared and changed where they apply.
func (w *pathMonitor) change(index int, do func(*monitoredPath)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.all {
		if one.Index != index {
			continue
		}
		before, why := one.up()
		device := one.hop.Interface
		do(one)
		if one.hop.Interface != device && one.hop.Interface != 0 {
			w.appeared()
		}
		now, whyNow := one.up()
		w.set(one.path())
		switch {
		case now && !before:
			w.log.Info("path is up", "path", index, "interface", one.Interface, "next_hop", one.hop.Address, "ethernet",
				one.hop.NextHop.String())
		case !now && !before && one.hop.Resolving:
			w.log.Debug("path is not up yet", "path", index, "why", whyNow)
		case !now && (before || why != whyNow):
			w.log.Warn("path is down", "path", index, "why", whyNow)
		}
		if now != before {
			w.changed()
		}
	}
}

// probes returns the statistics of probed paths.
func (w *pathMonitor) probes() map[int]probe.Stats {
	stats := map[int]probe.Stats{}
	for _, one := range w.all {
		if one.prober != nil {
			stats[one.Index] = one.prober.Stats()
		}
	}
	return stats
}

// listen takes down paths on which the peer is silent while it answers on others. If it answers on
// none, the paths stay up, since packets can arrive even while the peer's program is stopped.
func (w *pathMonitor) listen(now time.Time, stats map[int]probe.Stats) {
	answers := false
	for _, s := range stats {
		answers = answers || s.Answered > 0 && s.Silent < w.down/2
	}
	switch {
	case !answers:
		w.answering = time.Time{}
	case w.answering.IsZero():
		w.answering = now
	}
	steady := answers && now.Sub(w.answering) >= w.down
	for _, one := range w.all {
		s, probed := stats[one.Index]
		if !probed {
			continue
		}
		w.hurry(one, s)
		switch {
		case !one.silent && steady && s.Silent >= w.down:
			w.change(one.Index, func(one *monitoredPath) { one.silent, one.after = true, s.Answered+answersToReturn })
		case one.silent && (!answers || s.Answered >= one.after):
			w.change(one.Index, func(one *monitoredPath) { one.silent = false })
		case one.silent && s.Silent >= w.down && s.Answered+answersToReturn != one.after:
			// answers must be consecutive
			w.change(one.Index, func(one *monitoredPath) { one.after = s.Answered + answersToReturn })
		}
	}
}

// hurry requests a report if a path is worse than the controller knows.
func (w *pathMonitor) hurry(one *monitoredPath, s probe.Stats) {
	w.mu.Lock()
	urgent := one.urgent(s)
	w.mu.Unlock()
	if urgent {
		w.changed()
	}
}

// by returns the path that uses an interface, or 0 if none does.
func (w *pathMonitor) by(link int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.all {
		if link != 0 && one.hop.Interface == link {
			return one.Index
		}
	}
	return 0
}

// again passes all paths to the kernel programs after they were opened.
func (w *pathMonitor) again() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.all {
		if one.hop.Interface != 0 { // if it is not known yet, the pinned state is newer
			w.set(one.path())
		}
	}
}

// report returns the paths for the controller, without counters.
func (w *pathMonitor) report() []api.Path {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]api.Path, 0, len(w.all))
	for _, one := range w.all {
		p := api.Path{Index: one.Index, Interface: one.Interface}
		p.Up, _ = one.up()
		if one.prober != nil {
			s := one.prober.Stats()
			p.RTT, p.MinRTT = milliseconds(s.RecentRTT), milliseconds(s.MinRTT)
			p.Loss, p.Lost, p.Silent = s.RecentLoss, s.Lost, one.mute(s)
			one.tell(s)
		}
		out = append(out, p)
	}
	return out
}

// mute reports whether the last three probes were not answered although their answers were due.
func (one *monitoredPath) mute(s probe.Stats) bool {
	return s.Answered > 0 && s.Silent > s.RTT+3*one.prober.Every
}

// tell records the path's state as reported to the controller.
func (one *monitoredPath) tell(s probe.Stats) { one.told, one.toldMute = excess(s), one.mute(s) }

// excess returns the excess of a path's recent round-trip time over its minimum.
func excess(s probe.Stats) time.Duration {
	if s.RecentRTT == 0 {
		return 0
	}
	return s.RecentRTT - s.MinRTT
}

// urgent reports whether a path is worse than the controller knows. A report then lets the
// controller's trigger react immediately.
func (one *monitoredPath) urgent(s probe.Stats) bool {
	return one.mute(s) && !one.toldMute || excess(s) > one.told+worse
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
