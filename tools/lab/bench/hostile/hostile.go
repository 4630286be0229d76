// Package hostile attacks a relay in many ways while a camera is watched through it, and tells
// what its viewer notices. The attackers are a process of their own, on the same machine, at the
// lowest priority and on one processor: the figures are about what the relay lets them do, not
// about who gets the processor.
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
	"holocast/tools/lab/bench/internal/load"
)

// The camera: 37 Mbit/s.
const (
	FrameBytes = 154_000
	FramesPerS = 30
)

// What the relay is told to keep to, and what its viewer keeps at least.
const (
	cacheBytes  = 128 << 20
	limitBytes  = cacheBytes + cacheBytes/2 + 512<<20 // which a relay makes of that
	leastFPS    = 29
	mostDelays  = 3 // times the baseline's p95
	newViewerMs = 5000
)

var camera = moqt.TrackName{Namespace: moqt.Namespace{"holocast", "bench"}, Name: "points"}

// Options say what to measure.
type Options struct {
	Parts []string // attacks; nil = all
	Quick bool
	Time  time.Duration // of each attack; 0 = 10 s, or 5 s with Quick
	Log   io.Writer     // progress, a line each; nil for none
	// Relay is the relay's binary. "" means the one beside this program or, in the
	// source tree, one built for this run.
	Relay string
	// Attacker is a command that calls Attack with the arguments that follow it.
	Attacker []string
}

// Result is what a run measured.
type Result struct {
	Seconds  float64 `json:"seconds"`  // of each attack
	LimitMB  float64 `json:"limit_mb"` // of the relay's memory, as it is configured
	Baseline Figures `json:"baseline"` // without an attack
	Attacks  []Under `json:"attacks"`
	// Kept is whether in all attacks the viewer kept 29 frames a second and three times its
	// baseline's delay, and the relay its memory.
	Kept bool `json:"kept"`
}

// Figures are what a viewer has of the camera, and what the relay needs.
type Figures struct {
	FPS   float64 `json:"fps"`
	P95Ms float64 `json:"p95_ms"` // delay of whole frames
	GapMs float64 `json:"gap_ms"` // the longest time without one
	// NewViewerMs is from a new viewer's first packet to its first whole frame, median.
	NewViewerMs float64 `json:"new_viewer_first_frame_ms"`
	PeakMB      float64 `json:"relay_peak_mb"`
	Goroutines  int     `json:"goroutines"` // of the relay
	CPU         float64 `json:"relay_cpu"`  // processors that the relay kept busy
}

// Under is what is left under an attack, and after it.
type Under struct {
	Name  string `json:"name"`
	About string `json:"about"`
	Figures
	FPSAfter float64 `json:"fps_after"` // once the attacker has gone
	Kept     bool    `json:"kept"`
}

// Names lists the attacks.
func Names() (list []string) {
	for _, a := range attacks() {
		list = append(list, a.name)
	}
	return list
}

// Run measures.
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
		return r, errors.New("hostile: there is no attacker")
	}
	for _, part := range o.Parts {
		if !slices.Contains(Names(), part) {
			return r, fmt.Errorf("hostile: there is no attack %q; there are %s", part, strings.Join(Names(), ", "))
		}
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
		fmt.Fprintf(o.Log, "%s: %s, %.1f FPS after it\n", a.name, u.Figures, u.FPSAfter)
	}
	return r, nil
}

func (f Figures) String() string {
	return fmt.Sprintf("%.1f FPS, p95 %.0f ms, gap %.0f ms, new viewer %.0f ms, relay %.0f MB, %d goroutines, %.2f processors", f.FPS, f.P95Ms, f.GapMs, f.NewViewerMs, f.PeakMB, f.Goroutines, f.CPU)
}

// one measures an attack on a new relay, or with no name none.
func (o Options) one(ctx context.Context, binary string, a attack) (u Under, err error) {
	ctx, cancel := context.WithCancel(ctx)
	relay, err := load.StartAt(binary, "127.0.0.1", (*exec.Cmd).Start, "--http", "127.0.0.1:0", "--cache-total-bytes", fmt.Sprint(cacheBytes))
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
	pause(ctx, 500*time.Millisecond)
	stop := func() error { return nil }
	if a.name != "" {
		if stop, err = o.attack(ctx, relay, a.name); err != nil {
			return u, err
		}
		pause(ctx, time.Second)
	}
	cpu, err := relay.CPU()
	if err != nil {
		return u, err
	}
	began := time.Now()
	u.Name, u.About = a.name, a.about
	var first []time.Duration
	for time.Since(began) < o.Time {
		next := time.Now().Add(time.Second)
		first = append(first, newViewer(ctx, relay))
		u.Goroutines = max(u.Goroutines, relay.Goroutines(ctx))
		pause(ctx, min(time.Until(next), o.Time-time.Since(began)))
	}
	ended := time.Now()
	after, err := relay.CPU()
	if err != nil {
		return u, errors.Join(errors.New("the relay did not survive"), err)
	}
	u.CPU = (after - cpu).Seconds() / ended.Sub(began).Seconds()
	u.FPS, u.P95Ms, u.GapMs = v.between(began, ended)
	u.NewViewerMs = load.Quantile(first, 0.5)
	if err := stop(); err != nil {
		return u, err
	}
	if a.name != "" {
		calm := time.Now().Add(time.Second)
		pause(ctx, time.Until(calm.Add(o.Time/4)))
		u.FPSAfter, _, _ = v.between(calm, time.Now())
	}
	peak, err := relay.PeakMemory()
	u.PeakMB = float64(peak) / 1e6
	return u, err
}

// attack starts the attacker, which is under way then. 39 is the lowest priority, whatever ours.
func (o Options) attack(ctx context.Context, relay *load.Relay, name string) (stop func() error, err error) {
	addr, hash := relay.Addr(), relay.Hash()
	args := append(append([]string{"-n", "39"}, o.Attacker...), name, addr, relay.HTTP(), hex.EncodeToString(hash[:]))
	cmd := exec.CommandContext(ctx, "nice", args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	said := &strings.Builder{}
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != underWay {
		_ = cmd.Process.Kill()
		return nil, fmt.Errorf("the attacker did not start: %w: %s", cmd.Wait(), said.String())
	}
	return func() error {
		_ = cmd.Process.Kill()
		if err := cmd.Wait(); cmd.ProcessState.Exited() {
			return fmt.Errorf("the attacker ended: %w: %s", err, said.String())
		}
		return nil
	}, nil
}

// underWay is what the attacker says first.
const underWay = "under way\n"

// Markdown is the table of the result.
func (r Result) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "A camera of %d frames of %d kB a second and its viewer, through a relay that is attacked for %.0f s at a time; then 1 s later without the attacker. ", FramesPerS, FrameBytes/1000, r.Seconds)
	fmt.Fprintf(&b, "Camera, viewer and attackers share the machine and the address 127.0.0.1, which takes away the limits between addresses. The attackers are a process of the lowest priority, on one processor. ")
	fmt.Fprintf(&b, "The relay has its default limits, and a cache of %d MiB: it is to need no more than %.0f MB. To be kept: %d FPS, %d times the baseline's delay, that memory.\n\n", cacheBytes>>20, r.LimitMB, leastFPS, mostDelays)
	fmt.Fprintf(&b, "| attack | FPS | delay p95 ms | longest gap ms | new viewer's first frame ms | relay MB | goroutines | processors | FPS after | kept |\n")
	fmt.Fprintf(&b, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	row := func(name string, f Figures, after, kept string) {
		fmt.Fprintf(&b, "| %s | %.1f | %.0f | %.0f | %.0f | %.0f | %d | %.2f | %s | %s |\n", name, f.FPS, f.P95Ms, f.GapMs, f.NewViewerMs, f.PeakMB, f.Goroutines, f.CPU, after, kept)
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
