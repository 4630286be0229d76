package relay

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/origin"
	"holocast/tools/lab/bench/internal/load"
	"holocast/tools/lab/bench/internal/quantile"
)

// soakFrameBytes is the frame size for a track of 1 Mbit/s.
const soakFrameBytes = 4167

// maxGrowth is the largest relative growth, from the second to the last third of a run, that still
// counts as flat.
const maxGrowth = 0.05

// soakOptions shortens a soak in tests.
type soakOptions struct {
	viewers  int           // 0 = 200
	time     time.Duration // 0 = 10 min, or 1 min with Quick
	interval time.Duration // between samples; 0 = a tenth of time
}

// Soak is the relay's resource use while many viewers watch one track for minutes.
type Soak struct {
	Began   time.Time    `json:"began"`
	Viewers int          `json:"viewers"`
	Seconds float64      `json:"seconds"`
	Samples []SoakSample `json:"samples"`
	Sent    int          `json:"frames_sent"`
	Lost    int          `json:"frames_lost"` // over all viewers
	// Growth is the relative growth from the second to the last third of the samples. The first
	// third is the warm-up.
	Growth Growth `json:"growth"`
	Flat   bool   `json:"flat"` // no growth above 5 %
}

// SoakSample is one interval of a soak.
type SoakSample struct {
	Seconds    float64 `json:"seconds"`    // end of the interval, since the first frame
	Goroutines float64 `json:"goroutines"` // maximum
	HeapMB     float64 `json:"heap_mb"`    // next garbage collection's goal, twice the reachable heap; median
	MemoryMB   float64 `json:"memory_mb"`  // resident; median
	CPU        float64 `json:"cpu"`        // busy processors
	Frames     int     `json:"frames"`     // received by all viewers
	load.Quantiles
}

// Growth is the relative growth of the relay's resources.
type Growth struct {
	Goroutines float64 `json:"goroutines"`
	Heap       float64 `json:"heap"`
	Memory     float64 `json:"memory"`
}

func soak(ctx context.Context, o Options) (*Soak, error) {
	viewers, duration, interval := o.soak.viewers, o.soak.time, o.soak.interval
	if viewers == 0 {
		viewers = 200
	}
	if duration == 0 {
		duration = 10 * time.Minute
		if o.Quick {
			duration = time.Minute
		}
	}
	if interval == 0 {
		interval = duration / 10
	}
	relay, err := load.Start(ctx, o.Relay, "--http", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer relay.Stop()
	a := &arrivals{}
	t := load.NewTrack(relay, "soak")
	leave, err := load.Audience(ctx, relay, []*origin.Track{t}, viewers,
		func(_ int, r *moqt.SubgroupReader) { a.receive(r) })
	if err != nil {
		return nil, err
	}
	defer leave()
	sending, stop := context.WithCancel(ctx)
	defer stop()
	r := &Soak{Began: time.Now(), Viewers: viewers}
	done := make(chan error, 1)
	go func() { done <- load.Feed(sending, t, soakFrameBytes, FramesPerS, a.sending) }()
	for time.Since(r.Began) < duration {
		s, err := sample(ctx, relay, a, interval)
		if err != nil {
			return nil, err
		}
		s.Seconds = time.Since(r.Began).Seconds()
		r.Samples = append(r.Samples, s)
		fmt.Fprintf(o.Log, "%.0f s: %.0f goroutines, heap %.1f MB, memory %.1f MB, %.2f processors, %d frames, "+
			"delay p50 %.1f p99 %.1f ms\n",
			s.Seconds, s.Goroutines, s.HeapMB, s.MemoryMB, s.CPU, s.Frames, s.P50, s.P99)
	}
	r.Seconds = time.Since(r.Began).Seconds()
	stop()
	if err := <-done; err != nil {
		return nil, err
	}
	r.Sent, r.Lost = a.drain(ctx, viewers)
	r.compare()
	return r, ctx.Err()
}

// sample measures for d.
func sample(ctx context.Context, relay *load.Relay, a *arrivals, d time.Duration) (s SoakSample, err error) {
	before, err := relay.CPU()
	if err != nil {
		return s, err
	}
	began := time.Now()
	var heaps, memories []float64
	tick := time.NewTicker(min(time.Second, d/4))
	defer tick.Stop()
	for time.Since(began) < d {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return s, ctx.Err()
		}
		memory, err := relay.Memory()
		if err != nil {
			return s, err
		}
		memories = append(memories, float64(memory)/1e6)
		m := relay.Metrics(ctx)
		if m == nil {
			continue // timed out on a busy machine
		}
		heaps = append(heaps, m["go_memstats_next_gc_bytes"]/1e6)
		s.Goroutines = max(s.Goroutines, m["go_goroutines"])
	}
	after, err := relay.CPU()
	if err != nil {
		return s, err
	}
	s.HeapMB, s.MemoryMB = quantile.Of(heaps, 0.5), quantile.Of(memories, 0.5)
	s.CPU = (after - before).Seconds() / time.Since(began).Seconds()
	delays := a.take()
	s.Frames = len(delays)
	if s.Frames > 0 {
		s.Quantiles = load.Sample{Delays: delays}.Quantiles()
	}
	return s, nil
}

// arrivals collects the delays of frames at all viewers.
type arrivals struct {
	mu       sync.Mutex
	sent     []time.Time // by group
	delays   []time.Duration
	received int
}

func (a *arrivals) sending(uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent = append(a.sent, time.Now())
}

func (a *arrivals) receive(r *moqt.SubgroupReader) {
	if !load.ReadFrame(r, soakFrameBytes) {
		return
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.delays = append(a.delays, now.Sub(a.sent[r.Group]))
	a.received++
}

// take returns the delays recorded since the last call.
func (a *arrivals) take() []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.delays
	a.delays = make([]time.Duration, 0, len(d))
	return d
}

// drain waits up to 2 s for frames in flight. It returns the number of frames sent, and the number
// lost, summed over all viewers.
func (a *arrivals) drain(ctx context.Context, viewers int) (sent, lost int) {
	until := time.Now().Add(2 * time.Second)
	for {
		a.mu.Lock()
		sent, lost = len(a.sent), len(a.sent)*viewers-a.received
		a.mu.Unlock()
		if lost == 0 || ctx.Err() != nil || time.Now().After(until) {
			return sent, lost
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// compare computes Growth and Flat.
func (r *Soak) compare() {
	third := len(r.Samples) / 3
	if third == 0 {
		return
	}
	growth := func(figure func(SoakSample) float64) float64 {
		mean := func(of []SoakSample) (sum float64) {
			for _, s := range of {
				sum += figure(s) / float64(len(of))
			}
			return sum
		}
		last := len(r.Samples) - third
		return mean(r.Samples[last:])/mean(r.Samples[last-third:last]) - 1
	}
	r.Growth = Growth{
		Goroutines: growth(func(s SoakSample) float64 { return s.Goroutines }),
		Heap:       growth(func(s SoakSample) float64 { return s.HeapMB }),
		Memory:     growth(func(s SoakSample) float64 { return s.MemoryMB }),
	}
	r.Flat = max(r.Growth.Goroutines, r.Growth.Heap, r.Growth.Memory) <= maxGrowth
}

func (r *Soak) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d viewers of a %.0f Mbit/s track, %d frames a second for %.0f s; publisher, relay and viewers "+
		"on one machine. Heap is the next garbage collection's goal, twice the reachable heap. Heap and memory are "+
		"medians of a sample, goroutines its maximum. %d of %d frames were lost.\n\n",
		r.Viewers, soakFrameBytes*FramesPerS*8/1e6, FramesPerS, r.Seconds, r.Lost, r.Sent*r.Viewers)
	flat := "Flat"
	if !r.Flat {
		flat = "**Not flat**"
	}
	fmt.Fprintf(&b, "%s: from the second to the last third, goroutines grow by %.1f %%, heap by %.1f %%, memory by "+
		"%.1f %% (limit %.0f %%).\n\n",
		flat, 100*r.Growth.Goroutines, 100*r.Growth.Heap, 100*r.Growth.Memory, 100*maxGrowth)
	b.WriteString("| s | goroutines | heap MB | memory MB | processors | frames | delay p50 / p99 ms |\n" +
		"| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, s := range r.Samples {
		fmt.Fprintf(&b, "| %.0f | %.0f | %.1f | %.1f | %.2f | %d | %.1f / %.1f |\n",
			s.Seconds, s.Goroutines, s.HeapMB, s.MemoryMB, s.CPU, s.Frames, s.P50, s.P99)
	}
	return b.String()
}
