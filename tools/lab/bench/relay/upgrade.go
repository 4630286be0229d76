package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/tools/lab/bench/internal/cputime"
	"holocast/tools/lab/bench/internal/load"
	"holocast/tools/lab/bench/internal/realframes"
)

// The upgrade part sends up to FramesPerS frames per second. It sends each frame after all viewers
// have received the previous one.
const (
	upgradeViewers = 20
	lateJoiners    = 2 // after each upgrade
	upgrades       = 2
	upgradeEffect  = 2 * time.Second  // frames sent within this time after an upgrade count as affected
	lossTimeout    = 20 * time.Second // a frame that has not arrived by then is lost
)

// Upgrade is the effect on viewers of replacing the relay's process under load.
type Upgrade struct {
	Began      time.Time      `json:"began"`
	Source     string         `json:"source"` // of the frames
	FrameBytes int            `json:"frame_bytes"`
	Seconds    float64        `json:"seconds"`
	Sent       int            `json:"frames_sent"`
	Expected   int            `json:"frames_expected"` // over all viewers
	Lost       int            `json:"frames_lost"`     // missing or damaged
	Sessions   int            `json:"sessions_ended"`  // sessions that ended early
	UpgradeMs  []float64      `json:"upgrade_ms"`      // from the command until the new process is ready
	Delay      load.Quantiles `json:"delay_ms"`        // delay of complete frames that are not near an upgrade
	DelayAfter load.Quantiles `json:"delay_upgrade_ms"`
	GapMs      float64        `json:"longest_gap_ms"` // longest time between two frames at any viewer
	// LoadAverage is the kernel's one-minute load average before the run.
	LoadAverage float64 `json:"load_average"`
}

var errNotRoot = errors.New("upgrading the relay needs root, since it uses eBPF")

func (r *Upgrade) markdown() string {
	var took []string
	for _, ms := range r.UpgradeMs {
		took = append(took, fmt.Sprintf("%.0f", ms))
	}
	return fmt.Sprintf(
		`%s, %d kB on average, to %d viewers on loopback while the relay is replaced %d times; %d more viewers join
after each upgrade. Frames are sent 30 times a second, or slower if viewers do not keep up. Load average before the
run: %.1f.

`+"| frames sent | frames/s | expected by viewers | lost | sessions ended | upgrade took ms | "+
			"delay p50 / p99 ms | until %d s after an upgrade | longest gap ms |\n"+
			`| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| %d | %.1f | %d | %d | %d | %s | %.0f / %.0f | %.0f / %.0f | %.0f |
`,
		r.Source,
		r.FrameBytes/1000,
		upgradeViewers,
		upgrades,
		lateJoiners,
		r.LoadAverage,
		int(upgradeEffect.Seconds()),
		r.Sent,
		float64(r.Sent)/r.Seconds,
		r.Expected,
		r.Lost,
		r.Sessions,
		strings.Join(took, ", "),
		r.Delay.P50,
		r.Delay.P99,
		r.DelayAfter.P50,
		r.DelayAfter.P99,
		r.GapMs,
	)
}

// upgradeRun is the state of one measurement.
type upgradeRun struct {
	frames  [][]byte
	arrived chan struct{} // signalled by viewers

	mu       sync.Mutex
	sent     map[uint64]time.Time
	last     uint64
	viewers  []*upgradeViewer
	upgrades [][2]time.Time // command and readiness
}

// upgradeViewer records when each frame was complete at one viewer.
type upgradeViewer struct {
	first    uint64 // first frame it must receive
	complete map[uint64]time.Time
	ended    bool
}

// upgradeUnderLoad measures upgrades. It needs root.
func upgradeUnderLoad(ctx context.Context, o Options) (out *Upgrade, err error) {
	phase := 8 * time.Second // before, between and after upgrades
	if o.Quick {
		phase = 2 * time.Second
	}
	out = &Upgrade{Began: time.Now()}
	r := &upgradeRun{arrived: make(chan struct{}, 1), sent: map[uint64]time.Time{}}
	if out.Source, r.frames, err = realframes.Load(o.Data); err != nil {
		return nil, err
	}
	for _, f := range r.frames {
		out.FrameBytes += len(f) / len(r.frames)
	}
	out.LoadAverage = cputime.LoadAverage()
	binary, remove, err := load.Binary(ctx, o.Relay)
	if err != nil {
		return nil, err
	}
	defer remove()
	// Frames that a busy machine delays must not expire from the cache.
	relay, err := load.StartAt(
		binary,
		"127.0.0.1",
		(*exec.Cmd).Start,
		append(load.Unlimited(), "--cache-max-age", "1m")...)
	if err != nil {
		return nil, err
	}
	defer relay.Stop()
	track := load.NewTrack(relay, "upgrade")
	unpublish, err := relay.Publish(ctx, track)
	if err != nil {
		return nil, err
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
	sending, stop := context.WithCancel(ctx)
	defer stop()
	running.Go(func() { failed <- r.send(sending, track) })
	if err := join(upgradeViewers); err != nil {
		return nil, err
	}
	began := time.Now()
	for i := range upgrades + 1 {
		if i > 0 {
			command := time.Now()
			pid, err := upgrade(ctx, binary, relay.Addr())
			if err != nil {
				return nil, err
			}
			defer func() { _ = syscall.Kill(pid, syscall.SIGTERM) }()
			r.mu.Lock()
			r.upgrades = append(r.upgrades, [2]time.Time{command, time.Now()})
			r.mu.Unlock()
			out.UpgradeMs = append(out.UpgradeMs, float64(time.Since(command))/1e6)
			fmt.Fprintf(o.Log, "upgrade %d of %d took %d ms\n", i, upgrades, time.Since(command).Milliseconds())
			if err := join(lateJoiners); err != nil {
				return nil, err
			}
		}
		select {
		case err := <-failed:
			return nil, err
		case <-time.After(phase):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	out.Seconds = time.Since(began).Seconds()
	stop()
	if err := <-failed; err != nil {
		return nil, err
	}
	r.result(out)
	return out, ctx.Err()
}

// upgrade replaces the relay at addr. It returns the new process's ID.
func upgrade(ctx context.Context, binary, addr string) (pid int, err error) {
	out, err := exec.CommandContext(ctx, binary, "upgrade", "--listen", addr).CombinedOutput()
	if err == nil {
		_, err = fmt.Sscanf(string(out), "process %d takes new sessions", &pid)
	}
	if err != nil {
		return 0, fmt.Errorf("upgrade relay: %w: %s", err, bytes.TrimSpace(out))
	}
	return pid, nil
}

// watch subscribes to the track. It expects all frames from the next one on.
func (r *upgradeRun) watch(ctx context.Context, running *sync.WaitGroup, s *moqt.Session, name moqt.TrackName) error {
	sub, err := s.Subscribe(ctx, name, moqt.SubscribeOptions{})
	if err != nil {
		return err
	}
	v := &upgradeViewer{complete: map[uint64]time.Time{}}
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
			running.Go(func() { r.receive(v, g) })
		}
	})
	return nil
}

func (r *upgradeRun) receive(v *upgradeViewer, g *moqt.SubgroupReader) {
	if _, err := g.NextObject(); err != nil {
		return
	}
	b, err := g.ReadPayload(nil, 64<<20)
	if err != nil || !bytes.Equal(b, r.frame(g.Group)) {
		return
	}
	r.mu.Lock()
	v.complete[g.Group] = time.Now()
	r.mu.Unlock()
	select {
	case r.arrived <- struct{}{}:
	default:
	}
	_, _ = g.NextObject() // reading to the end releases the stream
}

func (r *upgradeRun) frame(group uint64) []byte { return r.frames[group%uint64(len(r.frames))] }

// send sends frames until ctx is done and all have arrived or are lost.
func (r *upgradeRun) send(ctx context.Context, t *origin.Track) error {
	tick := time.NewTicker(time.Second / FramesPerS)
	defer tick.Stop()
	for {
		deadline := time.NewTimer(lossTimeout)
		for over := false; !over && !r.complete(); {
			select {
			case <-r.arrived:
			case <-deadline.C:
				over = true // counted as lost
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
		if err := t.WriteObject(wire.SubgroupHeader{Group: group, FirstObject: true, EndOfGroup: true}, moqt.Object{},
			r.frame(group)); err != nil {
			return err
		}
	}
}

// complete reports whether all viewers have the newest frame.
func (r *upgradeRun) complete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.viewers {
		if _, ok := v.complete[r.last]; !ok && v.first <= r.last && !v.ended {
			return false
		}
	}
	return true
}

func (r *upgradeRun) result(out *Upgrade) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out.Sent = int(r.last)
	var normal, affected []time.Duration
	for _, v := range r.viewers {
		if v.ended {
			out.Sessions++
		}
		var before time.Time
		for group := v.first; group <= r.last; group++ {
			out.Expected++
			at, ok := v.complete[group]
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
				near = near || sent.After(u[0]) && sent.Before(u[1].Add(upgradeEffect))
			}
			if near {
				affected = append(affected, at.Sub(sent))
			} else {
				normal = append(normal, at.Sub(sent))
			}
		}
	}
	quantiles := func(d []time.Duration) (q load.Quantiles) {
		if len(d) > 0 { // JSON has no NaN
			q = load.Sample{Delays: d}.Quantiles()
		}
		return q
	}
	out.Delay, out.DelayAfter = quantiles(normal), quantiles(affected)
}
