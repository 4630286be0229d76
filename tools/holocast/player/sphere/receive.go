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

// Subscriber priorities. Tiles start at priorityTile and follow the plan's order.
const (
	priorityRates  = 16
	prioritySound  = 24
	priorityVideo  = 32
	priorityTile   = 64 // most important tile
	priorityUrgent = 160
)

// subscription is a tile's subscription.
type subscription struct {
	key
	first    uint64 // first group
	last     uint64 // last group; 0 = open-ended
	priority uint8
	cancel   context.CancelFunc

	sub *moqt.Subscription // nil until accepted
}

// receiveTrack subscribes to a track from its largest object and joins the current group. It
// resubscribes while the publisher is away, and returns why the last subscription ended.
func (v *Viewer) receiveTrack(
	ctx context.Context, s *moqt.Session, name moqt.TrackName, k key, timeout time.Duration,
) error {
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
		v.log.Warn("publisher is away", "track", name.String(), "reason", err)
	}
}

// receive reads a subscription until it ends, and returns the reason.
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
				v.log.Debug("could not fetch the current group", "track", sub.Track().String(), "err", err)
			}
		})
	}
	for {
		r, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			if ctx.Err() != nil {
				sub.Cancel() // unblocks readers of open subgroups
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

// add processes a frame. A fetched frame is older than the live edge and does not contribute to the
// delay estimate.
func (v *Viewer) add(
	k key, id, object uint64, properties wire.Properties, payload []byte, now time.Time, fetched bool,
) {
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
			return // already judged
		}
		g = &group{id: id, tracks: map[key]*received{}}
		v.groups[id] = g
	}
	if !v.store(g, k, object, &p, payload, now) {
		return
	}
	whole := k.tile < 0
	if whole && v.replayed && v.began && id > v.newest && object == 0 && p.Timestamp.Before(v.groups[v.newest].start) {
		v.replayRestarted()
	}
	if !fetched {
		// Tiles sent before a replay's restart may still arrive, so a replay's tiles do not lower
		// minDelay.
		if delay := now.Sub(p.Timestamp); delay < v.minDelay && (whole || !v.replayed) {
			v.minDelay = delay
		} else if v.minDelay < math.MaxInt64 && delay > v.minDelay+v.latency/2 {
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

// store stores a frame unless it is a duplicate. The caller holds v.mu.
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

// replayRestarted resets the clock when a replay starts over and its timestamps jump back. It first
// judges the earlier GoPs with the old clock. The caller holds v.mu.
func (v *Viewer) replayRestarted() {
	for _, id := range slices.Sorted(maps.Keys(v.groups)) {
		if g := v.groups[id]; id <= v.newest && !g.judged && !g.start.IsZero() {
			v.judgeGroup(g)
		}
	}
	v.minDelay = math.MaxInt64
}

// followSound counts the packets of the sound track until the track or the session ends.
func (v *Viewer) followSound(ctx context.Context, s *moqt.Session, name moqt.TrackName, timeout time.Duration) {
	for ctx.Err() == nil {
		sub, err := s.Subscribe(ctx, name, moqt.SubscribeOptions{
			Filter: &moqt.Filter{Type: wire.FilterLargestObject}, Priority: new(uint8(prioritySound)),
			ObjectDeliveryTimeout: timeout, RendezvousTimeout: 20 * time.Second,
		})
		v.count(func(c *counters) { c.Subscribes++ })
		if err != nil {
			if ctx.Err() == nil {
				v.log.Warn("could not receive the sound", "err", err)
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

// readSound reads a group of sound packets, one per object.
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
		packet := SoundPacket{Track: v.audible, Properties: o.Properties, Payload: payload, Due: v.due(p.Timestamp)}
		v.mu.Unlock()
		if v.cfg.Sound != nil {
			v.cfg.Sound(packet)
		}
		next, began = o.ID+1, true
	}
}

// complete marks a group as complete. The caller holds v.mu.
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

// followRates reads the track of tile sizes and distortions.
func (v *Viewer) followRates(ctx context.Context, s *moqt.Session, name moqt.TrackName) {
	take := func(id uint64, payload []byte) {
		v.mu.Lock()
		defer v.mu.Unlock()
		r, err := catalog.ParseRates(payload, v.video.Sphere)
		if err != nil {
			v.counters.Damaged++
			v.log.Debug("ignored rates", "group", id, "err", err)
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
			Filter: &moqt.Filter{
				Type: wire.FilterLargestObject,
			}, Priority: new(uint8(priorityRates)), Join: true, RendezvousTimeout: 20 * time.Second,
		})
		v.count(func(c *counters) { c.Subscribes++ })
		if err != nil {
			if ctx.Err() == nil {
				v.log.Warn("could not receive the rates; choosing tiles by bit rate alone", "err", err)
			}
			return
		}
		if sub.Largest != nil {
			if f, err := sub.Joined(ctx); err == nil {
				_ = f.Each(ctx, catalog.MaxSize, func(o wire.FetchObject, payload []byte) error {
					take(o.Group, payload)
					return nil
				}) // after an error, wait for the next group's rates
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

// away reports whether err means that a track's publisher is away and may return.
func away(err error) bool {
	var done *moqt.DoneError
	return errors.As(err, &done) && done.Code != wire.DoneTrackEnded && done.Code != wire.DoneSubscriptionEnded
}
