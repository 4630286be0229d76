package sphere

import (
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/loc"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// replayProperty is the track property of a replayed recording (docs/spec/replay.md).
const replayProperty = 0x6863_7270

// Priorities of what is subscribed to; tiles come behind, by their order.
const (
	priorityRates  = 16
	prioritySound  = 24
	priorityVideo  = 32
	priorityTile   = 64 // of the most important tile
	priorityUrgent = 160
)

// subscription is a tile's.
type subscription struct {
	key
	first    uint64 // group
	last     uint64 // group after which it ends; 0 = it does not
	priority uint8
	cancel   context.CancelFunc

	sub *moqt.Subscription // once it is accepted
}

// receiveTrack subscribes to a track from its largest object on and takes the group under way
// first. It returns why the subscription ended.
func (v *Viewer) receiveTrack(ctx context.Context, s *moqt.Session, name moqt.TrackName, k key, timeout time.Duration) error {
	for {
		sub, err := s.Subscribe(ctx, name, moqt.SubscribeOptions{
			Filter: &moqt.Filter{Type: wire.FilterLargestObject}, Priority: new(uint8(priorityVideo)),
			ObjectDeliveryTimeout: timeout, Join: true, RendezvousTimeout: 20 * time.Second,
		})
		v.count(func(c *counters) { c.Subscribes++ })
		if err != nil {
			return err
		}
		err = v.receive(ctx, sub, k, true)
		sub.Cancel()
		var done *moqt.DoneError
		if !errors.As(err, &done) || done.Code == wire.DoneTrackEnded || done.Code == wire.DoneSubscriptionEnded {
			return err
		}
		v.log.Warn("the publisher is away", "track", name.String(), "reason", err)
	}
}

// receive takes what a subscription brings until it ends, and returns why.
func (v *Viewer) receive(ctx context.Context, sub *moqt.Subscription, k key, join bool) error {
	replay, _ := sub.Properties.Int(replayProperty)
	if replay != 0 {
		v.mu.Lock()
		v.replayed = true
		v.mu.Unlock()
	}
	var reading sync.WaitGroup
	defer reading.Wait()
	if join && sub.Largest != nil {
		reading.Go(func() {
			f, err := sub.Joined(ctx)
			if err == nil {
				err = v.readFetch(ctx, f, k)
			}
			if err != nil && ctx.Err() == nil {
				v.log.Debug("the group under way cannot be fetched", "track", sub.Track().String(), "err", err)
			}
		})
	}
	for {
		r, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			if ctx.Err() != nil {
				sub.Cancel() // so that readers of open subgroups return
			}
			return err
		}
		reading.Go(func() { v.readGroup(r, k) })
	}
}

func (v *Viewer) readGroup(r *moqt.SubgroupReader, k key) {
	for {
		o, err := r.NextObject()
		if err == nil && o.Status != wire.StatusNormal {
			continue
		}
		var payload []byte
		if err == nil {
			payload, err = r.ReadPayload(nil, maxObject)
		}
		if err == nil {
			v.add(k, r.Group, o.ID, o.Properties, payload, time.Now(), false)
			continue
		}
		if err == io.EOF {
			v.mu.Lock()
			v.complete(k, r.Group)
			v.mu.Unlock()
			return
		}
		r.Cancel(wire.StreamCancelled)
		if e := (*moqt.StreamError)(nil); errors.As(err, &e) && e.Remote {
			v.count(func(c *counters) { c.Reset++ })
		}
		return
	}
}

func (v *Viewer) readFetch(ctx context.Context, f *moqt.FetchReader, k key) error {
	return f.Each(ctx, maxObject, func(o wire.FetchObject, payload []byte) error {
		v.add(k, o.Group, o.Object, o.Properties, payload, time.Now(), true)
		return nil
	})
}

// add takes a frame. Objects that were fetched are older than what is sent now and say
// nothing about delay.
func (v *Viewer) add(k key, id, object uint64, properties wire.Properties, payload []byte, now time.Time, fetched bool) {
	p, err := loc.Parse(properties)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.interval.bytes += len(payload)
	v.interval.objects++
	v.train.Add(now.Sub(v.opened).Seconds(), len(payload), id, k.tile >= 0 && object == 0 && !fetched)
	v.counters.Bytes += uint64(len(payload))
	if err != nil || object >= maxFrames {
		v.counters.Damaged++
		return
	}
	if k.tile >= 0 && !v.began {
		return
	}
	if v.began && id+keepGroups < v.newest {
		return
	}
	g := v.groups[id]
	if g == nil {
		if k.tile >= 0 && id > v.newest+keepGroups {
			v.counters.Damaged++
			return
		}
		if id < v.forgotten {
			return // it is not to be judged again
		}
		g = &group{id: id, tracks: map[key]*received{}}
		v.groups[id] = g
	}
	if !v.store(g, k, object, &p, payload, now) {
		return
	}
	whole := k.tile < 0
	if whole && v.replayed && v.began && id > v.newest && object == 0 && p.Timestamp.Before(v.groups[v.newest].start) {
		v.again()
	}
	if !fetched {
		// Tiles of a replay may be of the time before it began again.
		if delay := now.Sub(p.Timestamp); delay < v.least && (whole || !v.replayed) {
			v.least = delay
		} else if v.least < math.MaxInt64 && delay > v.least+v.latency/2 {
			v.interval.late++
		}
		if whole && !v.replayed && v.cfg.Relay != nil && v.cfg.Relay() && len(v.judge.arrivals) < maxSlots {
			v.judge.arrivals = append(v.judge.arrivals, now.Sub(v.local(p.Timestamp)).Seconds())
		}
	}
	if whole && (!v.began || id > v.newest) && object == 0 {
		if v.first.IsZero() || p.Timestamp.Before(v.first) {
			v.first = p.Timestamp
		}
		v.newest, v.began = id, true
	}
}

// store keeps a frame that came at a time, unless it is here already. v.mu is held.
func (v *Viewer) store(g *group, k key, object uint64, p *loc.Properties, payload []byte, at time.Time) bool {
	if g.start.IsZero() && object == 0 {
		g.start = p.Timestamp
	}
	r := g.tracks[k]
	if r == nil {
		r = &received{}
		g.tracks[k] = r
	}
	for uint64(len(r.frames)) <= object {
		r.frames = append(r.frames, frame{})
	}
	if r.frames[object].payload != nil {
		return false
	}
	if r.bytes+len(payload) > maxGroup {
		v.counters.Damaged++
		return false
	}
	r.frames[object] = frame{payload, at, p.Timestamp}
	r.bytes += len(payload)
	if p.VideoConfig != nil {
		r.config = p.VideoConfig
	}
	return true
}

// again notes that a replay begins again: its timestamps go back, and with them the clock. What
// came before is judged by the clock that it came by. v.mu is held.
func (v *Viewer) again() {
	for _, id := range slices.Sorted(maps.Keys(v.groups)) {
		if g := v.groups[id]; id <= v.newest && !g.judged && !g.start.IsZero() {
			v.judgeGroup(g)
		}
	}
	v.least = math.MaxInt64
}

// followSound counts a session's sound for as long as it lasts.
func (v *Viewer) followSound(ctx context.Context, s *moqt.Session, name moqt.TrackName, timeout time.Duration) {
	for ctx.Err() == nil {
		sub, err := s.Subscribe(ctx, name, moqt.SubscribeOptions{
			Filter: &moqt.Filter{Type: wire.FilterLargestObject}, Priority: new(uint8(prioritySound)),
			ObjectDeliveryTimeout: timeout, RendezvousTimeout: 20 * time.Second,
		})
		v.count(func(c *counters) { c.Subscribes++ })
		if err != nil {
			if ctx.Err() == nil {
				v.log.Warn("the session's sound cannot be received", "err", err)
			}
			return
		}
		var reading sync.WaitGroup
		for {
			r, err := sub.AcceptSubgroup(ctx)
			if err != nil {
				break
			}
			reading.Go(func() { v.readSound(r) })
		}
		sub.Cancel()
		reading.Wait()
		if !away(sub.Err()) {
			return
		}
	}
}

// readSound takes a group of packets: one object each.
func (v *Viewer) readSound(r *moqt.SubgroupReader) {
	next, began := uint64(0), false
	for {
		o, err := r.NextObject()
		if err == nil && o.Status != wire.StatusNormal {
			continue
		}
		var payload []byte
		if err == nil {
			payload, err = r.ReadPayload(nil, maxObject)
		}
		if err != nil {
			if err != io.EOF {
				r.Cancel(wire.StreamCancelled)
			}
			return
		}
		p, err := loc.Parse(o.Properties)
		now := time.Now()
		v.mu.Lock()
		v.counters.Bytes += uint64(len(payload))
		v.interval.bytes += len(payload)
		v.train.Add(now.Sub(v.opened).Seconds(), len(payload), r.Group, false)
		switch {
		case err != nil:
			v.counters.Damaged++
		case v.began && now.After(v.due(p.Timestamp)):
			v.sound.Late++
		default:
			v.sound.Packets++
			v.sound.Bytes += uint64(len(payload))
		}
		if began && o.ID > next {
			v.sound.Missing += o.ID - next
		}
		v.mu.Unlock()
		next, began = o.ID+1, true
	}
}

// complete notes that a group came to its end. v.mu is held.
func (v *Viewer) complete(k key, id uint64) {
	if g := v.groups[id]; g != nil && g.tracks[k] != nil {
		g.tracks[k].complete = true
	}
}

func (v *Viewer) count(what func(*counters)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	what(&v.counters)
}

// followRates reads the track of bytes and distortions.
func (v *Viewer) followRates(ctx context.Context, s *moqt.Session, name moqt.TrackName) {
	take := func(id uint64, payload []byte) {
		v.mu.Lock()
		defer v.mu.Unlock()
		r, err := catalog.ParseRates(payload, v.video.Sphere)
		if err != nil {
			v.counters.Damaged++
			v.log.Debug("rates", "group", id, "err", err)
			return
		}
		v.counters.Bytes += uint64(len(payload))
		v.rates[id] = r
		if v.latest == nil || r.T >= v.latest.T {
			v.latest = r
		}
		for old := range v.rates {
			if old+4*keepGroups < id {
				delete(v.rates, old)
			}
		}
	}
	for ctx.Err() == nil {
		sub, err := s.Subscribe(ctx, name, moqt.SubscribeOptions{
			Filter: &moqt.Filter{Type: wire.FilterLargestObject}, Priority: new(uint8(priorityRates)), Join: true, RendezvousTimeout: 20 * time.Second,
		})
		v.count(func(c *counters) { c.Subscribes++ })
		if err != nil {
			if ctx.Err() == nil {
				v.log.Warn("the session's rates cannot be followed: tiles are chosen by their bit rates alone", "err", err)
			}
			return
		}
		if sub.Largest != nil {
			if f, err := sub.Joined(ctx); err == nil {
				_ = f.Each(ctx, catalog.MaxSize, func(o wire.FetchObject, payload []byte) error {
					take(o.Group, payload)
					return nil
				}) // without them tiles are chosen by their bit rates, for a GoP
			}
		}
		for {
			r, err := sub.AcceptSubgroup(ctx)
			if err != nil {
				break
			}
			for {
				o, err := r.NextObject()
				if err != nil {
					break
				}
				if o.Status != wire.StatusNormal {
					continue
				}
				payload, err := r.ReadPayload(nil, catalog.MaxSize)
				if err != nil {
					break
				}
				take(r.Group, payload)
			}
			r.Cancel(wire.StreamCancelled)
		}
		sub.Cancel()
		if err := sub.Err(); !away(err) {
			return
		}
	}
}

// away reports whether err says that a track's publisher went away and may return.
func away(err error) bool {
	var done *moqt.DoneError
	return errors.As(err, &done) && done.Code != wire.DoneTrackEnded && done.Code != wire.DoneSubscriptionEnded
}
