//go:build linux

package main

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/bpf"
	"holocast/netfunc/edge/report"
	"holocast/netfunc/pathset"
)

// newReceiving returns a receiver without kernel programs.
func newReceiving(t *testing.T, text string, controlled bool) *receiving {
	t.Helper()
	cfg, err := load(t, "name: far\nrole: receiver\npaths:\n  - {index: 1, interface: wan1, peer: 10.1.1.1}\n"+
		"  - {index: 2, interface: wan2, peer: 10.1.2.1}\n  - {index: 3, interface: wan3, peer: 10.1.3.1}\n"+text)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	r := &receiving{cfg: &cfg, log: log, kernel: &kernel{cfg: &cfg, log: log}}
	if controlled {
		r.reporter = &report.Reporter{Name: "far", Log: log}
	}
	if err := r.settle(); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestMaxFlows checks that the controller's limit equals the kernel program's.
func TestMaxFlows(t *testing.T) {
	if api.MaxFlows != bpf.MaxFlows {
		t.Errorf("the kernel holds %d flows, the controller may have %d", bpf.MaxFlows, api.MaxFlows)
	}
}

// TestInstall checks that the kernel learns of added paths immediately, and of removed paths when no
// packets are in flight on them.
func TestInstall(t *testing.T) {
	r := newReceiving(t, "receiver: {behind: [10.9.0.0/24]}\ndrain: 100ms", true)
	f, err := r.flow(viewerAddr)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Unix(1_700_000_000, 0)
	for _, step := range []struct {
		ms    int
		paths pathset.Set
		want  pathset.Set
	}{
		{0, 0, pathset.Of(1, 2, 3)}, // no duplication: all paths
		{10, pathset.Of(1, 2, 3), pathset.Of(1, 2, 3)},
		{20, pathset.Of(1, 3), pathset.Of(1, 2, 3)}, // packets may be in flight on path 2
		{119, pathset.Of(1, 3), pathset.Of(1, 2, 3)},
		{120, pathset.Of(1, 3), pathset.Of(1, 3)},
		{130, pathset.Of(1), pathset.Of(1, 3)},
		{140, pathset.Of(1, 2), pathset.Of(1, 2, 3)}, // add before removing
		{240, pathset.Of(1, 2), pathset.Of(1, 2)},
		{250, pathset.Of(1, 2, 3), pathset.Of(1, 2, 3)},
		{260, pathset.Of(3), pathset.Of(1, 2, 3)},
		{360, pathset.Of(3), pathset.Of(3)},
		{370, 0, pathset.Of(3)}, // duplication is over, and packets in flight must not count as lost
		{469, 0, pathset.Of(3)},
		{470, 0, pathset.Of(1, 2, 3)},
	} {
		f.paths = step.paths
		if err := r.install(f, start.Add(time.Duration(step.ms)*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if f.inside != step.want {
			t.Errorf("after %d ms with %v the kernel has %v, want %v", step.ms, step.paths, f.inside, step.want)
		}
	}
}

func TestUpdates(t *testing.T) {
	r := newReceiving(t, "receiver: {behind: [10.9.0.0/24]}\nflows: [{destination: 10.9.0.9, dscp: 46}]", true)
	other := netip.MustParseAddr("10.9.0.3")
	flow := func(destination netip.Addr, generation uint64, paths ...int) api.Flow {
		return api.Flow{
			Destination: destination, Generation: generation, State: api.Duplicating,
			Paths: pathset.Of(paths...), Sender: "near", Receiver: "far",
		}
	}
	has := func(what string, destination netip.Addr, generation uint64, paths ...int) {
		t.Helper()
		f := r.flows[destination]
		if f == nil {
			t.Fatalf("%s: no flow to %s", what, destination)
		}
		p, g := f.algorithm.Paths()
		if p != pathset.Of(paths...) || g != generation || f.paths != pathset.Of(paths...) {
			t.Errorf("%s: paths %v and %v of generation %d, want %v of %d", what, f.paths, p, g, paths, generation)
		}
	}
	r.update(api.Update{Snapshot: true, Flows: []api.Flow{flow(viewerAddr, 5, 1, 2, 3)}})
	has("snapshot", viewerAddr, 5, 1, 2, 3)
	r.update(api.Update{Flows: []api.Flow{flow(viewerAddr, 5, 1, 2), flow(other, 1, 2, 3)}})
	has("trimmed", viewerAddr, 5, 1, 2)
	has("a second flow", other, 1, 2, 3)
	r.update(api.Update{Flows: []api.Flow{flow(viewerAddr, 4, 3)}})
	has("news of the past", viewerAddr, 5, 1, 2)
	r.update(api.Update{Snapshot: true, Flows: []api.Flow{flow(viewerAddr, 1, 1, 3)}})
	has("a controller without memory", viewerAddr, 1, 1, 3)
	if r.flows[other].wanted || !r.flows[viewerAddr].wanted || !r.flows[netip.MustParseAddr("10.9.0.9")].wanted {
		t.Error("flows wanted after a snapshot differ from the snapshot plus the configuration")
	}
	elsewhere := flow(netip.MustParseAddr("10.9.0.4"), 1, 1, 2)
	elsewhere.Receiver = "rome"
	r.update(api.Update{Flows: []api.Flow{elsewhere}})
	if r.flows[elsewhere.Destination] != nil {
		t.Error("another receiver's flow was accepted")
	}
	r.update(api.Update{Removed: []netip.Addr{viewerAddr}})
	if r.flows[viewerAddr].wanted {
		t.Error("a removed flow is still wanted")
	}
	r.tend(time.Now())
	if r.flows[viewerAddr] == nil {
		t.Error("a flow was forgotten while packets may still arrive")
	}
	r.tend(time.Now().Add(2 * forget))
	if r.flows[viewerAddr] != nil || r.flows[other] != nil || len(r.flows) != 1 {
		t.Errorf("%d flows are left, want the configured one", len(r.flows))
	}
}

// TestSeen checks that the kernel is prepared for a viewer that sent a packet.
func TestSeen(t *testing.T) {
	r := newReceiving(t, "receiver: {behind: [10.9.0.0/16]}", true)
	r.seen(viewerAddr)
	r.seen(netip.MustParseAddr("10.8.0.2"))
	if len(r.flows) != 1 || r.flows[viewerAddr].inside != pathset.Of(1, 2, 3) {
		t.Errorf("flows %+v", r.flows)
	}
	for i := range 2 * bpf.MaxFlows {
		r.seen(netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}))
	}
	if n := len(r.flows); n > bpf.MaxFlows/2 {
		t.Errorf("%d flows were prepared, leaving none for the controller's", n)
	}
}

// TestUncontrolled checks that decisions change nothing without a controller.
func TestUncontrolled(t *testing.T) {
	r := newReceiving(t, "flows: [{destination: 10.9.0.2, paths: [1, 2, 3]}]\nelimination: {window: 10, span: 0s, "+
		"completeSpan: 0s, slack: 0, guard: 0s}", false)
	now := bpf.Now()
	for n := range 1000 {
		now += time.Millisecond
		r.observe([]bpf.Arrival{
			{Key: uint64(n), Time: now, Flow: viewerAddr, Path: 1},
			{Key: uint64(n), Time: now + 100*time.Microsecond, Flow: viewerAddr, Path: 2},
		})
	}
	f := r.flows[viewerAddr]
	p, _ := f.algorithm.Paths()
	if f.decisions == 0 || f.last == nil || f.inside != pathset.Of(1, 2, 3) || p != pathset.Of(1, 2, 3) {
		t.Errorf("%d decisions, the last %+v; paths %v in the kernel, %v in the algorithm", f.decisions, f.last,
			f.inside, p)
	}
}
