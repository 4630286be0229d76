// Package relay measures a relay: throughput per core, added delay and memory under load
// (optionally compared with another implementation), the delay of the first byte, resource use over
// minutes, and upgrades.
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
	"holocast/tools/lab/bench/internal/part"
	"holocast/tools/lab/bench/internal/quantile"
)

// Default load: one camera at 71 Mbit/s.
const (
	FrameBytes = 296_000
	FramesPerS = 30
)

// PeerName is the program that Options.Peer "auto" selects.
const PeerName = "moq-relay-ietf"

// Parameters of the saturation test. The offered rate grows from the relay's capacity by a factor
// per step, until the fraction of frames that arrive is below carried or their median delay exceeds
// lateAfter.
const (
	overload  = 1.5 // factor per step
	steps     = 8   // maximum
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

// Options configures Run. Zero values mean the defaults.
type Options struct {
	Parts []string // some of Parts; nil means all that can run here, or load alone with At or Peer
	Quick bool
	Log   io.Writer // progress lines; nil discards them

	// Relay is the relay's binary; "" selects the one next to this program, or builds one.
	Relay string

	// At, if set, is a remote relay to measure instead, with its certificate and token. Its CPU
	// time and memory are unknown.
	At *connect.Target

	// Peer is another relay implementation to alternate with. It is a moq-relay-ietf binary, "auto"
	// to look for one in PATH and build/peers/bin, or a command for load.StartPeer; "" means none.
	Peer string
	Data string // folder with recordings of real cameras for the upgrade part; "" means synthetic frames

	Publishers   int           // one track each, which every viewer receives; default 1
	Viewers      []int         // default 1, 4, 16 and 50
	Rate         float64       // frames per second and publisher; default FramesPerS
	FrameBytes   int           // frame size (one object); default FrameBytes
	Loss         float64       // fraction of packets dropped between relay and viewers, in each direction
	WebTransport bool          // instead of raw QUIC, on all sessions with the relays
	Time         time.Duration // duration at the offered rate; default 8 s, 3 s if Quick

	// Sessions is the number of idle sessions whose memory is measured. The default is 2,000, or
	// 200 if Quick is set.
	Sessions int

	soak soakOptions
}

// withDefaults checks o and returns it with the defaults filled in.
func (o Options) withDefaults() (Options, error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	o.Publishers, o.Rate, o.FrameBytes = cmp.Or(o.Publishers, 1), cmp.Or(o.Rate, FramesPerS),
		cmp.Or(o.FrameBytes, FrameBytes)
	viewers, sessions, length := []int{1, 4, 16, 50}, 2000, 8*time.Second
	if o.Quick {
		viewers, sessions, length = []int{1, 4, 16}, 200, 3*time.Second
	}
	if o.Viewers == nil {
		o.Viewers = viewers
	}
	o.Sessions, o.Time = cmp.Or(o.Sessions, sessions), cmp.Or(o.Time, length)
	if err := part.Check(o.Parts, Parts()); err != nil {
		return o, err
	}
	switch {
	case o.At != nil && slices.ContainsFunc(o.Parts, func(part string) bool { return part != loadPart }):
		return o, fmt.Errorf("a remote relay supports only --parts %s", loadPart)
	case o.At != nil && o.Peer != "":
		return o, errors.New("a remote relay cannot be compared with a local peer; omit --peer")
	case o.At != nil && o.WebTransport:
		return o, errors.New("the URL's scheme selects the transport of a remote relay; use https for WebTransport")
	case o.Publishers < 1 || o.Rate < 0 || o.FrameBytes < 1 || o.Time < 0 || slices.ContainsFunc(o.Viewers,
		func(n int) bool { return n < 1 }):
		return o, errors.New("publishers, viewers, rate, frame size and time must be positive")
	case o.Loss < 0 || o.Loss >= 1:
		return o, fmt.Errorf("packet loss %v is out of range: want 0 to less than 1", o.Loss)
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

// Result holds the results by part. Parts that were not measured are nil.
type Result struct {
	*Load                // inlined in JSON
	FirstByte *FirstByte `json:"first_byte,omitempty"`
	Soak      *Soak      `json:"soak,omitempty"`
	Upgrade   *Upgrade   `json:"upgrade,omitempty"`
}

// Run runs the benchmark.
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

// With returns r, completed with the parts of an earlier result that r lacks.
func (r Result) With(earlier []byte) (interface{ Markdown() string }, error) {
	var old Result
	if err := json.Unmarshal(earlier, &old); err != nil {
		return nil, err
	}
	r.Load, r.FirstByte = cmp.Or(r.Load, old.Load), cmp.Or(r.FirstByte, old.FirstByte)
	r.Soak, r.Upgrade = cmp.Or(r.Soak, old.Soak), cmp.Or(r.Upgrade, old.Upgrade)
	return r, nil
}

// Measured lists the parts present.
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
	if load := r.Load; load != nil {
		section("Load", load.Began, load.markdown())
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
	Turns        int             `json:"turns"` // figures are medians over the turns
	Ours         Contender       `json:"ours"`
	Peer         *Contender      `json:"peer,omitempty"`
	Requested    float64         `json:"requested_frames_per_s"` // per publisher
	Rate         map[int]float64 `json:"frames_per_s"`           // offered per publisher, by number of viewers

	// Straight is the delay that additional viewers cause without a relay: the delay to all viewers
	// minus the delay to one. It is mainly the viewers' own work, which every relay's added delay
	// includes.
	Straight map[int]load.Quantiles `json:"straight_ms"`

	// ThroughputPerCoreRatio is our throughput per core divided by the peer's, the minimum over all
	// fan-outs. P99DelayRatio is our p99 of the added delay divided by the peer's, the maximum over
	// all fan-outs. Both are 0 without a peer.
	ThroughputPerCoreRatio float64 `json:"throughput_per_core_ratio,omitempty"`
	P99DelayRatio          float64 `json:"p99_delay_ratio,omitempty"`
}

// Contender holds one relay's figures. Figures of the process are 0 for a remote relay.
type Contender struct {
	Name   string         `json:"name"`
	Fanout map[int]Fanout `json:"fanout"` // by number of viewers

	// FirstObjectMs is the time in milliseconds from a viewer's first packet to its first object,
	// on a track with other viewers.
	FirstObjectMs float64 `json:"first_object_ms"`
	SessionKB     float64 `json:"session_kb,omitempty"` // per idle session
	MemoryMB      float64 `json:"memory_mb,omitempty"`  // after all fan-outs, before saturation
}

// Fanout holds the figures for one number of viewers.
type Fanout struct {
	MbitPerS     float64        `json:"mbit_per_s"`                // received by all viewers at the offered rate
	CPUSPerGbit  float64        `json:"cpu_s_per_gbit,omitempty"`  // CPU time of the relay's process
	GbitPerS     float64        `json:"gbit_per_core_s,omitempty"` // throughput of a fully used core
	Delay        load.Quantiles `json:"delay_ms"`                  // of complete frames
	AddedDelay   load.Quantiles `json:"added_delay_ms"`            // minus the delay without a relay
	CapacityMbit float64        `json:"capacity_mbit_per_s"`       // with one frame in flight at a time
	Lost         int            `json:"frames_lost"`               // over all turns
	Saturated    Saturated      `json:"saturated"`
}

// Saturated holds the figures at the first offered rate that the relay did not sustain, or at the
// highest rate offered.
type Saturated struct {
	OfferedMbit float64        `json:"offered_mbit_per_s"` // over all viewers
	MbitPerS    float64        `json:"mbit_per_s"`         // of complete frames
	Delivered   float64        `json:"delivered"`          // fraction of frames that arrived complete
	Delay       load.Quantiles `json:"delay_ms"`           // delay of complete frames; 0 if there are none
	MemoryMB    float64        `json:"memory_mb,omitempty"`
}

func underLoad(ctx context.Context, o Options) (r Load, err error) {
	turns, warm, joins := 3, o.Time/2, 10
	if o.Quick {
		turns, warm, joins = 1, o.Time/3, 5
	}
	direct, err := load.Listen()
	if err != nil {
		return r, err
	}
	defer func() { _ = direct.Close() }()
	direct.Loss = o.Loss
	r = Load{
		Began: time.Now(), Publishers: o.Publishers, FrameBytes: o.FrameBytes, Loss: o.Loss,
		WebTransport: o.WebTransport, Turns: turns,
		Ours: Contender{Name: "holocast relay", Fanout: map[int]Fanout{}}, Requested: o.Rate, Rate: map[int]float64{},
		Straight: map[int]load.Quantiles{},
	}
	contenders := []*Contender{&r.Ours}
	var relays []*load.Relay
	defer func() {
		for _, relay := range relays {
			relay.Stop()
		}
	}()
	if o.At != nil {
		remote, err := load.At(*o.At)
		if err != nil {
			return r, err
		}
		r.WebTransport = strings.HasPrefix(o.At.URL, "https:")
		r.Ours.Name, relays = o.At.Address(), append(relays, remote)
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
		if c.FirstObjectMs, err = firstObject(ctx, relay, joins, o); err != nil {
			return r, fmt.Errorf("%s: first object: %w", c.Name, err)
		}
		fmt.Fprintf(o.Log, "%s: idle session %.0f kB, first object after %.1f ms\n", c.Name, c.SessionKB,
			c.FirstObjectMs)
	}
	for _, n := range o.Viewers {
		offered := load.Frames{Publishers: o.Publishers, Viewers: n, Bytes: o.FrameBytes, Time: warm}

		// Offer a rate that all relays sustain without queueing: the requested one, but at most two
		// thirds of the lowest capacity.
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
			single := frames
			single.Viewers = 1
			without, err := load.Transfer(ctx, direct, single)
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
		r.Straight[n] = medians(straight).AddedDelay
		for i, c := range contenders {
			f := medians(runs[i])
			f.CapacityMbit = quantile.Of(most[i], 0.5)
			c.Fanout[n] = f
			fmt.Fprintf(o.Log, "%s %d→%d: %.1f frames/s, %.2f CPU s/Gbit, added delay p50 %.1f p99 %.1f ms, at most "+
				"%.0f Mbit/s\n",
				c.Name, o.Publishers, n, rate, f.CPUSPerGbit, f.AddedDelay.P50, f.AddedDelay.P99, f.CapacityMbit)
		}
	}
	for i, relay := range relays {
		if contenders[i].MemoryMB, err = memory(relay); err != nil {
			return r, err
		}
	}

	// Saturation comes last, as its aftereffects would distort other figures.
	for _, n := range o.Viewers {
		for i, relay := range relays {
			c := contenders[i]
			f := c.Fanout[n]
			if f.Saturated, err = saturate(ctx, relay, f.CapacityMbit, load.Frames{
				Publishers: o.Publishers, Viewers: n,
				Bytes: o.FrameBytes, Time: warm,
			}); err != nil {
				return r, fmt.Errorf("%s, %d viewers, saturated: %w", c.Name, n, err)
			}
			c.Fanout[n] = f
			fmt.Fprintf(o.Log, "%s %d→%d, offered %.0f Mbit/s: %.0f delivered, delay p50 %.0f p99 %.0f ms\n",
				c.Name, o.Publishers, n, f.Saturated.OfferedMbit, f.Saturated.MbitPerS, f.Saturated.Delay.P50,
				f.Saturated.Delay.P99)
		}
	}
	r.compare()
	return r, nil
}

// memory returns a local relay's memory in megabytes, or 0 for a remote relay.
func memory(relay *load.Relay) (float64, error) {
	if !relay.Local() {
		return 0, nil
	}
	bytes, err := relay.Memory()
	return float64(bytes) / 1e6, err
}

// saturate raises the rate over all viewers from mbit until the relay no longer sustains it.
func saturate(ctx context.Context, relay *load.Relay, mbit float64, f load.Frames) (out Saturated, err error) {
	for range steps {
		mbit *= overload
		f.Rate = mbit * 1e6 / 8 / float64(f.Bytes*f.Publishers*f.Viewers)
		s, err := load.Transfer(ctx, relay, f)
		if err != nil {
			return out, err
		}
		all := float64(len(s.Delays) + s.Lost)
		out = Saturated{
			OfferedMbit: all * float64(f.Bytes) * 8 / f.Time.Seconds() / 1e6, MbitPerS: s.MbitPerS(),
			Delivered: float64(len(s.Delays)) / all,
		}
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

// turn measures one transfer at a fixed rate.
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
	f = Fanout{
		MbitPerS: s.MbitPerS(), CPUSPerGbit: (after - before).Seconds() / (s.Bits() / 1e9), Delay: s.Quantiles(),
		Lost: s.Lost,
	}
	f.AddedDelay = f.Delay.Less(without)
	return f, nil
}

// processorTime returns a local relay's CPU time, or 0 for a remote relay.
func processorTime(relay *load.Relay) (time.Duration, error) {
	if !relay.Local() {
		return 0, nil
	}
	return relay.CPU()
}

// medians returns each figure's median, and the sum of the losses.
func medians(runs []Fanout) (f Fanout) {
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
	f.Delay.P50, f.Delay.P99 = of(func(r Fanout) float64 { return r.Delay.P50 }),
		of(func(r Fanout) float64 { return r.Delay.P99 })
	f.AddedDelay.P50, f.AddedDelay.P99 = of(func(r Fanout) float64 { return r.AddedDelay.P50 }),
		of(func(r Fanout) float64 { return r.AddedDelay.P99 })
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

// findPeer resolves Options.Peer to a command and a name for the report.
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
		return "", "", fmt.Errorf("%s is neither in PATH nor in build/peers/bin: cargo install --locked --root "+
			"build/peers %s", PeerName, PeerName)
	}
	return found, PeerName, nil
}

// sessionMemory returns the memory growth per idle session in kB.
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
	time.Sleep(500 * time.Millisecond) // lets post-handshake work finish
	after, err := relay.Memory()
	return float64(after-before) / 1000 / float64(n), err
}

// firstObject returns the median time from a viewer's first packet to the first bytes of an object,
// on a track that already has a viewer.
func firstObject(ctx context.Context, relay *load.Relay, joins int, o Options) (float64, error) {
	t := load.NewTrack(relay, "joins")
	stop, err := load.Audience(ctx, relay, []*origin.Track{t}, 1, func(_ int, r *moqt.SubgroupReader) {
		_,
			_ = io.Copy(io.Discard, r)
	})
	if err != nil {
		return 0, err
	}
	defer stop()
	sending, end := context.WithCancel(ctx)
	defer end()
	done := make(chan error, 1)
	go func() { done <- load.Feed(sending, t, o.FrameBytes, o.Rate, func(uint64) {}) }()
	var took []time.Duration
	for range joins {
		d, e := lateJoiner(ctx, relay, t.Name())
		if err = e; err != nil {
			break
		}
		took = append(took, d)
	}
	end()
	return load.Quantile(took, 0.5), errors.Join(err, <-done)
}

func lateJoiner(ctx context.Context, relay *load.Relay, name moqt.TrackName) (time.Duration, error) {
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
	fmt.Fprintf(&b, "%s of %g frames of %g kB a second over %s", source, r.Requested, float64(r.FrameBytes)/1000,
		transport)
	if r.Loss > 0 {
		fmt.Fprintf(&b, ", %g %% of the packets to and from viewers lost", 100*r.Loss)
	}
	local := r.Ours.MemoryMB > 0
	if local {
		fmt.Fprintf(&b, ", publisher, relay and viewers on one machine")
	}
	fmt.Fprintf(&b, ", medians of %d turns. ", r.Turns)
	b.WriteString("If the slower relay does not sustain that rate, all are offered two thirds of its capacity. " +
		"Added delay is relative to the same frames sent directly to one viewer over raw QUIC. In rows without a " +
		"relay the publisher serves all viewers itself.\n\n")
	contenders := []Contender{r.Ours}
	if r.Peer != nil {
		contenders = append(contenders, *r.Peer)
		fmt.Fprintf(&b, "Throughput per core **%.2f×** the peer's, added delay p99 **%.2f×**, each at its worst "+
			"fan-out.\n\n",
			r.ThroughputPerCoreRatio, r.P99DelayRatio)
	}
	known := func(format string, v float64) string { // the process figures of a remote relay are unknown
		if !local {
			return "–"
		}
		return fmt.Sprintf(format, v)
	}
	b.WriteString("| relay | viewers | frames/s | Mbit/s | CPU s/Gbit | Gbit/s per core | added delay p50 / p99 ms " +
		"| capacity Mbit/s | lost |\n")
	fmt.Fprintf(&b, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, n := range slices.Sorted(maps.Keys(r.Rate)) {
		for _, c := range contenders {
			f := c.Fanout[n]
			fmt.Fprintf(&b, "| %s | %d | %.1f | %.0f | %s | %s | %.1f / %.1f | %.0f | %d |\n", c.Name, n, r.Rate[n],
				f.MbitPerS, known("%.2f", f.CPUSPerGbit), known("%.2f", f.GbitPerS),
				f.AddedDelay.P50, f.AddedDelay.P99, f.CapacityMbit, f.Lost)
		}
		fmt.Fprintf(&b, "| none | %d | %.1f | – | – | – | %.1f / %.1f | – | – |\n", n, r.Rate[n], r.Straight[n].P50,
			r.Straight[n].P99)
	}
	fmt.Fprintf(&b, "\nPast saturation: the first rate, in steps of a half, at which fewer than %.0f %% of the "+
		"frames arrive complete or half of them take more than %d ms.\n\n", 100*carried, lateAfter)
	b.WriteString("| relay | viewers | offered Mbit/s | complete frames Mbit/s | frames complete | delay p50 / p99 " +
		"ms | memory MB |\n")
	fmt.Fprintf(&b, "| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, n := range slices.Sorted(maps.Keys(r.Rate)) {
		for _, c := range contenders {
			s := c.Fanout[n].Saturated
			fmt.Fprintf(&b, "| %s | %d | %.0f | %.0f | %.0f %% | %.0f / %.0f | %s |\n", c.Name, n, s.OfferedMbit,
				s.MbitPerS, 100*s.Delivered, s.Delay.P50, s.Delay.P99, known("%.0f", s.MemoryMB))
		}
	}
	b.WriteString("\n| relay | late joiner's first object ms | idle session kB | memory before saturation MB |\n| " +
		"--- | --- | --- | --- |\n")
	for _, c := range contenders {
		fmt.Fprintf(&b, "| %s | %.1f | %s | %s |\n", c.Name, c.FirstObjectMs, known("%.0f", c.SessionKB),
			known("%.0f", c.MemoryMB))
	}
	return b.String()
}
