package study

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/quiccc"
	"holocast/internal/sessiontest/fakepath"
)

// reorderedMbps returns the throughput of MOQT with BBR over a path of 100 Mbit/s and 20 ms one way,
// on which a share of the packets is 5 ms late, in fake time.
func reorderedMbps(t *testing.T, share float64) (mbps float64) {
	t.Helper()
	fakepath.Test(t, func(t *testing.T) {
		direction := fakepath.Direction{
			Rate: func(int) float64 { return 100e6 / 8 }, Delay: 20 * time.Millisecond, Queue: 40 * time.Millisecond,
			Strays: share, StrayDelay: 5 * time.Millisecond,
		}
		back := direction
		back.Strays = 0
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		name := moqt.TrackName{Namespace: moqt.Namespace{"study"}, Name: "bulk"}
		server := moqt.Handler{Subscribe: func(r *moqt.SubscribeRequest) {
			pub, err := r.Accept(moqt.TrackInfo{})
			if err != nil {
				return
			}
			running.Go(func() {
				segment := make([]byte, segmentBytes)
				for group := uint64(0); ctx.Err() == nil; group++ {
					w, err := pub.OpenSubgroup(wire.SubgroupHeader{
						Group: group, Mode: wire.SubgroupIDExplicit, Priority: wire.DefaultPriority, FirstObject: true,
						EndOfGroup: true,
					})
					if err != nil {
						return
					}
					if w.WriteObject(moqt.Object{}, segment) != nil {
						return
					}
					_ = w.Close()
				}
			})
		}}
		session, _ := fakepath.New(direction, back).Connect(t, moqt.Handler{}, server)
		defer session.Close(wire.NoError, "")
		sub, err := session.Subscribe(ctx, name, moqt.SubscribeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var received atomic.Int64
		running.Go(func() {
			for {
				sg, err := sub.AcceptSubgroup(ctx)
				if err != nil {
					return
				}
				running.Go(func() {
					if _, err := sg.NextObject(); err != nil {
						return
					}
					buf := make([]byte, 64<<10)
					for {
						n, err := sg.Read(buf)
						received.Add(int64(n))
						if err != nil {
							break
						}
					}
					_, _ = sg.NextObject()
				})
			}
		})
		time.Sleep(time.Second)
		before := received.Load()
		time.Sleep(3 * time.Second)
		mbps = float64(received.Load()-before) * 8e-6 / 3
	})
	return mbps
}

// TestReordering checks that BBR and loss detection keep 95 % of the throughput when 1 to 20 % of the
// packets are 5 ms late, which is 42 packets.
func TestReordering(t *testing.T) {
	if !quiccc.Patched() {
		t.Skip("needs quic-go as patched by tools/quicpatch (make build)")
	}
	calm := reorderedMbps(t, 0)
	for _, share := range []float64{0.01, 0.05, 0.2} {
		mbps := reorderedMbps(t, share)
		t.Logf("%.0f %%: %.1f of %.1f Mbit/s", 100*share, mbps, calm)
		if mbps < 0.95*calm {
			t.Errorf("%.0f %% late: %.1f of %.1f Mbit/s", 100*share, mbps, calm)
		}
	}
}
