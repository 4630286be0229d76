// Package path measures an object's path from publisher to viewers through the
// relay: when its first byte arrives while the rest is still being made, and how
// much the relay fans out, at what cost of processor time and delay. The relay is
// the program that users run; publisher and viewers are in this process, on the
// same machine, and take their share of it. Frames in datagrams are compared with frames
// on streams over an emulated path that loses packets.
package path

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/tools/lab/bench/internal/load"
)

// What is sent.
const (
	FrameBytes   = 376_000 // a real NFOV frame of 238 k points in layout A
	FramesPerS   = 30
	trickleBytes = 1_000_000
	trickleTime  = 150 * time.Millisecond
	trickleTo    = 5 // viewers
)

// Parts of the benchmark.
const (
	relayPart    = "relay"
	datagramPart = "datagram"
)

// Parts lists the parts of the benchmark.
func Parts() []string { return []string{relayPart, datagramPart} }

// Options say what to measure.
type Options struct {
	Parts []string  // of Parts; nil = all, datagrams only where there are network namespaces
	Quick bool      // under a minute
	Log   io.Writer // progress, a line each; nil for none
	// Relay is the relay's binary. "" means the one beside this program or, in the
	// source tree, one built for this run.
	Relay string
	// Viewers are the fan-outs to measure; nil means 1, 10 and 50.
	Viewers []int
}

// Result is what a run measured.
type Result struct {
	// FirstByteMs is from the moment the publisher hands over the first bytes of an
	// object of 1 MB that takes 150 ms to make, to the moment a viewer has its first
	// byte; median over viewers and objects, milliseconds. FirstByteP99Ms is the
	// 99th percentile, DirectFirstByteMs the median without a relay.
	FirstByteMs       float64        `json:"first_byte_ms"`
	FirstByteP99Ms    float64        `json:"first_byte_p99_ms"`
	DirectFirstByteMs float64        `json:"direct_first_byte_ms"`
	FrameBytes        int            `json:"frame_bytes"`
	Fanout            map[int]Fanout `json:"fanout"` // by number of viewers
	Datagrams         []DatagramRun  `json:"datagrams,omitempty"`
	DatagramsBegan    time.Time      `json:"datagrams_began,omitzero"`
}

// With adds to the result of some parts what an earlier one has of the others.
func (r Result) With(earlier []byte) (interface{ Markdown() string }, error) {
	var old Result
	if err := json.Unmarshal(earlier, &old); err != nil {
		return nil, err
	}
	if len(r.Fanout) == 0 {
		old.Datagrams, old.DatagramsBegan = r.Datagrams, r.DatagramsBegan
		return old, nil
	}
	if len(r.Datagrams) == 0 {
		r.Datagrams, r.DatagramsBegan = old.Datagrams, old.DatagramsBegan
	}
	return r, nil
}

// Measured returns the parts that the result has.
func (r Result) Measured() (parts []string) {
	if len(r.Fanout) > 0 {
		parts = append(parts, relayPart)
	}
	if len(r.Datagrams) > 0 {
		parts = append(parts, datagramPart)
	}
	return parts
}

// Fanout is one number of viewers.
type Fanout struct {
	MbitPerS    float64 `json:"mbit_per_s"`     // delivered to all viewers
	CPUSPerGbit float64 `json:"cpu_s_per_gbit"` // of the relay's process
	// AddedDelay is the delay of whole frames through the relay less that of the
	// same frames sent straight to one viewer, at the same rate.
	AddedDelay load.Quantiles `json:"added_delay_ms"`
	Delay      load.Quantiles `json:"delay_ms"`        // through the relay
	Direct     load.Quantiles `json:"direct_delay_ms"` // to one viewer, without it
	// DirectAll is the delay when the publisher itself serves all viewers.
	DirectAll    load.Quantiles `json:"direct_to_all_delay_ms"`
	FramesPerS   float64        `json:"frames_per_s"`        // of the run: 30, or what the machine carries
	CapacityMbit float64        `json:"capacity_mbit_per_s"` // when each frame follows the last at once
	Lost         int            `json:"frames_lost"`         // of all viewers together
}

// Run measures.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	for _, part := range o.Parts {
		if !slices.Contains(Parts(), part) {
			return Result{}, fmt.Errorf("no part %q; there are %s", part, strings.Join(Parts(), ", "))
		}
	}
	r := Result{FrameBytes: FrameBytes, Fanout: map[int]Fanout{}}
	if len(o.Parts) == 0 || slices.Contains(o.Parts, relayPart) {
		if err := r.measureRelay(ctx, o); err != nil {
			return r, err
		}
	}
	if len(o.Parts) == 0 || slices.Contains(o.Parts, datagramPart) {
		err := canMeasureDatagrams()
		if err != nil && len(o.Parts) == 0 {
			fmt.Fprintf(o.Log, "frames in datagrams are left out: %v\n", err)
			return r, nil
		}
		if err == nil {
			r.DatagramsBegan = time.Now()
			r.Datagrams, err = datagrams(ctx, o)
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// measureRelay measures first bytes and fan-out.
func (r *Result) measureRelay(ctx context.Context, o Options) error {
	objects, warm, paced := 40, 5*time.Second, 12*time.Second
	if o.Quick {
		objects, warm, paced = 8, 1500*time.Millisecond, 3*time.Second
	}
	relay, err := load.Start(ctx, o.Relay)
	if err != nil {
		return err
	}
	defer relay.Stop()
	direct, err := load.Listen()
	if err != nil {
		return err
	}
	defer func() { _ = direct.Close() }()

	first, err := firstBytes(ctx, direct, objects)
	if err != nil {
		return fmt.Errorf("first byte without a relay: %w", err)
	}
	r.DirectFirstByteMs = load.Quantile(first, 0.5)
	if first, err = firstBytes(ctx, relay, objects); err != nil {
		return fmt.Errorf("first byte: %w", err)
	}
	r.FirstByteMs, r.FirstByteP99Ms = load.Quantile(first, 0.5), load.Quantile(first, 0.99)
	fmt.Fprintf(o.Log, "first byte after %.2f ms (without relay %.2f ms)\n", r.FirstByteMs, r.DirectFirstByteMs)
	viewers := o.Viewers
	if viewers == nil {
		viewers = []int{1, 10, 50}
	}
	for _, n := range viewers {
		f, err := fanOut(ctx, relay, direct, n, warm, paced)
		if err != nil {
			return fmt.Errorf("fan-out to %d: %w", n, err)
		}
		r.Fanout[n] = f
		fmt.Fprintf(o.Log, "1→%d: %.0f Mbit/s at %.1f frames/s, %.2f CPU s/Gbit, added delay p50 %.1f p99 %.1f ms\n",
			n, f.MbitPerS, f.FramesPerS, f.CPUSPerGbit, f.AddedDelay.P50, f.AddedDelay.P99)
	}
	return nil
}

// fanOut measures n viewers. It looks for the rate first: how fast frames go when
// each follows the last, and of that two thirds, so that queues stay empty.
func fanOut(ctx context.Context, relay *load.Relay, direct *load.Direct, n int, warm, paced time.Duration) (f Fanout, err error) {
	full, err := load.Transfer(ctx, relay, load.Frames{Viewers: n, Rate: 0, Bytes: FrameBytes, Time: warm})
	if err != nil {
		return f, err
	}
	f.CapacityMbit = full.MbitPerS()
	rate := min(FramesPerS, full.FramesPerS()*2/3)
	var run load.Sample
	for range 4 {
		before, err := relay.CPU()
		if err != nil {
			return f, err
		}
		if run, err = load.Transfer(ctx, relay, load.Frames{Viewers: n, Rate: rate, Bytes: FrameBytes, Time: paced}); err != nil {
			return f, err
		}
		after, err := relay.CPU()
		if err != nil {
			return f, err
		}
		f.CPUSPerGbit = (after - before).Seconds() / (run.Bits() / 1e9)
		if run.Lost == 0 {
			break
		}
		rate *= 0.75
	}
	one, err := load.Transfer(ctx, direct, load.Frames{Viewers: 1, Rate: rate, Bytes: FrameBytes, Time: paced / 2})
	if err != nil {
		return f, err
	}
	all, err := load.Transfer(ctx, direct, load.Frames{Viewers: n, Rate: rate, Bytes: FrameBytes, Time: paced / 2})
	if err != nil {
		return f, err
	}
	f.MbitPerS, f.FramesPerS, f.Lost = run.MbitPerS(), rate, run.Lost
	f.Delay, f.Direct, f.DirectAll = run.Quantiles(), one.Quantiles(), all.Quantiles()
	f.AddedDelay = load.Quantiles{P50: f.Delay.P50 - f.Direct.P50, P99: f.Delay.P99 - f.Direct.P99}
	return f, nil
}

// firstBytes sends objects that take a while to be made and returns how long the
// first byte of each took to each viewer.
func firstBytes(ctx context.Context, s load.Server, objects int) ([]time.Duration, error) {
	t := load.NewTrack(s, "trickle")
	type event struct {
		group uint64
		at    time.Time
	}
	events := make(chan event, objects*trickleTo)
	complete := make(chan struct{}, objects*trickleTo)
	stop, err := load.Audience(ctx, s, []*origin.Track{t}, trickleTo, func(_ int, r *moqt.SubgroupReader) {
		if _, err := r.NextObject(); err != nil {
			return
		}
		var one [1]byte
		if _, err := io.ReadFull(r, one[:]); err != nil {
			return
		}
		at := time.Now()
		if n, err := io.Copy(io.Discard, r); err != nil || n != trickleBytes-1 {
			return
		}
		events <- event{r.Group, at}
		complete <- struct{}{}
	})
	if err != nil {
		return nil, err
	}
	defer stop()
	sent := map[uint64]time.Time{}
	for group := range uint64(objects) {
		if sent[group], err = trickle(ctx, t, group); err != nil {
			return nil, err
		}
		for range trickleTo {
			select {
			case <-complete:
			case <-time.After(10 * time.Second):
				return nil, fmt.Errorf("object %d did not arrive", group)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	var d []time.Duration
	for range objects * trickleTo {
		e := <-events
		d = append(d, e.at.Sub(sent[e.group]))
	}
	return d, nil
}

// trickle makes one object in pieces and says when its first bytes left.
func trickle(ctx context.Context, t *origin.Track, group uint64) (began time.Time, err error) {
	f, err := t.OpenSubgroup(wire.SubgroupHeader{Group: group, FirstObject: true, EndOfGroup: true})
	if err != nil {
		return began, err
	}
	header, err := (&wire.ObjectEncoder{}).Append(nil, wire.Object{PayloadLength: trickleBytes})
	if err != nil {
		return began, err
	}
	const piece = trickleBytes / 150
	tick := time.NewTicker(trickleTime / 150)
	defer tick.Stop()
	zeros := make([]byte, piece)
	began = time.Now()
	b := append(header, zeros...)
	for left := trickleBytes - piece; ; {
		for len(b) > 0 {
			n := copy(f.Space(), b)
			b = b[n:]
			if err := f.Commit(n); err != nil {
				return began, err
			}
		}
		if left == 0 {
			return began, f.Close()
		}
		b = zeros[:min(left, piece)]
		left -= len(b)
		select {
		case <-tick.C:
		case <-ctx.Done():
			f.Reset(wire.StreamCancelled)
			return began, ctx.Err()
		}
	}
}

// Markdown is the table of the result.
func (r Result) Markdown() string { return r.relayMarkdown() + r.datagramMarkdown() }

func (r Result) relayMarkdown() string {
	var b strings.Builder
	if len(r.Fanout) == 0 {
		return ""
	}
	fmt.Fprintf(&b, "Objects of %d kB made over %d ms, to %d viewers: first byte after **%.2f ms** (median; p99 %.2f ms; without relay %.2f ms).\n\n",
		trickleBytes/1000, trickleTime.Milliseconds(), trickleTo, r.FirstByteMs, r.FirstByteP99Ms, r.DirectFirstByteMs)
	fmt.Fprintf(&b, "Frames of %d kB, publisher, relay and viewers on one machine. Added delay is against the same frames sent straight to one viewer.\n\n", r.FrameBytes/1000)
	fmt.Fprintf(&b, "| viewers | frames/s | Mbit/s | relay CPU s/Gbit | added delay p50 / p99 ms | delay p50 / p99 ms | publisher serving all itself ms | most Mbit/s | lost |\n")
	fmt.Fprintf(&b, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, n := range slices.Sorted(maps.Keys(r.Fanout)) {
		f := r.Fanout[n]
		fmt.Fprintf(&b, "| %d | %.1f | %.0f | %.2f | %.1f / %.1f | %.1f / %.1f | %.1f / %.1f | %.0f | %d |\n", n, f.FramesPerS, f.MbitPerS, f.CPUSPerGbit,
			f.AddedDelay.P50, f.AddedDelay.P99, f.Delay.P50, f.Delay.P99, f.DirectAll.P50, f.DirectAll.P99, f.CapacityMbit, f.Lost)
	}
	return b.String()
}
