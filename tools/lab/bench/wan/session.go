package wan

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

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
	_ = f.WriteObject(moqt.Object{ID: uint64(k % p.group)}, p.object(camera, k))
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
