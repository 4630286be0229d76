package main

import (
	"context"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// loadEvery is how often the relay looks how busy it is.
	loadEvery = 100 * time.Millisecond
	// looks are averaged before it uses fewer processors.
	looks = 20
	// headroom is how many times faster than on average work may have to be done: frames come
	// all at once. For as short as between two looks it is half.
	headroom = 8
)

// processors is how many processors Go's scheduler may use. With more than there is work for, each
// wake-up of a goroutine wakes a thread on another processor that mostly finds nothing to do: a
// fifth of the relay's processor time with four viewers of a camera (docs/adr/0009-send-path.md).
type processors struct {
	most, now int
	sum       float64 // of the loads of n looks
	n         int
}

// look takes the load since the last look, in processors, and returns how many to use.
func (p *processors) look(load float64) int {
	p.now = max(p.now, min(1+int(load*headroom/2), p.most))
	p.sum += load
	if p.n++; p.n == looks {
		p.now = min(1+int(p.sum/looks*headroom), p.most)
		p.sum, p.n = 0, 0
	}
	return p.now
}

// fitProcessors has the process use as many processors as its load needs, until ctx ends. The
// environment variable GOMAXPROCS sets a number instead.
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

// processorTime is what the process has used, user and system.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
