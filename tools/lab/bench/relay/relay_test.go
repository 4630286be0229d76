package relay

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"holocast/internal/connect"
	"holocast/tools/lab/bench/internal/load"
)

// TestRun measures one viewer briefly. It checks that the result is complete, not that the figures
// are good.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := Run(ctx, Options{Parts: []string{loadPart}, Quick: true, Viewers: []int{1}, Sessions: 5, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Fatal(err)
	}
	f := r.Ours.Fanout[1]
	if f.MbitPerS <= 0 || f.CPUSPerGbit <= 0 || f.CapacityMbit <= 0 || r.Ours.FirstObjectMs <= 0 ||
		r.Ours.MemoryMB <= 0 || r.Peer != nil {
		t.Errorf("incomplete result: %+v", r)
	}
	if x := f.Saturated; x.OfferedMbit <= 0 || x.MemoryMB <= 0 {
		t.Errorf("past saturation: %+v", x)
	}
	if !strings.Contains(r.Markdown(), "| holocast relay | 1 |") {
		t.Errorf("the table has no row for one viewer:\n%s", r.Markdown())
	}
}

// TestRemoteRelay loads a relay by URL, with two publishers and packet loss.
func TestRemoteRelay(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	relay, err := load.Start(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Stop()
	hash := relay.Hash()
	for scheme, webTransport := range map[string]bool{"moqt": false, "https": true} {
		at := connect.Target{URL: scheme + "://" + relay.Addr() + "/load", CertificateHash: hex.EncodeToString(hash[:])}
		r, err := Run(ctx, Options{
			Quick: true, At: &at, Publishers: 2, Viewers: []int{2}, Rate: 50, FrameBytes: 5_000, Loss: 0.01,
			Time: 300 * time.Millisecond, Log: t.Output(),
		})
		if err != nil {
			t.Fatal(err)
		}
		f := r.Ours.Fanout[2]
		if r.Ours.Name != at.URL || r.WebTransport != webTransport || f.MbitPerS <= 0 || f.CapacityMbit <= 0 ||
			r.Ours.FirstObjectMs <= 0 {
			t.Errorf("incomplete result: %+v", r)
		}
		if f.CPUSPerGbit != 0 || f.GbitPerS != 0 || r.Ours.MemoryMB != 0 || f.Saturated.MemoryMB != 0 {
			t.Errorf("process figures of a remote relay: %+v", r.Ours)
		}
		if !strings.Contains(r.Markdown(), "| – |") {
			t.Errorf("the table:\n%s", r.Markdown())
		}
	}
}

func TestOptions(t *testing.T) {
	at := &connect.Target{URL: "moqt://localhost/load"}
	for name, o := range map[string]Options{
		"remote with peer":      {At: at, Peer: "auto"},
		"remote with transport": {At: at, WebTransport: true},
		"publishers":            {Publishers: -1},
		"viewers":               {Viewers: []int{4, 0}},
		"rate":                  {Rate: -1},
		"size":                  {FrameBytes: -1},
		"time":                  {Time: -time.Second},
		"total loss":            {Loss: 1},
		"negative loss":         {Loss: -0.1},
	} {
		if _, err := o.withDefaults(); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	o, err := Options{}.withDefaults()
	if err != nil || o.Publishers != 1 || o.Rate != FramesPerS || o.FrameBytes != FrameBytes || len(o.Viewers) != 4 ||
		o.Sessions != 2000 {
		t.Errorf("defaults: %+v, %v", o, err)
	}
}

// Any relay whose command takes an address, certificate and key can be a peer.
func TestPeerCommand(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	binary, remove, err := load.Binary(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	command, name, err := findPeer(binary + " --listen {addr} --http {addr} --tls-certificate {cert} --tls-key {key}")
	if err != nil || name != "relay" {
		t.Fatalf("peer %q: %v", name, err)
	}
	peer, err := load.StartPeer(ctx, command)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Stop()
	s, err := load.Transfer(ctx, peer, load.Frames{Viewers: 1, Bytes: 1000, Time: 50 * time.Millisecond})
	if err != nil || s.Bits() == 0 {
		t.Errorf("%v bits, %v", s.Bits(), err)
	}
	if _, err := load.StartPeer(ctx, binary+" --no-such-flag {addr}"); err == nil || !strings.Contains(err.Error(),
		"no-such-flag") {
		t.Errorf("start a broken peer: %v", err)
	}
}

func TestCompare(t *testing.T) {
	fanout := func(cpu, p99 float64) Fanout {
		return Fanout{CPUSPerGbit: cpu, GbitPerS: 1 / cpu, AddedDelay: load.Quantiles{P99: p99}}
	}
	r := Load{
		Ours: Contender{Fanout: map[int]Fanout{1: fanout(0.5, 10), 4: fanout(0.4, 30)}},
		Peer: &Contender{Fanout: map[int]Fanout{1: fanout(1, 40), 4: fanout(0.6, 40)}},
	}
	r.compare()
	if math.Abs(r.ThroughputPerCoreRatio-1.5) > 1e-9 || r.P99DelayRatio != 0.75 {
		t.Errorf("compare: throughput %v, delay %v; want the worst of each, 1.5 and 0.75", r.ThroughputPerCoreRatio,
			r.P99DelayRatio)
	}
}

func TestMedians(t *testing.T) {
	f := medians([]Fanout{
		{MbitPerS: 3, CPUSPerGbit: 2, Lost: 1},
		{MbitPerS: 1, CPUSPerGbit: 0.5},
		{MbitPerS: 2, CPUSPerGbit: 4, Lost: 2},
	})
	if f.MbitPerS != 2 || f.CPUSPerGbit != 2 || f.GbitPerS != 0.5 || f.Lost != 3 {
		t.Errorf("medians: %+v", f)
	}
}

func TestMissingPeer(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("PATH", "")
	if _, _, err := findPeer("auto"); err == nil || !strings.Contains(err.Error(), "cargo install") {
		t.Errorf("a missing peer: %v", err)
	}
}
