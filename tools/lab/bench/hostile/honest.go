package hostile

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/pause"
	"holocast/tools/lab/bench/internal/load"
)

// viewer watches the camera like a player, reconnecting when necessary.
type viewer struct {
	wg sync.WaitGroup

	mu      sync.Mutex
	sent    map[uint64]time.Time
	frames  []frame // in order of arrival
	arrived chan struct{}
}

type frame struct {
	at    time.Time
	delay time.Duration
}

// watch publishes the camera to a relay and views it until ctx is done.
func watch(ctx context.Context, relay *load.Relay) *viewer {
	v := &viewer{sent: map[uint64]time.Time{}, arrived: make(chan struct{}, 1)}
	t := origin.NewTrack(camera, wire.AppendKeyValues(nil, wire.KeyValue{Type: wire.PropertyDynamicGroups, Int: 1}),
		origin.Limits{})
	t.NewGroup = func(uint64) {} // each frame is a group
	v.wg.Go(func() { v.film(ctx, t) })
	v.wg.Go(func() { repeat(ctx, func() error { return offer(ctx, relay, t) }) })
	v.wg.Go(func() { repeat(ctx, func() error { return v.see(ctx, relay) }) })
	return v
}

func (v *viewer) wait() { v.wg.Wait() }

// film captures the frames.
func (v *viewer) film(ctx context.Context, t *origin.Track) {
	payload := make([]byte, FrameBytes)
	tick := time.NewTicker(time.Second / FramesPerS)
	defer tick.Stop()
	for group := uint64(0); ; group++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		v.mu.Lock()
		v.sent[group] = time.Now()
		v.mu.Unlock()
		_ = t.WriteObject(wire.SubgroupHeader{Group: group, FirstObject: true, EndOfGroup: true}, moqt.Object{},
			payload)
	}
}

// offer publishes the camera in a session until the session ends.
func offer(ctx context.Context, relay *load.Relay, t *origin.Track) error {
	var set origin.Set
	set.Add(t)
	s, err := relay.Dial(ctx, "moqt", set.Handler())
	if err != nil {
		return err
	}
	defer s.Close(wire.NoError, "")
	ns, err := s.PublishNamespace(ctx, camera.Namespace)
	if err != nil {
		return err
	}
	select {
	case <-ns.Done():
		return ns.Err()
	case <-ctx.Done():
		return nil
	}
}

// see views the camera in a session until the session ends.
func (v *viewer) see(ctx context.Context, relay *load.Relay) error {
	s, err := relay.View(ctx)
	if err != nil {
		return err
	}
	defer s.Close(wire.NoError, "")
	sub, err := s.Subscribe(ctx, camera, moqt.SubscribeOptions{})
	if err != nil {
		return err
	}
	for {
		r, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			return err
		}
		v.wg.Go(func() {
			v.take(r)
			_, _ = r.NextObject() // reading to the end releases the stream
		})
	}
}

// take reads a frame.
func (v *viewer) take(r *moqt.SubgroupReader) {
	if !load.ReadFrame(r, FrameBytes) {
		return
	}
	now := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.frames = append(v.frames, frame{now, now.Sub(v.sent[r.Group])})
	select {
	case v.arrived <- struct{}{}:
	default:
	}
}

// first waits for the first frame.
func (v *viewer) first(ctx context.Context) error {
	select {
	case <-v.arrived:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(noFrameLimit):
		return errors.New("the viewer received no frame within a minute, even without an attack")
	}
}

// between returns the figures for the frames that arrived between from and to.
func (v *viewer) between(from, to time.Time) (fps, p95, gap float64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var delays []time.Duration
	arrivals := []time.Time{from}
	for _, f := range v.frames {
		if f.at.After(from) && f.at.Before(to) {
			delays = append(delays, f.delay)
			arrivals = append(arrivals, f.at)
		}
	}
	arrivals = append(arrivals, to)
	slices.SortFunc(arrivals, time.Time.Compare)
	var longest time.Duration
	for i := range len(arrivals) - 1 {
		longest = max(longest, arrivals[i+1].Sub(arrivals[i]))
	}
	if len(delays) > 0 {
		p95 = load.Quantile(delays, 0.95)
	}
	return float64(len(delays)) / to.Sub(from).Seconds(), p95, float64(longest.Microseconds()) / 1000
}

// newViewer returns the time from a new viewer's first packet to its first complete frame. It gives
// up after limit.
func newViewer(ctx context.Context, relay *load.Relay, limit time.Duration) time.Duration {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for ctx.Err() == nil {
		if err := firstFrame(ctx, relay); err == nil {
			break
		}
		_ = pause.For(ctx, 20*time.Millisecond)
	}
	return time.Since(began)
}

// firstFrame returns once a new session has received a complete frame, either cached or live.
func firstFrame(ctx context.Context, relay *load.Relay) error {
	s, err := relay.View(ctx)
	if err != nil {
		return err
	}
	defer s.Close(wire.NoError, "")
	sub, err := s.Subscribe(ctx, camera, moqt.SubscribeOptions{Join: true})
	if err != nil {
		return err
	}
	got := make(chan error, 2)
	go func() {
		f, err := sub.Joined(ctx)
		if err == nil {
			defer f.Cancel()
			if _, err = f.Next(); err == nil {
				_, err = f.ReadPayload(nil, FrameBytes)
			}
		}
		got <- err
	}()
	go func() {
		r, err := sub.AcceptSubgroup(ctx)
		if err == nil {
			if _, err = r.NextObject(); err == nil {
				_, err = io.Copy(io.Discard, r)
			}
		}
		got <- err
	}()
	if err = <-got; err != nil {
		err = <-got
	}
	return err
}
