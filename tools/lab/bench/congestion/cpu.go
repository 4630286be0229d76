//go:build linux

package congestion

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"holocast/internal/pause"
	"holocast/tools/lab/bench/internal/quantile"
)

// cpuFor returns the CPU seconds per gigabit of both ends of a loopback connection that sends as
// fast as it can.
func cpuFor(ctx context.Context, transport string, d time.Duration) (float64, error) {
	f := &flow{transport: transport}
	if err := f.openQUIC(ctx, here, here, netip.MustParseAddrPort("127.0.0.1:0")); err != nil {
		return 0, err
	}
	defer f.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var sending sync.WaitGroup
	var failed error
	sending.Go(func() { failed = f.runBulk(ctx) })
	_ = pause.For(ctx, d/4)
	spent, received := processorTime(), f.received.Load()
	_ = pause.For(ctx, d)
	spent, received = processorTime()-spent, f.received.Load()-received
	cancel()
	sending.Wait()
	if failed != nil {
		return 0, failed
	}
	if received == 0 {
		return 0, fmt.Errorf("%s transferred nothing over loopback", transport)
	}
	return spent.Seconds() / (float64(received) * 8e-9), nil
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail for RUSAGE_SELF
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cpu measures our default controller and quic-go's own in alternation.
func cpu(ctx context.Context, turns int, d time.Duration) (*CPU, error) {
	seconds := map[string][]float64{}
	for range turns {
		for _, transport := range []string{"bbr", stock} {
			s, err := cpuFor(ctx, transport, d)
			if err != nil {
				return nil, fmt.Errorf("measure CPU time: %w", err)
			}
			seconds[transport] = append(seconds[transport], s)
		}
	}
	return &CPU{BBR: quantile.Of(seconds["bbr"], 0.5), Stock: quantile.Of(seconds[stock], 0.5), Turns: turns}, nil
}
