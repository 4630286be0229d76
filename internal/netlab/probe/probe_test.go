//go:build linux

package probe

import (
	"context"
	"net/netip"
	"testing"
	"time"
)

func TestMedianRate(t *testing.T) {
	second := int64(time.Second)
	steady, paused := make([]int64, 0, 1000), make([]int64, 0, 1000)
	for i := range int64(1000) { // one every millisecond
		steady = append(steady, second+i*1e6)
		if i < 300 || i > 600 {
			paused = append(paused, second+i*1e6)
		}
	}
	for _, c := range []struct {
		name     string
		arrivals []int64
		want     float64
	}{
		{"steady", steady, 1000},
		{"with a pause", paused, 1000},
		{"one", steady[:1], 0},
		{"less than an interval", steady[:50], 0},
	} {
		if got := medianRate(c.arrivals, 100*time.Millisecond); got != c.want {
			t.Errorf("%s: %v a second, not %v", c.name, got, c.want)
		}
	}
}

func TestFlowOverLoopback(t *testing.T) {
	ctx := context.Background()
	listen := func() (f Flow) {
		var err error
		loopback := netip.MustParseAddrPort("127.0.0.1:0")
		if f.Send, err = Listen(ctx, loopback); err != nil {
			t.Skip("probe sockets need root: ", err)
		}
		t.Cleanup(func() { _ = f.Send.Close() })
		if f.Receive, err = Listen(ctx, loopback); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Receive.Close() })
		f.To = netip.MustParseAddrPort(f.Receive.LocalAddr().String())
		return f
	}
	f := listen()
	f.Size, f.PacketRate, f.Duration, f.Linger = 100, 1000, 400*time.Millisecond, 100*time.Millisecond
	r, err := f.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if r.Sent < 10 || r.Received != r.Sent || r.Reordered != 0 || r.DelayMin < 0 || r.DelayP50 > r.DelayMax {
		t.Errorf("%+v", r)
	}
	f.Size = 8
	if _, err := f.Run(ctx); err == nil {
		t.Error("Run accepted a payload shorter than its header")
	}
}
