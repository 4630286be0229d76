package wan

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
	"holocast/internal/origin"
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
	const warm = time.Second
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
	run.figures(shown, warm, duration, time.Duration(p.changed*float64(time.Second)))
	report, err := lab.Finish()
	if err != nil {
		return run, err
	}
	run.Failures = report.Failures
	return run, nil
}

// publisher sends a stream.
type publisher struct {
	stream
	set    origin.Set
	tracks []*origin.Track
	feeds  []*origin.Feed // of the current groups
	first  uint64         // group

	mu    sync.Mutex
	began time.Time
	sent  []time.Duration // by frame
}

func newPublisher(s stream) *publisher {
	p := &publisher{stream: s, first: uint64(time.Now().UnixMilli()), feeds: make([]*origin.Feed, len(s.objects))}
	timeout := uint64(deliveryTimeout.Milliseconds())
	properties := wire.AppendKeyValues(nil,
		wire.KeyValue{Type: wire.PropertyObjectDeliveryTimeout, Int: timeout},
		wire.KeyValue{Type: wire.PropertySubgroupDeliveryTimeout, Int: timeout})
	for i := range s.objects {
		name := moqt.TrackName{Namespace: moqt.Namespace{"holocast", "bench"}, Name: fmt.Sprintf("points/%d/high", i)}
		t := origin.NewTrack(name, properties, origin.Limits{MaxAge: time.Second})
		p.set.Add(t)
		p.tracks = append(p.tracks, t)
	}
	return p
}

// run sends frames until ctx is done. All cameras capture at the same time.
func (p *publisher) run(ctx context.Context) {
	began := time.Now()
	p.mu.Lock()
	p.began = began
	p.mu.Unlock()
	for k := 0; ; k++ {
		due := began.Add(time.Duration(k) * time.Second / fps)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(due)):
		}
		p.mu.Lock()
		p.sent = append(p.sent, time.Since(began))
		p.mu.Unlock()
		for i, t := range p.tracks {
			p.send(t, i, k)
		}
	}
}

// send writes a frame to its group. It fails only after the session has ended.
func (p *publisher) send(t *origin.Track, camera, k int) {
	k += camera * p.stagger
	if k%p.group == 0 {
		if f := p.feeds[camera]; f != nil {
			_ = f.Close()
		}
		p.feeds[camera], _ = t.OpenSubgroup(wire.SubgroupHeader{
			Group: p.first + uint64(k/p.group), Mode: wire.SubgroupIDExplicit, Priority: wire.DefaultPriority,
			FirstObject: true, EndOfGroup: true,
		})
	}
	f := p.feeds[camera]
	if f == nil {
		return
	}
	objects := p.objects[camera]
	_ = f.WriteObject(moqt.Object{ID: uint64(k % p.group)}, objects[k%len(objects)])
	if p.group == 1 {
		_ = f.Close()
		p.feeds[camera] = nil
	}
}

// shown returns the sample of a frame that is shown now, or false if it was not sent.
func (p *publisher) shown(k int) (sample, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k < 0 || k >= len(p.sent) {
		return sample{}, false
	}
	return sample{p.sent[k], time.Since(p.began)}, true
}

// view is one camera's viewer. It shows each complete frame newer than the last.
type view struct {
	stream
	publisher *publisher
	camera    int

	mu     sync.Mutex
	newest int
	shown  []sample
}

func (v *view) receive(ctx context.Context, sub *moqt.Subscription) {
	var reading sync.WaitGroup
	defer reading.Wait()
	for {
		r, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			return
		}
		reading.Go(func() { v.read(r) })
	}
}

// read reads a group's frames. A frame after a missing one cannot be decoded.
func (v *view) read(r *moqt.SubgroupReader) {
	var payload []byte
	for next := 0; ; next++ {
		o, err := r.NextObject()
		if err != nil || o.ID != uint64(next) {
			r.Cancel(wire.StreamCancelled)
			return
		}
		if payload, err = r.ReadPayload(payload, math.MaxInt32); err != nil {
			return
		}
		v.show(int(r.Group-v.publisher.first)*v.group + next - v.camera*v.stagger)
	}
}

func (v *view) show(k int) {
	f, ok := v.publisher.shown(k)
	v.mu.Lock()
	defer v.mu.Unlock()
	if !ok || k <= v.newest {
		return
	}
	v.newest = k
	v.shown = append(v.shown, f)
}

func (v *view) all() []sample {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]sample(nil), v.shown...)
}
