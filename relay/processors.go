package main

import (
	"context"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// loadEvery is the interval between load measurements.
	loadEvery = 100 * time.Millisecond
	// looks is the number of measurements averaged before using fewer processors.
	looks = 20
	// headroom is the factor by which the peak load may exceed the average, as frames arrive in
	// bursts. A single measurement uses half this factor.
	headroom = 8
)

// processors chooses GOMAXPROCS. With more processors than the load needs, each wake-up of a goroutine
// wakes a thread on another processor, usually without work for it. This cost a fifth of the relay's
// CPU time with four viewers of one camera (docs/adr/0009-send-path.md).
type processors struct {
	most, now int
	sum       float64 // of the last n loads
	n         int
}

// look records the load since the last measurement, as a number of processors, and returns the number
// of processors to use.
func (p *processors) look(load float64) int {
	p.now = max(p.now, min(1+int(load*headroom/2), p.most))
	p.sum += load
	if p.n++; p.n == looks {
		p.now = min(1+int(p.sum/looks*headroom), p.most)
		p.sum, p.n = 0, 0
	}
	return p.now
}

// fitProcessors adapts GOMAXPROCS to the load until ctx is done, unless the environment variable
// GOMAXPROCS is set.
func fitProcessors(ctx context.Context) {
	p := processors{most: runtime.GOMAXPROCS(0), now: runtime.GOMAXPROCS(0)}
	if os.Getenv("GOMAXPROCS") != "" || p.most == 1 {
		return
	}
	defer runtime.SetDefaultGOMAXPROCS()
	tick := time.NewTicker(loadEvery)
	defer tick.Stop()
	used, at := processorTime(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		was, now := p.now, time.Now()
		u := processorTime()
		load := float64(u-used) / float64(max(now.Sub(at), loadEvery/2))
		used, at = u, now
		if n := p.look(load); n != was {
			runtime.GOMAXPROCS(n)
		}
	}
}

// processorTime returns the user and system time of the process.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
