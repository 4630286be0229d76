// Package upgrade replaces a relay by new processes while viewers watch a camera: whether a frame is
// lost, and what happens to its delay.
package upgrade

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/tools/bench/internal/load"
	"holocast/tools/bench/internal/realframes"
)

// What is sent, and to whom.
const (
	FramesPerS = 30 // at most: a frame is sent when all viewers have the last
	Viewers    = 20 // from the beginning
	Newcomers  = 2  // after each upgrade
	Upgrades   = 2
	after      = 2 * time.Second  // of an upgrade: when the delay may show it
	limit      = 20 * time.Second // after which a frame is lost
)

// Options say how to measure.
type Options struct {
	Data  string // folder with recordings of real cameras; "" where there is none
	Quick bool
	Log   io.Writer // progress, a line each; nil for none
	Relay string    // its binary; "" as of load.Binary
}

// Result is what a run measured.
type Result struct {
	Source     string         `json:"source"` // of the frames
	FrameBytes int            `json:"frame_bytes"`
	Seconds    float64        `json:"seconds"`
	Sent       int            `json:"frames_sent"`
	Expected   int            `json:"frames_expected"` // at all viewers together
	Lost       int            `json:"frames_lost"`     // of those: missing or damaged
	Sessions   int            `json:"sessions_ended"`  // before their time
	UpgradeMs  []float64      `json:"upgrade_ms"`      // from asked for to serving
	Delay      load.Quantiles `json:"delay_ms"`        // of whole frames, while no upgrade was under way or just over
	DelayAfter load.Quantiles `json:"delay_upgrade_ms"`
	GapMs      float64        `json:"longest_gap_ms"` // between two frames at any viewer
	// LoadAverage is the kernel's, of one minute, before the run.
	LoadAverage float64 `json:"load_average"`
}

// Markdown is the result for people.
func (r Result) Markdown() string {
	var took []string
	for _, ms := range r.UpgradeMs {
		took = append(took, fmt.Sprintf("%.0f", ms))
	}
	return fmt.Sprintf(`%s, %d kB on average, to %d viewers on loopback while the relay is replaced %d times; %d more viewers come
after each upgrade. Frames are sent 30 times a second, or as fast as all viewers have them. The load average before the run, by other
work, was %.1f.

| frames sent | frames/s | expected by viewers | lost | sessions ended | upgrade took ms | delay p50 / p99 ms | of frames during an upgrade and %d s after | longest gap ms |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| %d | %.1f | %d | %d | %d | %s | %.0f / %.0f | %.0f / %.0f | %.0f |
`, r.Source, r.FrameBytes/1000, Viewers, Upgrades, Newcomers, r.LoadAverage, int(after.Seconds()),
		r.Sent, float64(r.Sent)/r.Seconds, r.Expected, r.Lost, r.Sessions, strings.Join(took, ", "), r.Delay.P50, r.Delay.P99, r.DelayAfter.P50, r.DelayAfter.P99, r.GapMs)
}

// run is one measurement.
type run struct {
	frames  [][]byte
	arrived chan struct{} // signalled by viewers

	mu       sync.Mutex
	sent     map[uint64]time.Time
	last     uint64
	viewers  []*viewer
	upgrades [][2]time.Time // from asked for to serving
}

// viewer notes when it had which frame.
type viewer struct {
	first uint64 // that it must have
	whole map[uint64]time.Time
	ended bool
}

// Run measures. It needs the right to use eBPF, as an upgrade does.
func Run(ctx context.Context, o Options) (out Result, err error) {
	if o.Log == nil {
		o.Log = io.Discard
	}
	phase := 8 * time.Second // before, between and after upgrades
	if o.Quick {
		phase = 2 * time.Second
	}
	r := &run{arrived: make(chan struct{}, 1), sent: map[uint64]time.Time{}}
	if out.Source, r.frames, err = realframes.Load(o.Data); err != nil {
		return out, err
	}
	for _, f := range r.frames {
		out.FrameBytes += len(f) / len(r.frames)
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(b), &out.LoadAverage)
	}
	binary, remove, err := load.Binary(ctx, o.Relay)
	if err != nil {
		return out, err
	}
	defer remove()
	// A frame that a busy machine delays is not too old for the cache.
	relay, err := load.StartAt(binary, "127.0.0.1", (*exec.Cmd).Start, append(load.Unlimited(), "--cache-max-age", "1m")...)
	if err != nil {
		return out, err
	}
	defer relay.Stop()
	track := load.NewTrack(relay, "upgrade")
	unpublish, err := relay.Publish(ctx, track)
	if err != nil {
		return out, err
	}
	defer unpublish()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	join := func(n int) error {
		for range n {
			s, err := relay.View(ctx)
			if err != nil {
				return err
			}
			running.Go(func() { <-ctx.Done(); s.Close(wire.NoError, "") })
			if err := r.watch(ctx, &running, s, track.Name()); err != nil {
				return err
			}
		}
		return nil
	}
	failed := make(chan error, 1)
	shooting, stop := context.WithCancel(ctx)
	defer stop()
	running.Go(func() { failed <- r.shoot(shooting, track) })
	if err := join(Viewers); err != nil {
		return out, err
	}
	began := time.Now()
	for i := range Upgrades + 1 {
		if i > 0 {
			asked := time.Now()
			pid, err := upgrade(ctx, binary, relay.Addr())
			if err != nil {
				return out, err
			}
			defer func() { _ = syscall.Kill(pid, syscall.SIGTERM) }()
			r.mu.Lock()
			r.upgrades = append(r.upgrades, [2]time.Time{asked, time.Now()})
			r.mu.Unlock()
			out.UpgradeMs = append(out.UpgradeMs, float64(time.Since(asked))/1e6)
			fmt.Fprintf(o.Log, "upgrade %d of %d took %d ms\n", i, Upgrades, time.Since(asked).Milliseconds())
			if err := join(Newcomers); err != nil {
				return out, err
			}
		}
		select {
		case err := <-failed:
			return out, err
		case <-time.After(phase):
		case <-ctx.Done():
			return out, ctx.Err()
		}
	}
	out.Seconds = time.Since(began).Seconds()
	stop()
	if err := <-failed; err != nil {
		return out, err
	}
	r.result(&out)
	return out, ctx.Err()
}

// upgrade has the relay at an address replaced, and returns the new process.
func upgrade(ctx context.Context, binary, addr string) (pid int, err error) {
	out, err := exec.CommandContext(ctx, binary, "upgrade", "--listen", addr).CombinedOutput()
	if err == nil {
		_, err = fmt.Sscanf(string(out), "process %d takes new sessions", &pid)
	}
	if err != nil {
		return 0, fmt.Errorf("relay upgrade: %w: %s", err, bytes.TrimSpace(out))
	}
	return pid, nil
}

// watch subscribes, and expects all frames from the next on.
func (r *run) watch(ctx context.Context, running *sync.WaitGroup, s *moqt.Session, name moqt.TrackName) error {
	sub, err := s.Subscribe(ctx, name, moqt.SubscribeOptions{})
	if err != nil {
		return err
	}
	v := &viewer{whole: map[uint64]time.Time{}}
	r.mu.Lock()
	v.first = r.last + 1
	r.viewers = append(r.viewers, v)
	r.mu.Unlock()
	running.Go(func() {
		for {
			g, err := sub.AcceptSubgroup(ctx)
			if err != nil {
				r.mu.Lock()
				v.ended = ctx.Err() == nil
				r.mu.Unlock()
				return
			}
			running.Go(func() { r.take(v, g) })
		}
	})
	return nil
}

// take reads a frame.
func (r *run) take(v *viewer, g *moqt.SubgroupReader) {
	if _, err := g.NextObject(); err != nil {
		return
	}
	b, err := g.ReadPayload(nil, 64<<20)
	if err != nil || !bytes.Equal(b, r.frame(g.Group)) {
		return
	}
	r.mu.Lock()
	v.whole[g.Group] = time.Now()
	r.mu.Unlock()
	select {
	case r.arrived <- struct{}{}:
	default:
	}
	_, _ = g.NextObject() // the stream's end, so that another may be opened
}

func (r *run) frame(group uint64) []byte { return r.frames[group%uint64(len(r.frames))] }

// shoot sends frames until ctx ends and all have arrived.
func (r *run) shoot(ctx context.Context, t *origin.Track) error {
	tick := time.NewTicker(time.Second / FramesPerS)
	defer tick.Stop()
	for {
		deadline := time.NewTimer(limit)
		for over := false; !over && !r.complete(); {
			select {
			case <-r.arrived:
			case <-deadline.C:
				over = true // it is counted as lost
			}
		}
		deadline.Stop()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		r.mu.Lock()
		r.last++
		group := r.last
		r.sent[group] = time.Now()
		r.mu.Unlock()
		if err := t.WriteObject(wire.SubgroupHeader{Group: group, FirstObject: true, EndOfGroup: true}, moqt.Object{}, r.frame(group)); err != nil {
			return err
		}
	}
}

// complete reports whether all viewers have the last frame.
func (r *run) complete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.viewers {
		if _, ok := v.whole[r.last]; !ok && v.first <= r.last && !v.ended {
			return false
		}
	}
	return true
}

func (r *run) result(out *Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out.Sent = int(r.last)
	var calm, upgraded []time.Duration
	for _, v := range r.viewers {
		if v.ended {
			out.Sessions++
		}
		var before time.Time
		for group := v.first; group <= r.last; group++ {
			out.Expected++
			at, ok := v.whole[group]
			if !ok {
				out.Lost++
				continue
			}
			if !before.IsZero() {
				out.GapMs = max(out.GapMs, float64(at.Sub(before))/1e6)
			}
			before = at
			sent := r.sent[group]
			near := false
			for _, u := range r.upgrades {
				near = near || sent.After(u[0]) && sent.Before(u[1].Add(after))
			}
			if near {
				upgraded = append(upgraded, at.Sub(sent))
			} else {
				calm = append(calm, at.Sub(sent))
			}
		}
	}
	quantiles := func(d []time.Duration) (q load.Quantiles) {
		if len(d) > 0 { // JSON has no NaN
			q = load.Quantiles{P50: load.Quantile(d, 0.5), P99: load.Quantile(d, 0.99)}
		}
		return q
	}
	out.Delay, out.DelayAfter = quantiles(calm), quantiles(upgraded)
}
