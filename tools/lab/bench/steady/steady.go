// Package steady has many viewers watch a track through a relay for minutes, and tells whether
// what the relay needs for that grows.
package steady

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/tools/lab/bench/internal/load"
	"holocast/tools/lab/bench/internal/quantile"
)

// The track: 1 Mbit/s.
const (
	FrameBytes = 4167
	FramesPerS = 30
)

// mostGrowth is by how much a figure of the last third of a run may exceed that of the second
// third, as a part of it, and still be flat.
const mostGrowth = 0.05

// Options say what to measure.
type Options struct {
	Quick bool
	Log   io.Writer // progress, a line for each sample; nil for none
	// Relay is the relay's binary. "" means the one beside this program or, in the
	// source tree, one built for this run.
	Relay   string
	Viewers int           // 0 = 200
	Time    time.Duration // 0 = 10 min, or 1 min with Quick
	Every   time.Duration // time of a sample; 0 = a tenth of Time
}

// Result is what a run measured.
type Result struct {
	Viewers int      `json:"viewers"`
	Seconds float64  `json:"seconds"`
	Samples []Sample `json:"samples"`
	Sent    int      `json:"frames_sent"`
	Lost    int      `json:"frames_lost"` // of all viewers together
	// Growth is by how much the last third of the samples exceeds the second third, as a part of
	// it: what comes with the first frames is left out.
	Growth Growth `json:"growth"`
	Flat   bool   `json:"flat"` // all growth is 5 % at most
}

// Sample is what the relay needs, and what viewers have, in some seconds.
type Sample struct {
	Seconds    float64 `json:"seconds"` // from the first frame to the sample's end
	Goroutines float64 `json:"goroutines"`
	HeapMB     float64 `json:"heap_mb"`   // at which garbage is collected next, twice what was reachable; median
	MemoryMB   float64 `json:"memory_mb"` // resident; median
	CPU        float64 `json:"cpu"`       // processors kept busy
	Frames     int     `json:"frames"`    // that arrived, of all viewers
	load.Quantiles
}

// Growth is of each figure of the relay.
type Growth struct {
	Goroutines float64 `json:"goroutines"`
	Heap       float64 `json:"heap"`
	Memory     float64 `json:"memory"`
}

// Run measures.
func Run(ctx context.Context, o Options) (r Result, err error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Viewers == 0 {
		o.Viewers = 200
	}
	if o.Time == 0 {
		o.Time = 10 * time.Minute
		if o.Quick {
			o.Time = time.Minute
		}
	}
	if o.Every == 0 {
		o.Every = o.Time / 10
	}
	relay, err := load.Start(ctx, o.Relay, "--http", "127.0.0.1:0")
	if err != nil {
		return r, err
	}
	defer relay.Stop()
	a := &audience{}
	t := load.NewTrack(relay, "steady")
	leave, err := load.Audience(ctx, relay, []*origin.Track{t}, o.Viewers, func(_ int, r *moqt.SubgroupReader) { a.take(r) })
	if err != nil {
		return r, err
	}
	defer leave()
	filming, stop := context.WithCancel(ctx)
	defer stop()
	began := time.Now()
	filmed := make(chan error, 1)
	go func() {
		filmed <- a.film(filming, func(group uint64, payload []byte) error {
			return t.WriteObject(wire.SubgroupHeader{Group: group, FirstObject: true, EndOfGroup: true}, moqt.Object{}, payload)
		})
	}()
	r.Viewers = o.Viewers
	for time.Since(began) < o.Time {
		s, err := sample(ctx, relay, a, o.Every)
		if err != nil {
			return r, err
		}
		s.Seconds = time.Since(began).Seconds()
		r.Samples = append(r.Samples, s)
		fmt.Fprintf(o.Log, "%.0f s: %.0f goroutines, heap %.1f MB, memory %.1f MB, %.2f processors, %d frames, delay p50 %.1f p99 %.1f ms\n",
			s.Seconds, s.Goroutines, s.HeapMB, s.MemoryMB, s.CPU, s.Frames, s.P50, s.P99)
	}
	r.Seconds = time.Since(began).Seconds()
	stop()
	if err := <-filmed; err != nil {
		return r, err
	}
	r.Sent, r.Lost = a.rest(ctx, o.Viewers)
	r.compare()
	return r, ctx.Err()
}

// sample measures for some time.
func sample(ctx context.Context, relay *load.Relay, a *audience, d time.Duration) (s Sample, err error) {
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
			continue // a busy machine
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
	delays := a.delaysSince()
	s.Frames = len(delays)
	if s.Frames > 0 {
		s.Quantiles = load.Sample{Delays: delays}.Quantiles()
	}
	return s, nil
}

// audience are the viewers, and when the frames were sent that they get.
type audience struct {
	mu      sync.Mutex
	sent    []time.Time // by group
	delays  []time.Duration
	arrived int
}

// film sends the frames until ctx ends.
func (a *audience) film(ctx context.Context, send func(group uint64, payload []byte) error) error {
	payload := make([]byte, FrameBytes)
	tick := time.NewTicker(time.Second / FramesPerS)
	defer tick.Stop()
	for group := uint64(0); ; group++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		a.mu.Lock()
		a.sent = append(a.sent, time.Now())
		a.mu.Unlock()
		if err := send(group, payload); err != nil {
			return err
		}
	}
}

// take takes a viewer's frame.
func (a *audience) take(r *moqt.SubgroupReader) {
	if !load.ReadFrame(r, FrameBytes) {
		return
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.delays = append(a.delays, now.Sub(a.sent[r.Group]))
	a.arrived++
}

// delaysSince are those of the frames since it was called before.
func (a *audience) delaysSince() []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.delays
	a.delays = make([]time.Duration, 0, len(d))
	return d
}

// rest waits for the frames that are under way, 2 s at most, and returns how many were sent and how
// many did not reach their viewer.
func (a *audience) rest(ctx context.Context, viewers int) (sent, lost int) {
	until := time.Now().Add(2 * time.Second)
	for {
		a.mu.Lock()
		sent, lost = len(a.sent), len(a.sent)*viewers-a.arrived
		a.mu.Unlock()
		if lost == 0 || ctx.Err() != nil || time.Now().After(until) {
			return sent, lost
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// compare fills in the growth.
func (r *Result) compare() {
	third := len(r.Samples) / 3
	if third == 0 {
		return
	}
	growth := func(figure func(Sample) float64) float64 {
		mean := func(of []Sample) (sum float64) {
			for _, s := range of {
				sum += figure(s) / float64(len(of))
			}
			return sum
		}
		last := len(r.Samples) - third
		return mean(r.Samples[last:])/mean(r.Samples[last-third:last]) - 1
	}
	r.Growth = Growth{
		Goroutines: growth(func(s Sample) float64 { return s.Goroutines }),
		Heap:       growth(func(s Sample) float64 { return s.HeapMB }),
		Memory:     growth(func(s Sample) float64 { return s.MemoryMB }),
	}
	r.Flat = max(r.Growth.Goroutines, r.Growth.Heap, r.Growth.Memory) <= mostGrowth
}

// Markdown is the table of the result.
func (r Result) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d viewers of a track of %.0f Mbit/s, %d frames a second, for %.0f s; publisher, relay and viewers on one machine. ", r.Viewers, FrameBytes*FramesPerS*8/1e6, FramesPerS, r.Seconds)
	fmt.Fprintf(&b, "Heap is that at which garbage is collected next, twice what was reachable; it and memory are the median of a sample, goroutines the most of it. %d of %d frames did not arrive.\n\n", r.Lost, r.Sent*r.Viewers)
	flat := "Flat"
	if !r.Flat {
		flat = "**Not flat**"
	}
	fmt.Fprintf(&b, "%s: from the second third of the time to the last one goroutines grow by %.1f %%, the heap by %.1f %%, memory by %.1f %%; up to %.0f %% is flat.\n\n", flat, 100*r.Growth.Goroutines, 100*r.Growth.Heap, 100*r.Growth.Memory, 100*mostGrowth)
	fmt.Fprintf(&b, "| s | goroutines | heap MB | memory MB | processors | frames | delay p50 / p99 ms |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, s := range r.Samples {
		fmt.Fprintf(&b, "| %.0f | %.0f | %.1f | %.1f | %.2f | %d | %.1f / %.1f |\n", s.Seconds, s.Goroutines, s.HeapMB, s.MemoryMB, s.CPU, s.Frames, s.P50, s.P99)
	}
	return b.String()
}
