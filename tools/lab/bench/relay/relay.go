// Package relay loads a relay with a camera's frames and more and more viewers, and, where
// there is one, another implementation's relay in turns with it: what a core carries, what
// delay the relay adds, how soon a newcomer has a frame, and what a session costs.
package relay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/tools/lab/bench/internal/load"
	"holocast/tools/lab/bench/internal/quantile"
)

// What is sent unless Options say otherwise: one camera at 71 Mbit/s.
const (
	FrameBytes = 296_000
	FramesPerS = 30
)

// PeerName is the program that Options.Peer stands for when it is "auto".
const PeerName = "moq-relay-ietf"

// Past saturation a relay is offered more and more, from what it carries frame by frame on, until
// it delivers less than a share of the frames, or half of them late.
const (
	overload  = 1.5 // each step to the one before
	steps     = 8   // at most
	carried   = 0.95
	lateAfter = 100 // milliseconds
)

// Parts of the benchmark.
const (
	loadPart      = "load"
	firstBytePart = "first-byte"
	soakPart      = "soak"
	upgradePart   = "upgrade"
)

// Parts lists the parts of the benchmark.
func Parts() []string { return []string{loadPart, firstBytePart, soakPart, upgradePart} }

// Options say what to measure. Zero values are the defaults.
type Options struct {
	Parts []string // of Parts; nil: all that can run here, or load alone with At or Peer
	Quick bool
	Log   io.Writer // progress, a line each; nil for none
	// Relay is the relay's binary. "" means the one beside this program or, in the
	// source tree, one built for this run.
	Relay string
	// At, if set, is a relay of any make to measure instead, whose certificate and token
	// the target has. Its processor time and memory are not known.
	At *connect.Target
	// Peer is a relay of another make to alternate with: the binary of a moq-relay-ietf, or
	// "auto" for the one in PATH or in build/peers/bin, or a command that load.StartPeer
	// takes; "" none.
	Peer string
	Data string // folder with recordings of real cameras for the upgrade part; "" for synthetic frames

	Publishers   int           // each with a track, which every viewer has; default 1
	Viewers      []int         // fan-outs; default 1, 4, 16 and 50
	Rate         float64       // frames a second of each publisher; default FramesPerS
	FrameBytes   int           // of a frame, which is an object; default FrameBytes
	Loss         float64       // share of the packets to viewers, and of those from them, that are lost
	WebTransport bool          // instead of raw QUIC, between the relays and all others
	Time         time.Duration // of a run at the offered rate; default 8 s, 3 s when Quick
	// Sessions are how many idle sessions tell the memory of one; default 2,000, 200 when
	// Quick.
	Sessions int

	soak soakOptions
}

// withDefaults fills in what is not set.
func (o Options) withDefaults() (Options, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	o.Publishers, o.Rate, o.FrameBytes = cmp.Or(o.Publishers, 1), cmp.Or(o.Rate, FramesPerS), cmp.Or(o.FrameBytes, FrameBytes)
	viewers, sessions, length := []int{1, 4, 16, 50}, 2000, 8*time.Second
	if o.Quick {
		viewers, sessions, length = []int{1, 4, 16}, 200, 3*time.Second
	}
	if o.Viewers == nil {
		o.Viewers = viewers
	}
	o.Sessions, o.Time = cmp.Or(o.Sessions, sessions), cmp.Or(o.Time, length)
	for _, part := range o.Parts {
		if !slices.Contains(Parts(), part) {
			return o, fmt.Errorf("no part %q; there are %s", part, strings.Join(Parts(), ", "))
		}
	}
	switch {
	case o.At != nil && slices.ContainsFunc(o.Parts, func(part string) bool { return part != loadPart }):
		return o, fmt.Errorf("a relay elsewhere can only be measured with --parts %s", loadPart)
	case o.At != nil && o.Peer != "":
		return o, errors.New("a relay elsewhere cannot be compared with a peer on this machine")
	case o.At != nil && o.WebTransport:
		return o, errors.New("the scheme of the relay's URL says how it is spoken to: https for WebTransport")
	case o.Publishers < 1 || o.Rate < 0 || o.FrameBytes < 1 || o.Time < 0 || slices.ContainsFunc(o.Viewers, func(n int) bool { return n < 1 }):
		return o, errors.New("publishers, viewers, frames a second, bytes of a frame and the length of a run must be more than 0")
	case o.Loss < 0 || o.Loss >= 1:
		return o, fmt.Errorf("%v is no share of packets that may be lost: from 0 to less than 1", o.Loss)
	}
	switch {
	case o.Parts != nil:
	case o.At != nil || o.Peer != "":
		o.Parts = []string{loadPart}
	case os.Geteuid() != 0:
		o.Parts = []string{loadPart, firstBytePart, soakPart}
		fmt.Fprintf(o.Log, "skip part %s: %v\n", upgradePart, errNotRoot)
	default:
		o.Parts = Parts()
	}
	return o, nil
}

// Result holds the parts measured; the others are nil.
type Result struct {
	*Load                // its fields are the result's own in JSON
	FirstByte *FirstByte `json:"first_byte,omitempty"`
	Soak      *Soak      `json:"soak,omitempty"`
	Upgrade   *Upgrade   `json:"upgrade,omitempty"`
}

// Run measures.
func Run(ctx context.Context, o Options) (r Result, err error) {
	if o, err = o.withDefaults(); err != nil {
		return r, err
	}
	for _, part := range o.Parts {
		switch part {
		case loadPart:
			var l Load
			l, err = underLoad(ctx, o)
			r.Load = &l
		case firstBytePart:
			r.FirstByte, err = measureFirstByte(ctx, o)
		case soakPart:
			r.Soak, err = soak(ctx, o)
		case upgradePart:
			r.Upgrade, err = upgradeUnderLoad(ctx, o)
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// With adds the parts of an earlier result that r lacks.
func (r Result) With(earlier []byte) (interface{ Markdown() string }, error) {
	var old Result
	if err := json.Unmarshal(earlier, &old); err != nil {
		return nil, err
	}
	r.Load, r.FirstByte = cmp.Or(r.Load, old.Load), cmp.Or(r.FirstByte, old.FirstByte)
	r.Soak, r.Upgrade = cmp.Or(r.Soak, old.Soak), cmp.Or(r.Upgrade, old.Upgrade)
	return r, nil
}

// Measured returns the parts of the result.
func (r Result) Measured() (parts []string) {
	for i, has := range []bool{r.Load != nil, r.FirstByte != nil, r.Soak != nil, r.Upgrade != nil} {
		if has {
			parts = append(parts, Parts()[i])
		}
	}
	return parts
}

// Markdown returns a section for each part.
func (r Result) Markdown() string {
	var b strings.Builder
	section := func(title string, began time.Time, text string) {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "## %s\n\nMeasured on %s.\n\n%s", title, began.UTC().Format(time.DateOnly), text)
	}
	if r.Load != nil {
		section("Load", r.Load.Began, r.Load.markdown())
	}
	if r.FirstByte != nil {
		section("First byte", r.FirstByte.Began, r.FirstByte.markdown())
	}
	if r.Soak != nil {
		section("Soak", r.Soak.Began, r.Soak.markdown())
	}
	if r.Upgrade != nil {
		section("Upgrade", r.Upgrade.Began, r.Upgrade.markdown())
	}
	return b.String()
}

// Load compares relays under load.
type Load struct {
	Began        time.Time       `json:"began"`
	Publishers   int             `json:"publishers"`
	FrameBytes   int             `json:"frame_bytes"`
	Loss         float64         `json:"loss"`
	WebTransport bool            `json:"webtransport"`
	Turns        int             `json:"turns"` // figures are medians of as many
	Ours         Contender       `json:"ours"`
	Peer         *Contender      `json:"peer,omitempty"`
	Asked        float64         `json:"asked_frames_per_s"` // of each publisher
	Rate         map[int]float64 `json:"frames_per_s"`       // offered by each publisher, by number of viewers
	// Straight is what the same frames straight to as many viewers take longer than to one: most
	// of it is the viewers' own work, and in every relay's added delay as well.
	Straight map[int]load.Quantiles `json:"straight_ms"`
	// ThroughputPerCoreRatio is ours to the peer's, the least of all fan-outs;
	// P99DelayRatio is that of the added delay, the greatest of all. 0 without a peer.
	ThroughputPerCoreRatio float64 `json:"throughput_per_core_ratio,omitempty"`
	P99DelayRatio          float64 `json:"p99_delay_ratio,omitempty"`
}

// Contender is one relay. What is known of processes of this machine alone is 0 for others.
type Contender struct {
	Name   string         `json:"name"`
	Fanout map[int]Fanout `json:"fanout"` // by number of viewers
	// FirstObjectMs is from a viewer's first packet to its first object of a track that
	// others watch, milliseconds.
	FirstObjectMs float64 `json:"first_object_ms"`
	SessionKB     float64 `json:"session_kb,omitempty"` // memory of an idle session
	MemoryMB      float64 `json:"memory_mb,omitempty"`  // after all fan-outs, before saturation
}

// Fanout is one number of viewers.
type Fanout struct {
	MbitPerS     float64        `json:"mbit_per_s"`                // delivered to all viewers at the offered rate
	CPUSPerGbit  float64        `json:"cpu_s_per_gbit,omitempty"`  // of the relay's process
	GbitPerS     float64        `json:"gbit_per_core_s,omitempty"` // throughput of a core that does nothing else
	Delay        load.Quantiles `json:"delay_ms"`                  // of whole frames
	AddedDelay   load.Quantiles `json:"added_delay_ms"`            // less that of the same frames without a relay
	CapacityMbit float64        `json:"capacity_mbit_per_s"`       // when each frame follows the last at once
	Lost         int            `json:"frames_lost"`               // of all turns
	Saturated    Saturated      `json:"saturated"`
}

// Saturated is how a relay fares at the first rate that it does not carry.
type Saturated struct {
	OfferedMbit float64        `json:"offered_mbit_per_s"` // to all viewers
	MbitPerS    float64        `json:"mbit_per_s"`         // in whole frames
	Delivered   float64        `json:"delivered"`          // share of the frames that came whole
	Delay       load.Quantiles `json:"delay_ms"`           // of these; 0 without any
	MemoryMB    float64        `json:"memory_mb,omitempty"`
}

func underLoad(ctx context.Context, o Options) (r Load, err error) {
	turns, warm, newcomers := 3, o.Time/2, 10
	if o.Quick {
		turns, warm, newcomers = 1, o.Time/3, 5
	}
	direct, err := load.Listen()
	if err != nil {
		return r, err
	}
	defer func() { _ = direct.Close() }()
	direct.Loss = o.Loss
	r = Load{
		Began: time.Now(), Publishers: o.Publishers, FrameBytes: o.FrameBytes, Loss: o.Loss, WebTransport: o.WebTransport, Turns: turns,
		Ours: Contender{Name: "holocast relay", Fanout: map[int]Fanout{}}, Asked: o.Rate, Rate: map[int]float64{}, Straight: map[int]load.Quantiles{},
	}
	contenders := []*Contender{&r.Ours}
	var relays []*load.Relay
	defer func() {
		for _, relay := range relays {
			relay.Stop()
		}
	}()
	if o.At != nil {
		there, err := load.At(*o.At)
		if err != nil {
			return r, err
		}
		r.WebTransport = strings.HasPrefix(o.At.URL, "https:")
		r.Ours.Name, relays = o.At.Address(), append(relays, there)
	} else {
		ours, err := load.Start(ctx, o.Relay)
		if err != nil {
			return r, err
		}
		relays = append(relays, ours)
	}
	if o.Peer != "" {
		command, name, err := findPeer(o.Peer)
		if err != nil {
			return r, err
		}
		peer, err := load.StartPeer(ctx, command)
		if err != nil {
			return r, err
		}
		relays = append(relays, peer)
		r.Peer = &Contender{Name: name, Fanout: map[int]Fanout{}}
		contenders = append(contenders, r.Peer)
	}
	for i, relay := range relays {
		relay.WebTransport, relay.Loss = o.WebTransport, o.Loss
		c := contenders[i]
		if relay.Local() {
			if c.SessionKB, err = sessionMemory(ctx, relay, o.Sessions); err != nil {
				return r, fmt.Errorf("%s: idle sessions: %w", c.Name, err)
			}
		}
		if c.FirstObjectMs, err = firstObject(ctx, relay, newcomers, o); err != nil {
			return r, fmt.Errorf("%s: first object: %w", c.Name, err)
		}
		fmt.Fprintf(o.Log, "%s: idle session %.0f kB, first object after %.1f ms\n", c.Name, c.SessionKB, c.FirstObjectMs)
	}
	for _, n := range o.Viewers {
		offered := load.Frames{Publishers: o.Publishers, Viewers: n, Bytes: o.FrameBytes, Time: warm}
		// The rate that all carry without queues: the one asked for, or two thirds of the most.
		rate := o.Rate
		most := make([][]float64, len(relays))
		for i, relay := range relays {
			s, err := load.Transfer(ctx, relay, offered)
			if err != nil {
				return r, fmt.Errorf("%s, %d viewers: %w", contenders[i].Name, n, err)
			}
			most[i] = append(most[i], s.MbitPerS())
			rate = min(rate, s.FramesPerS()*2/3)
		}
		r.Rate[n] = rate
		runs := make([][]Fanout, len(relays))
		var straight []Fanout
		for range turns {
			frames := offered
			frames.Rate, frames.Time = rate, o.Time
			alone := frames
			alone.Viewers = 1
			without, err := load.Transfer(ctx, direct, alone)
			if err != nil {
				return r, err
			}
			same, err := load.Transfer(ctx, direct, frames)
			if err != nil {
				return r, err
			}
			straight = append(straight, Fanout{AddedDelay: same.Quantiles().Less(without.Quantiles())})
			for i, relay := range relays {
				f, err := turn(ctx, relay, frames, without.Quantiles())
				if err != nil {
					return r, fmt.Errorf("%s, %d viewers: %w", contenders[i].Name, n, err)
				}
				runs[i] = append(runs[i], f)
				if len(most[i]) < turns {
					s, err := load.Transfer(ctx, relay, offered)
					if err != nil {
						return r, fmt.Errorf("%s, %d viewers: %w", contenders[i].Name, n, err)
					}
					most[i] = append(most[i], s.MbitPerS())
				}
			}
		}
		r.Straight[n] = middle(straight).AddedDelay
		for i, c := range contenders {
			f := middle(runs[i])
			f.CapacityMbit = quantile.Of(most[i], 0.5)
			c.Fanout[n] = f
			fmt.Fprintf(o.Log, "%s %d→%d: %.1f frames/s, %.2f CPU s/Gbit, added delay p50 %.1f p99 %.1f ms, at most %.0f Mbit/s\n",
				c.Name, o.Publishers, n, rate, f.CPUSPerGbit, f.AddedDelay.P50, f.AddedDelay.P99, f.CapacityMbit)
		}
	}
	for i, relay := range relays {
		if contenders[i].MemoryMB, err = memory(relay); err != nil {
			return r, err
		}
	}
	// Last, so that what it leaves behind is in no other figure.
	for _, n := range o.Viewers {
		for i, relay := range relays {
			c := contenders[i]
			f := c.Fanout[n]
			if f.Saturated, err = saturate(ctx, relay, f.CapacityMbit, load.Frames{Publishers: o.Publishers, Viewers: n, Bytes: o.FrameBytes, Time: warm}); err != nil {
				return r, fmt.Errorf("%s, %d viewers, saturated: %w", c.Name, n, err)
			}
			c.Fanout[n] = f
			fmt.Fprintf(o.Log, "%s %d→%d, offered %.0f Mbit/s: %.0f delivered, delay p50 %.0f p99 %.0f ms\n",
				c.Name, o.Publishers, n, f.Saturated.OfferedMbit, f.Saturated.MbitPerS, f.Saturated.Delay.P50, f.Saturated.Delay.P99)
		}
	}
	r.compare()
	return r, nil
}

// memory is what a relay of this machine has in memory, megabytes; 0 of one elsewhere.
func memory(relay *load.Relay) (float64, error) {
	if !relay.Local() {
		return 0, nil
	}
	bytes, err := relay.Memory()
	return float64(bytes) / 1e6, err
}

// saturate offers a relay more than a rate of all viewers together, until it does not carry that.
func saturate(ctx context.Context, relay *load.Relay, mbit float64, f load.Frames) (out Saturated, err error) {
	for range steps {
		mbit *= overload
		f.Rate = mbit * 1e6 / 8 / float64(f.Bytes*f.Publishers*f.Viewers)
		s, err := load.Transfer(ctx, relay, f)
		if err != nil {
			return out, err
		}
		all := float64(len(s.Delays) + s.Lost)
		out = Saturated{OfferedMbit: all * float64(f.Bytes) * 8 / f.Time.Seconds() / 1e6, MbitPerS: s.MbitPerS(), Delivered: float64(len(s.Delays)) / all}
		if len(s.Delays) > 0 {
			out.Delay = s.Quantiles()
		}
		if out.MemoryMB, err = memory(relay); err != nil {
			return out, err
		}
		if out.Delivered < carried || out.Delay.P50 > lateAfter {
			break
		}
	}
	return out, nil
}

// turn is one transfer at a rate.
func turn(ctx context.Context, relay *load.Relay, frames load.Frames, without load.Quantiles) (f Fanout, err error) {
	before, err := processorTime(relay)
	if err != nil {
		return f, err
	}
	s, err := load.Transfer(ctx, relay, frames)
	if err != nil {
		return f, err
	}
	after, err := processorTime(relay)
	if err != nil {
		return f, err
	}
	if len(s.Delays) == 0 {
		return f, errors.New("no frame arrived")
	}
	f = Fanout{MbitPerS: s.MbitPerS(), CPUSPerGbit: (after - before).Seconds() / (s.Bits() / 1e9), Delay: s.Quantiles(), Lost: s.Lost}
	f.AddedDelay = f.Delay.Less(without)
	return f, nil
}

// processorTime is that of a relay of this machine; 0 of one elsewhere.
func processorTime(relay *load.Relay) (time.Duration, error) {
	if !relay.Local() {
		return 0, nil
	}
	return relay.CPU()
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
	if f.CPUSPerGbit > 0 {
		f.GbitPerS = 1 / f.CPUSPerGbit
	}
	f.Delay.P50, f.Delay.P99 = of(func(r Fanout) float64 { return r.Delay.P50 }), of(func(r Fanout) float64 { return r.Delay.P99 })
	f.AddedDelay.P50, f.AddedDelay.P99 = of(func(r Fanout) float64 { return r.AddedDelay.P50 }), of(func(r Fanout) float64 { return r.AddedDelay.P99 })
	return f
}

func (r *Load) compare() {
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

// findPeer is the command that Options.Peer means, and what the relay is called.
func findPeer(peer string) (command, name string, err error) {
	if peer != "auto" {
		if strings.TrimSpace(peer) == "" {
			return "", "", errors.New("the peer's command is empty")
		}
		return peer, filepath.Base(strings.Fields(peer)[0]), nil
	}
	if found, err := exec.LookPath(PeerName); err == nil {
		return found, PeerName, nil
	}
	found, err := exec.LookPath(filepath.Join("build", "peers", "bin", PeerName))
	if err != nil {
		return "", "", fmt.Errorf("%s is neither in PATH nor in build/peers/bin: cargo install --locked --root build/peers %s", PeerName, PeerName)
	}
	return found, PeerName, nil
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
func firstObject(ctx context.Context, relay *load.Relay, newcomers int, o Options) (float64, error) {
	t := load.NewTrack(relay, "newcomers")
	stop, err := load.Audience(ctx, relay, []*origin.Track{t}, 1, func(_ int, r *moqt.SubgroupReader) { _, _ = io.Copy(io.Discard, r) })
	if err != nil {
		return 0, err
	}
	defer stop()
	sending, end := context.WithCancel(ctx)
	defer end()
	done := make(chan error, 1)
	go func() { done <- load.Feed(sending, t, o.FrameBytes, o.Rate, func(uint64) {}) }()
	var took []time.Duration
	for range newcomers {
		d, e := newcomer(ctx, relay, t.Name())
		if err = e; err != nil {
			break
		}
		took = append(took, d)
	}
	end()
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

func (r *Load) markdown() string {
	var b strings.Builder
	source, transport := "A camera", "raw QUIC"
	if r.Publishers > 1 {
		source = fmt.Sprintf("%d publishers, each", r.Publishers)
	}
	if r.WebTransport {
		transport = "WebTransport"
	}
	fmt.Fprintf(&b, "%s of %g frames of %g kB a second over %s", source, r.Asked, float64(r.FrameBytes)/1000, transport)
	if r.Loss > 0 {
		fmt.Fprintf(&b, ", %g %% of the packets to and from viewers lost", 100*r.Loss)
	}
	local := r.Ours.MemoryMB > 0
	if local {
		fmt.Fprintf(&b, ", publisher, relay and viewers on one machine")
	}
	fmt.Fprintf(&b, ", medians of %d turns. ", r.Turns)
	fmt.Fprintf(&b, "Where the slower relay does not carry that, all are offered two thirds of its most. Added delay is against the same frames sent straight to one viewer over raw QUIC; without a relay it is that of the publisher sending them to all viewers itself.\n\n")
	contenders := []Contender{r.Ours}
	if r.Peer != nil {
		contenders = append(contenders, *r.Peer)
		fmt.Fprintf(&b, "Throughput of a core **%.2f×** the peer's, added delay p99 **%.2f×**, each at the fan-out where it is worst.\n\n", r.ThroughputPerCoreRatio, r.P99DelayRatio)
	}
	known := func(format string, v float64) string { // of a process elsewhere it is not
		if !local {
			return "–"
		}
		return fmt.Sprintf(format, v)
	}
	fmt.Fprintf(&b, "| relay | viewers | frames/s | Mbit/s | CPU s/Gbit | Gbit/s a core | added delay p50 / p99 ms | most Mbit/s | lost |\n")
	fmt.Fprintf(&b, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, n := range slices.Sorted(maps.Keys(r.Rate)) {
		for _, c := range contenders {
			f := c.Fanout[n]
			fmt.Fprintf(&b, "| %s | %d | %.1f | %.0f | %s | %s | %.1f / %.1f | %.0f | %d |\n", c.Name, n, r.Rate[n], f.MbitPerS, known("%.2f", f.CPUSPerGbit), known("%.2f", f.GbitPerS),
				f.AddedDelay.P50, f.AddedDelay.P99, f.CapacityMbit, f.Lost)
		}
		fmt.Fprintf(&b, "| none | %d | %.1f | – | – | – | %.1f / %.1f | – | – |\n", n, r.Rate[n], r.Straight[n].P50, r.Straight[n].P99)
	}
	fmt.Fprintf(&b, "\nPast saturation, at the first rate, in steps of a half, at which less than %.0f %% of the frames come whole, or half of those take more than %d ms:\n\n", 100*carried, lateAfter)
	fmt.Fprintf(&b, "| relay | viewers | offered Mbit/s | in whole frames Mbit/s | frames whole | delay p50 / p99 ms | memory MB |\n")
	fmt.Fprintf(&b, "| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, n := range slices.Sorted(maps.Keys(r.Rate)) {
		for _, c := range contenders {
			s := c.Fanout[n].Saturated
			fmt.Fprintf(&b, "| %s | %d | %.0f | %.0f | %.0f %% | %.0f / %.0f | %s |\n", c.Name, n, s.OfferedMbit, s.MbitPerS, 100*s.Delivered, s.Delay.P50, s.Delay.P99, known("%.0f", s.MemoryMB))
		}
	}
	fmt.Fprintf(&b, "\n| relay | first object of a newcomer ms | idle session kB | memory after all MB |\n| --- | --- | --- | --- |\n")
	for _, c := range contenders {
		fmt.Fprintf(&b, "| %s | %.1f | %s | %s |\n", c.Name, c.FirstObjectMs, known("%.0f", c.SessionKB), known("%.0f", c.MemoryMB))
	}
	return b.String()
}
