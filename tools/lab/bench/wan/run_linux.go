package wan

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
	"holocast/internal/pause"
	"holocast/internal/quiccc"
	"holocast/tools/lab/bench/internal/load"
)

// attempts bounds how often a path is tried while the emulator is late.
const attempts = 2

// measurePaths measures all contenders over all paths.
func (r *Result) measurePaths(ctx context.Context, o Options, from []*sequence, frames int) error {
	if err := netlab.Supported(); err != nil {
		return err
	}
	if !quiccc.Patched() {
		return errors.New("this program lacks our quic-go patches (congestion control, stream priorities): build it " +
			"with make")
	}
	seconds := 15
	if o.Quick {
		seconds = 6
	}
	list, err := paths(o.Data, o.Quick, seconds)
	if err != nil {
		return err
	}
	contenders, err := streams(ctx, from, frames, o.Log)
	if err != nil {
		return err
	}
	binary, remove, err := load.Binary(ctx, "")
	if err != nil {
		return err
	}
	defer remove()
	for _, p := range list {
		for _, s := range contenders {
			if s.contender == layoutA && p.name != homePath { // it needs 16 times this rate
				continue
			}
			for attempt := 1; ; attempt++ {
				run, err := measurePath(ctx, p, s, binary, time.Duration(seconds)*time.Second)
				if err != nil {
					return fmt.Errorf("%s over %s: %w", s.contender, p.name, err)
				}
				if len(run.Failures) > 0 && attempt < attempts && !o.Quick {
					continue
				}
				fmt.Fprintf(o.Log, "%s over %s: %.1f frames/s, delay p50 %.0f p95 %.0f ms, %d freezes\n", s.contender, p.name,
					run.FPS, run.DelayP50, run.DelayP95, run.Freezes200)
				r.Paths = append(r.Paths, run)
				break
			}
		}
	}
	return nil
}

// measurePath runs publisher and relay on host a and the viewer on host b.
func measurePath(ctx context.Context, p path, s stream, binary string, duration time.Duration) (run PathRun,
	err error,
) {
	t, err := topology.OnePath("wan", p.conditions())
	if err != nil {
		return run, err
	}
	lab, err := netlab.Start(t, netlab.Options{})
	if err != nil {
		return run, err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	a, b := lab.Node("a"), lab.Node("b")
	relay, err := load.StartAt(binary, a.Addr.String(), a.Start, load.Unlimited()...)
	if err != nil {
		return run, err
	}
	defer relay.Stop()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	pub := newPublisher(s)
	dial := func(n *netlab.Node, h moqt.Handler) (session *moqt.Session, err error) {
		err = n.Namespace.Do(func() error {
			session, err = relay.Dial(ctx, "moqt", h)
			return err
		})
		return session, err
	}
	publishing, err := dial(a, pub.set.Handler())
	if err != nil {
		return run, err
	}
	defer publishing.Close(wire.NoError, "")
	if _, err := publishing.PublishNamespace(ctx, pub.tracks[0].Name().Namespace); err != nil {
		return run, err
	}
	viewing, err := dial(b, moqt.Handler{})
	if err != nil {
		return run, err
	}
	defer viewing.Close(wire.NoError, "")
	views := make([]*view, len(pub.tracks))
	for i, track := range pub.tracks {
		sub, err := viewing.Subscribe(ctx, track.Name(), moqt.SubscribeOptions{})
		if err != nil {
			return run, err
		}
		views[i] = &view{stream: s, publisher: pub, camera: i, newest: -1}
		running.Go(func() { views[i].receive(ctx, sub) })
	}
	if err := lab.Begin(); err != nil {
		return run, err
	}
	running.Go(func() { pub.run(ctx) })
	if err := pause.For(ctx, duration); err != nil {
		return run, err
	}
	if err := pause.For(ctx, deliveryTimeout+time.Second); err != nil { // for frames in flight
		return run, err
	}
	run = PathRun{Path: p.name, Contender: s.contender, Mbps: s.mbps(), DepthQP: s.qp}
	var shown [][]sample
	for _, v := range views {
		shown = append(shown, v.all())
	}
	run.figures(shown, warmup, duration, time.Duration(p.changed*float64(time.Second)))
	report, err := lab.Finish()
	if err != nil {
		return run, err
	}
	run.Failures = report.Failures
	return run, nil
}
