// Package hostile attacks a relay while a camera is viewed through it, and measures the effect on
// the viewer. The attackers run as a separate process with the lowest priority on one processor of
// the same machine, so the figures reflect the load that the relay admits, not the competition for
// processors.
package hostile

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/pause"
	"holocast/tools/lab/bench/internal/load"
	"holocast/tools/lab/bench/internal/part"
)

// The camera: 37 Mbit/s.
const (
	FrameBytes = 154_000
	FramesPerS = 30
)

// The relay's configuration, and the requirements during an attack.
const (
	cacheBytes = 128 << 20
	limitBytes = cacheBytes + cacheBytes/2 + 512<<20 // the relay's own default for this cache
	leastFPS   = 29
	mostDelays = 3 // multiples of the baseline's p95
	// newViewerLimit limits a new viewer's wait for its first frame, noFrameLimit the first
	// viewer's.
	newViewerLimit = 5 * time.Second
	noFrameLimit   = time.Minute
)

var camera = moqt.TrackName{Namespace: moqt.Namespace{"holocast", "bench"}, Name: "points"}

// Options configure Run.
type Options struct {
	Parts []string // attacks; nil = all
	Quick bool
	Time  time.Duration // per attack; 0 means 10 s, or 5 s with Quick
	Log   io.Writer     // progress lines; nil discards them

	// Relay is the relay's binary; "" selects the one next to this program, or builds one.
	Relay string

	// Attacker is a command that passes its additional arguments to Attack.
	Attacker []string

	newViewer time.Duration // overrides newViewerLimit in tests
}

// Result holds the measurements.
type Result struct {
	Seconds  float64 `json:"seconds"`  // per attack
	LimitMB  float64 `json:"limit_mb"` // the relay's configured memory limit
	Baseline Figures `json:"baseline"` // without an attack
	Attacks  []Under `json:"attacks"`

	// Kept reports whether in all attacks the viewer kept 29 frames per second and at most three
	// times the baseline's delay, and the relay stayed within its memory limit.
	Kept bool `json:"kept"`
}

// Figures describe the frames that the viewer receives and the relay's resource use.
type Figures struct {
	FPS   float64 `json:"fps"`
	P95Ms float64 `json:"p95_ms"` // delay of complete frames
	GapMs float64 `json:"gap_ms"` // longest time without a complete frame

	// NewViewerMs is the median time from a new viewer's first packet to its first complete frame.
	NewViewerMs float64 `json:"new_viewer_first_frame_ms"`
	PeakMB      float64 `json:"relay_peak_mb"`
	Goroutines  int     `json:"goroutines"` // of the relay
	CPU         float64 `json:"relay_cpu"`  // processors used by the relay
}

// Under holds the figures during and after an attack.
type Under struct {
	Name  string `json:"name"`
	About string `json:"about"`
	Figures
	FPSAfter float64 `json:"fps_after"` // after the attacker has gone
	Kept     bool    `json:"kept"`
}

// Names lists the attacks.
func Names() (list []string) {
	for _, a := range attacks() {
		list = append(list, a.name)
	}
	return list
}

// Run runs the benchmark.
func Run(ctx context.Context, o Options) (r Result, err error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.Time == 0 {
		o.Time = 10 * time.Second
		if o.Quick {
			o.Time = 5 * time.Second
		}
	}
	if len(o.Attacker) == 0 {
		return r, errors.New("hostile: Options.Attacker is empty")
	}
	if err := part.Check(o.Parts, Names()); err != nil {
		return r, err
	}
	binary, remove, err := load.Binary(ctx, o.Relay)
	if err != nil {
		return r, err
	}
	defer remove()
	r = Result{Seconds: o.Time.Seconds(), LimitMB: limitBytes / 1e6, Kept: true}
	base, err := o.one(ctx, binary, attack{})
	if err != nil {
		return r, err
	}
	r.Baseline = base.Figures
	fmt.Fprintf(o.Log, "baseline: %s\n", base.Figures)
	for _, a := range attacks() {
		if o.Parts != nil && !slices.Contains(o.Parts, a.name) {
			continue
		}
		u, err := o.one(ctx, binary, a)
		if err != nil {
			return r, fmt.Errorf("%s: %w", a.name, err)
		}
		u.Kept = u.FPS >= leastFPS && u.P95Ms <= mostDelays*r.Baseline.P95Ms && u.PeakMB <= r.LimitMB
		r.Kept = r.Kept && u.Kept
		r.Attacks = append(r.Attacks, u)
		fmt.Fprintf(o.Log, "%s: %s, then %.1f FPS\n", a.name, u.Figures, u.FPSAfter)
	}
	return r, nil
}

func (f Figures) String() string {
	return fmt.Sprintf("%.1f FPS, p95 %.0f ms, gap %.0f ms, new viewer %.0f ms, relay %.0f MB, %d goroutines, %.2f "+
		"processors", f.FPS, f.P95Ms, f.GapMs, f.NewViewerMs, f.PeakMB, f.Goroutines, f.CPU)
}

// one measures an attack on a new relay, or the baseline if a has no name.
func (o Options) one(ctx context.Context, binary string, a attack) (u Under, err error) {
	ctx, cancel := context.WithCancel(ctx)
	relay, err := load.StartAt(binary, "127.0.0.1", (*exec.Cmd).Start, "--http", "127.0.0.1:0", "--cache-total-bytes",
		fmt.Sprint(cacheBytes))
	if err != nil {
		cancel()
		return u, err
	}
	defer relay.Stop()
	v := watch(ctx, relay)
	defer v.wait()
	defer cancel()
	if err := v.first(ctx); err != nil {
		return u, err
	}
	_ = pause.For(ctx, 500*time.Millisecond)
	stop := func() error { return nil }
	if a.name != "" {
		if stop, err = o.attack(ctx, relay, a.name); err != nil {
			return u, err
		}
		_ = pause.For(ctx, time.Second)
	}
	cpu, err := relay.CPU()
	if err != nil {
		return u, err
	}
	began := time.Now()
	u.Name, u.About = a.name, a.about
	limit := newViewerLimit
	if o.newViewer > 0 && a.name != forged {
		limit = o.newViewer
	}
	var first []time.Duration
	// Wait longer if no frame has arrived: a stalled machine may deliver nothing for o.Time.
	for time.Since(began) < o.Time || u.FPS == 0 && time.Since(began) < o.Time+noFrameLimit {
		next := time.Now().Add(time.Second)
		first = append(first, newViewer(ctx, relay, limit))
		u.Goroutines = max(u.Goroutines, relay.Goroutines(ctx))
		_ = pause.For(ctx, max(0, min(time.Until(next), o.Time-time.Since(began))))
		u.FPS, _, _ = v.between(began, time.Now())
	}
	ended := time.Now()
	after, err := relay.CPU()
	if err != nil {
		return u, errors.Join(errors.New("the relay crashed"), err)
	}
	u.CPU = (after - cpu).Seconds() / ended.Sub(began).Seconds()
	u.FPS, u.P95Ms, u.GapMs = v.between(began, ended)
	u.NewViewerMs = load.Quantile(first, 0.5)
	if err := stop(); err != nil {
		return u, err
	}
	if a.name != "" {
		calm := time.Now().Add(time.Second)
		_ = pause.For(ctx, time.Until(calm.Add(o.Time/4)))
		u.FPSAfter, _, _ = v.between(calm, time.Now())
	}
	peak, err := relay.PeakMemory()
	u.PeakMB = float64(peak) / 1e6
	return u, err
}

// attack starts the attacker and waits until it is active. Raising niceness by 39 results in the
// lowest priority, whatever the initial niceness.
func (o Options) attack(ctx context.Context, relay *load.Relay, name string) (stop func() error, err error) {
	addr, hash := relay.Addr(), relay.Hash()
	args := append(append([]string{"-n", "39"}, o.Attacker...), name, addr, relay.HTTP(), hex.EncodeToString(hash[:]))
	cmd := exec.CommandContext(ctx, "nice", args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	output := &strings.Builder{}
	cmd.Stderr = output
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != started {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // ProcessState has the result
		return nil, fmt.Errorf("the attacker did not start: %s: %s", cmd.ProcessState, output.String())
	}
	return func() error {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // ProcessState has the result
		if cmd.ProcessState.Exited() {
			return fmt.Errorf("the attacker ended early: %s: %s", cmd.ProcessState, output.String())
		}
		return nil
	}, nil
}

// started is the attacker's first output.
const started = "attack started\n"

// Markdown returns the table.
func (r Result) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "A camera of %d frames of %d kB a second and its viewer, through a relay that is attacked for "+
		"%.0f s by each attack; then for 1 s without the attacker. ", FramesPerS, FrameBytes/1000, r.Seconds)
	b.WriteString("Camera, viewer and attackers share the machine and the address 127.0.0.1, so limits per address " +
		"do not separate them. The attackers are one process with the lowest priority, on one processor. ")
	fmt.Fprintf(&b, "The relay has its default limits and a cache of %d MiB; its memory limit is %.0f MB. Kept "+
		"means at least %d FPS, at most %d times the baseline's delay, and that memory limit.\n\n", cacheBytes>>20,
		r.LimitMB, leastFPS, mostDelays)
	fmt.Fprintf(&b, "| attack | FPS | delay p95 ms | longest gap ms | new viewer's first frame ms | relay MB | "+
		"goroutines | processors | FPS after | kept |\n")
	fmt.Fprintf(&b, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	row := func(name string, f Figures, after, kept string) {
		fmt.Fprintf(&b, "| %s | %.1f | %.0f | %.0f | %.0f | %.0f | %d | %.2f | %s | %s |\n", name, f.FPS, f.P95Ms,
			f.GapMs, f.NewViewerMs, f.PeakMB, f.Goroutines, f.CPU, after, kept)
	}
	row("none", r.Baseline, "", "")
	for _, u := range r.Attacks {
		kept := "yes"
		if !u.Kept {
			kept = "**no**"
		}
		row(u.Name, u.Figures, fmt.Sprintf("%.1f", u.FPSAfter), kept)
	}
	fmt.Fprintf(&b, "\n")
	for _, u := range r.Attacks {
		fmt.Fprintf(&b, "* **%s**: %s\n", u.Name, u.About)
	}
	return b.String()
}
