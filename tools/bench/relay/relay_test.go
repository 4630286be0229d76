package relay

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"holocast/tools/bench/internal/load"
)

// TestRun runs everything with one viewer, briefly, and checks the shape of the result, not
// its figures.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := Run(ctx, Options{Quick: true, Viewers: []int{1}, Sessions: 5, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Fatal(err)
	}
	f := r.Ours.Fanout[1]
	if f.MbitPerS <= 0 || f.CPUSPerGbit <= 0 || f.CapacityMbit <= 0 || r.Ours.FirstObjectMs <= 0 || r.Ours.MemoryMB <= 0 || r.Peer != nil {
		t.Errorf("the result is not whole: %+v", r)
	}
	if !strings.Contains(r.Markdown(), "| holocast relay | 1 |") {
		t.Errorf("the table has no row for one viewer:\n%s", r.Markdown())
	}
}

func TestCompare(t *testing.T) {
	fanout := func(cpu, p99 float64) Fanout {
		return Fanout{CPUSPerGbit: cpu, GbitPerS: 1 / cpu, AddedDelay: load.Quantiles{P99: p99}}
	}
	r := Result{
		Ours: Contender{Fanout: map[int]Fanout{1: fanout(0.5, 10), 4: fanout(0.4, 30)}},
		Peer: &Contender{Fanout: map[int]Fanout{1: fanout(1, 40), 4: fanout(0.6, 40)}},
	}
	r.compare()
	if math.Abs(r.ThroughputPerCoreRatio-1.5) > 1e-9 || r.P99DelayRatio != 0.75 {
		t.Errorf("compare: throughput %v, delay %v; want the worst of each, 1.5 and 0.75", r.ThroughputPerCoreRatio, r.P99DelayRatio)
	}
}

func TestMiddle(t *testing.T) {
	f := middle([]Fanout{{MbitPerS: 3, CPUSPerGbit: 2, Lost: 1}, {MbitPerS: 1, CPUSPerGbit: 0.5}, {MbitPerS: 2, CPUSPerGbit: 4, Lost: 2}})
	if f.MbitPerS != 2 || f.CPUSPerGbit != 2 || f.GbitPerS != 0.5 || f.Lost != 3 {
		t.Errorf("middle: %+v", f)
	}
}

func TestPeerIsMissing(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("PATH", "")
	if _, err := findPeer("auto"); err == nil || !strings.Contains(err.Error(), "cargo install") {
		t.Errorf("a missing peer: %v", err)
	}
}
