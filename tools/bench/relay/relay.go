// Package relay loads a relay with a camera's frames and more and more viewers, and, where
// there is one, another implementation's relay in turns with it: what a core carries, what
// delay the relay adds, how soon a newcomer has a frame, and what a session costs.
package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/tools/bench/internal/load"
	"holocast/tools/bench/internal/quantile"
)

// What is sent: one camera at 71 Mbit/s.
const (
	FrameBytes = 296_000
	FramesPerS = 30
)

// PeerName is the program that Options.Peer stands for when it is "auto".
const PeerName = "moq-relay-ietf"

// Options say what to measure.
type Options struct {
	Quick bool
	Log   io.Writer // progress, a line each; nil for none
	// Relay is the relay's binary. "" means the one beside this program or, in the
	// source tree, one built for this run.
	Relay string
	// Peer is the binary of a moq-relay-ietf to alternate with; "auto" means the one in
	// PATH or in build/peers/bin, "" none.
	Peer    string
	Viewers []int // fan-outs; nil means 1, 4, 16 and 50
	// Sessions are how many idle sessions tell the memory of one; 0 means 2,000.
	Sessions int
}

// Result is what a run measured.
type Result struct {
	FrameBytes int             `json:"frame_bytes"`
	Turns      int             `json:"turns"` // figures are medians of as many
	Ours       Contender       `json:"ours"`
	Peer       *Contender      `json:"peer,omitempty"`
	Rate       map[int]float64 `json:"frames_per_s"` // offered, by number of viewers
	// ThroughputPerCoreRatio is ours to the peer's, the least of all fan-outs;
	// P99DelayRatio is that of the added delay, the greatest of all. 0 without a peer.
	ThroughputPerCoreRatio float64 `json:"throughput_per_core_ratio,omitempty"`
	P99DelayRatio          float64 `json:"p99_delay_ratio,omitempty"`
}

// Contender is one relay.
type Contender struct {
	Name   string         `json:"name"`
	Fanout map[int]Fanout `json:"fanout"` // by number of viewers
	// FirstObjectMs is from a viewer's first packet to its first object of a track that
	// others watch, milliseconds.
	FirstObjectMs float64 `json:"first_object_ms"`
	SessionKB     float64 `json:"session_kb"` // memory of an idle session
	MemoryMB      float64 `json:"memory_mb"`  // after all fan-outs
}

// Fanout is one number of viewers.
type Fanout struct {
	MbitPerS     float64        `json:"mbit_per_s"`          // delivered to all viewers at the offered rate
	CPUSPerGbit  float64        `json:"cpu_s_per_gbit"`      // of the relay's process
	GbitPerS     float64        `json:"gbit_per_core_s"`     // throughput of a core that does nothing else
	Delay        load.Quantiles `json:"delay_ms"`            // of whole frames
	AddedDelay   load.Quantiles `json:"added_delay_ms"`      // less that of the same frames without a relay
	CapacityMbit float64        `json:"capacity_mbit_per_s"` // when each frame follows the last at once
	Lost         int            `json:"frames_lost"`         // of all turns
}

// Run measures.
func Run(ctx context.Context, o Options) (r Result, err error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	turns, warm, paced, newcomers := 3, 4*time.Second, 8*time.Second, 10
	viewers, sessions := []int{1, 4, 16, 50}, 2000
	if o.Quick {
		turns, warm, paced, newcomers = 1, time.Second, 3*time.Second, 5
		viewers, sessions = []int{1, 4, 16}, 200
	}
	if o.Viewers != nil {
		viewers = o.Viewers
	}
	if o.Sessions != 0 {
		sessions = o.Sessions
	}
	direct, err := load.Listen()
	if err != nil {
		return r, err
	}
	defer func() { _ = direct.Close() }()
	ours, err := load.Start(ctx, o.Relay)
	if err != nil {
		return r, err
	}
	defer ours.Stop()
	relays := []*load.Relay{ours}
	r = Result{FrameBytes: FrameBytes, Turns: turns, Ours: Contender{Name: "holocast relay", Fanout: map[int]Fanout{}}, Rate: map[int]float64{}}
	contenders := []*Contender{&r.Ours}
	if o.Peer != "" {
		path, err := findPeer(o.Peer)
		if err != nil {
			return r, err
		}
		peer, err := load.StartPeer(path)
		if err != nil {
			return r, err
		}
		defer peer.Stop()
		relays = append(relays, peer)
		r.Peer = &Contender{Name: PeerName, Fanout: map[int]Fanout{}}
		contenders = append(contenders, r.Peer)
	}
	for i, relay := range relays {
		c := contenders[i]
		if c.SessionKB, err = sessionMemory(ctx, relay, sessions); err != nil {
			return r, fmt.Errorf("%s: idle sessions: %w", c.Name, err)
		}
		if c.FirstObjectMs, err = firstObject(ctx, relay, newcomers); err != nil {
			return r, fmt.Errorf("%s: first object: %w", c.Name, err)
		}
		fmt.Fprintf(o.Log, "%s: idle session %.0f kB, first object after %.1f ms\n", c.Name, c.SessionKB, c.FirstObjectMs)
	}
	for _, n := range viewers {
		// The rate that all carry without queues: a camera's, or two thirds of the most.
		rate := float64(FramesPerS)
		most := make([][]float64, len(relays))
		for i, relay := range relays {
			s, err := load.Transfer(ctx, relay, load.Frames{Viewers: n, Bytes: FrameBytes, Time: warm})
			if err != nil {
				return r, fmt.Errorf("%s, %d viewers: %w", contenders[i].Name, n, err)
			}
			most[i] = append(most[i], s.MbitPerS())
			rate = min(rate, s.FramesPerS()*2/3)
		}
		r.Rate[n] = rate
		runs := make([][]Fanout, len(relays))
		for range turns {
			frames := load.Frames{Viewers: n, Bytes: FrameBytes, Rate: rate, Time: paced}
			alone := frames
			alone.Viewers = 1
			without, err := load.Transfer(ctx, direct, alone)
			if err != nil {
				return r, err
			}
			for i, relay := range relays {
				f, err := turn(ctx, relay, frames, without.Quantiles())
				if err != nil {
					return r, fmt.Errorf("%s, %d viewers: %w", contenders[i].Name, n, err)
				}
				runs[i] = append(runs[i], f)
				if len(most[i]) < turns {
					s, err := load.Transfer(ctx, relay, load.Frames{Viewers: n, Bytes: FrameBytes, Time: warm})
					if err != nil {
						return r, fmt.Errorf("%s, %d viewers: %w", contenders[i].Name, n, err)
					}
					most[i] = append(most[i], s.MbitPerS())
				}
			}
		}
		for i, c := range contenders {
			f := middle(runs[i])
			f.CapacityMbit = quantile.Of(most[i], 0.5)
			c.Fanout[n] = f
			fmt.Fprintf(o.Log, "%s 1→%d: %.1f frames/s, %.2f CPU s/Gbit, added delay p50 %.1f p99 %.1f ms, at most %.0f Mbit/s\n",
				c.Name, n, rate, f.CPUSPerGbit, f.AddedDelay.P50, f.AddedDelay.P99, f.CapacityMbit)
		}
	}
	for i, relay := range relays {
		bytes, err := relay.Memory()
		if err != nil {
			return r, err
		}
		contenders[i].MemoryMB = float64(bytes) / 1e6
	}
	r.compare()
	return r, nil
}

// turn is one transfer at a rate.
func turn(ctx context.Context, relay *load.Relay, frames load.Frames, without load.Quantiles) (f Fanout, err error) {
	before, err := relay.CPU()
	if err != nil {
		return f, err
	}
	s, err := load.Transfer(ctx, relay, frames)
	if err != nil {
		return f, err
	}
	after, err := relay.CPU()
	if err != nil {
		return f, err
	}
	if len(s.Delays) == 0 {
		return f, errors.New("no frame arrived")
	}
	f = Fanout{MbitPerS: s.MbitPerS(), CPUSPerGbit: (after - before).Seconds() / (s.Bits() / 1e9), Delay: s.Quantiles(), Lost: s.Lost}
	f.GbitPerS = 1 / f.CPUSPerGbit
	f.AddedDelay = load.Quantiles{P50: f.Delay.P50 - without.P50, P99: f.Delay.P99 - without.P99}
	return f, nil
}

// middle has the median of each figure, and all losses.
func middle(runs []Fanout) (f Fanout) {
	of := func(figure func(Fanout) float64) float64 {
		var v []float64
		for _, r := range runs {
			v = append(v, figure(r))
		}
		return quantile.Of(v, 0.5)
	}
	for _, r := range runs {
		f.Lost += r.Lost
	}
	f.MbitPerS = of(func(r Fanout) float64 { return r.MbitPerS })
	f.CPUSPerGbit = of(func(r Fanout) float64 { return r.CPUSPerGbit })
	f.GbitPerS = 1 / f.CPUSPerGbit
	f.Delay.P50, f.Delay.P99 = of(func(r Fanout) float64 { return r.Delay.P50 }), of(func(r Fanout) float64 { return r.Delay.P99 })
	f.AddedDelay.P50, f.AddedDelay.P99 = of(func(r Fanout) float64 { return r.AddedDelay.P50 }), of(func(r Fanout) float64 { return r.AddedDelay.P99 })
	return f
}

func (r *Result) compare() {
	if r.Peer == nil {
		return
	}
	r.ThroughputPerCoreRatio = math.Inf(1)
	for n, ours := range r.Ours.Fanout {
		theirs := r.Peer.Fanout[n]
		r.ThroughputPerCoreRatio = min(r.ThroughputPerCoreRatio, ours.GbitPerS/theirs.GbitPerS)
		r.P99DelayRatio = max(r.P99DelayRatio, ours.AddedDelay.P99/theirs.AddedDelay.P99)
	}
}

// findPeer is the binary that Options.Peer means.
func findPeer(path string) (string, error) {
	if path != "auto" {
		return path, nil
	}
	if found, err := exec.LookPath(PeerName); err == nil {
		return found, nil
	}
	found, err := exec.LookPath(filepath.Join("build", "peers", "bin", PeerName))
	if err != nil {
		return "", fmt.Errorf("%s is neither in PATH nor in build/peers/bin: cargo install --locked --root build/peers %s", PeerName, PeerName)
	}
	return found, nil
}

// sessionMemory is what the relay's memory grows by for each idle session, kB.
func sessionMemory(ctx context.Context, relay *load.Relay, n int) (float64, error) {
	before, err := relay.Memory()
	if err != nil {
		return 0, err
	}
	var sessions []*moqt.Session
	defer func() {
		for _, s := range sessions {
			s.Close(wire.NoError, "")
		}
	}()
	for range n {
		s, err := relay.View(ctx)
		if err != nil {
			return 0, err
		}
		sessions = append(sessions, s)
	}
	time.Sleep(500 * time.Millisecond) // for what follows a handshake
	after, err := relay.Memory()
	return float64(after-before) / 1000 / float64(n), err
}

// firstObject is the median time from a viewer's first packet to the first bytes of an
// object, of a track that has a viewer already.
func firstObject(ctx context.Context, relay *load.Relay, newcomers int) (float64, error) {
	t := load.NewTrack("newcomers")
	stop, err := load.Audience(ctx, relay, t, 1, func(r *moqt.SubgroupReader) { _, _ = io.Copy(io.Discard, r) })
	if err != nil {
		return 0, err
	}
	defer stop()
	sending, done := make(chan struct{}), make(chan error, 1)
	go func() {
		payload := make([]byte, FrameBytes)
		tick := time.NewTicker(time.Second / FramesPerS)
		defer tick.Stop()
		for group := uint64(0); ; group++ {
			if err := t.WriteObject(wire.SubgroupHeader{Group: group, FirstObject: true, EndOfGroup: true}, moqt.Object{}, payload); err != nil {
				done <- err
				return
			}
			select {
			case <-tick.C:
			case <-sending:
				done <- nil
				return
			}
		}
	}()
	var took []time.Duration
	for range newcomers {
		d, e := newcomer(ctx, relay, t.Name())
		if err = e; err != nil {
			break
		}
		took = append(took, d)
	}
	close(sending)
	return load.Quantile(took, 0.5), errors.Join(err, <-done)
}

func newcomer(ctx context.Context, relay *load.Relay, name moqt.TrackName) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	began := time.Now()
	s, err := relay.View(ctx)
	if err != nil {
		return 0, err
	}
	defer s.Close(wire.NoError, "")
	sub, err := s.Subscribe(ctx, name, moqt.SubscribeOptions{})
	if err != nil {
		return 0, err
	}
	r, err := sub.AcceptSubgroup(ctx)
	if err != nil {
		return 0, err
	}
	if _, err := r.NextObject(); err != nil {
		return 0, err
	}
	var one [1]byte
	_, err = io.ReadFull(r, one[:])
	return time.Since(began), err
}

// Markdown is the table of the result.
func (r Result) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "A camera of %d frames of %d kB a second, publisher, relay and viewers on one machine, medians of %d turns. ", FramesPerS, r.FrameBytes/1000, r.Turns)
	fmt.Fprintf(&b, "Where the slower relay does not carry that, both are offered two thirds of its most. Added delay is against the same frames sent straight to one viewer.\n\n")
	contenders := []Contender{r.Ours}
	if r.Peer != nil {
		contenders = append(contenders, *r.Peer)
		fmt.Fprintf(&b, "Throughput of a core **%.2f×** the peer's, added delay p99 **%.2f×**, each at the fan-out where it is worst.\n\n", r.ThroughputPerCoreRatio, r.P99DelayRatio)
	}
	fmt.Fprintf(&b, "| relay | viewers | frames/s | Mbit/s | CPU s/Gbit | Gbit/s a core | added delay p50 / p99 ms | most Mbit/s | lost |\n")
	fmt.Fprintf(&b, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, n := range slices.Sorted(maps.Keys(r.Rate)) {
		for _, c := range contenders {
			f := c.Fanout[n]
			fmt.Fprintf(&b, "| %s | %d | %.1f | %.0f | %.2f | %.2f | %.1f / %.1f | %.0f | %d |\n", c.Name, n, r.Rate[n], f.MbitPerS, f.CPUSPerGbit, f.GbitPerS,
				f.AddedDelay.P50, f.AddedDelay.P99, f.CapacityMbit, f.Lost)
		}
	}
	fmt.Fprintf(&b, "\n| relay | first object of a newcomer ms | idle session kB | memory after all MB |\n| --- | --- | --- | --- |\n")
	for _, c := range contenders {
		fmt.Fprintf(&b, "| %s | %.1f | %.0f | %.0f |\n", c.Name, c.FirstObjectMs, c.SessionKB, c.MemoryMB)
	}
	return b.String()
}
