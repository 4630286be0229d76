package sphere

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/tile360"
)

// schedule tracks which decisions have been made.
type schedule struct {
	group uint64 // newest group decided for
	again int    // number of replans within the current GoP
}

// action sends the requests that follow from a decision.
type action func(context.Context, *moqt.Session)

// firstRate is the assumed network rate before the first measurement. rateGrowth multiplies the
// estimate after an interval without late objects in which the rate could not be measured.
const (
	firstRate  = 1e6 / 8 // bytes per second
	rateGrowth = 1.3
)

// decide makes the next decision if it is due. The caller holds v.mu.
func (v *Viewer) decide(now time.Time, rtt time.Duration, next *schedule) []action {
	if !v.began || !v.tiled || v.latest == nil {
		return nil
	}
	g := v.groups[v.newest]
	if g == nil || g.start.IsZero() {
		return nil
	}
	for t := v.planner.Gaze.Last().T; ; {
		t += 1. / headRate
		if t > v.playhead(now) {
			break
		}
		v.planner.Gaze.Add(tile360.Sample{T: t, Gaze: v.cfg.Head(t)})
	}
	begun := v.local(g.start)
	v.planner.Latency = rtt.Seconds() + 0.1
	switch {
	case next.group <= v.newest && now.After(begun.Add(v.gop-rtt-decideAhead)):
		next.group, next.again = v.newest+1, 0
		return v.decideNext(now)
	case v.cfg.Scheme == Ours && next.group > v.newest-1 && next.again < replans-1 &&
		now.After(begun.Add(time.Duration(next.again+1)*v.gop/replans)) && now.Before(begun.Add(v.gop-rtt-decideAhead)):
		next.again++
		return v.replan(now)
	}
	return nil
}

// measure updates the capacity estimate from the interval since the last decision.
func (v *Viewer) measure(now time.Time) {
	m := v.interval
	v.interval = meter{began: now}
	seconds := now.Sub(m.began).Seconds()
	if seconds < 0.1 {
		return
	}
	came, measured := float64(m.bytes)/seconds, true
	switch carried := v.train.Rate(v.newest); {
	case carried > 0:
		v.rate = max(carried, came)
	case m.late*10 > m.objects: // the path is congested, so the received rate is its capacity
		v.rate = came
	default:
		v.rate, measured = max(v.rate*rateGrowth, came*rateGrowth, firstRate), false
	}
	v.rate = v.useful(v.rate)
	if measured || !v.planner.Capacity.Guess(v.rate) {
		v.planner.Capacity.Add(v.rate)
	}
}

// useful caps a rate at the combined rate of all tiles at all qualities.
func (v *Viewer) useful(rate float64) float64 {
	most := 0.0
	if v.latest != nil {
		for _, tile := range v.latest.Data.Bytes {
			for _, b := range tile {
				if b != nil {
					most += float64(*b)
				}
			}
		}
	}
	return min(rate, max(most/v.gop.Seconds(), firstRate))
}

// gopOf describes a GoP to the planner, from its own rates record if available (recordings have
// one) or from the newest record.
func (v *Viewer) gopOf(id uint64, start float64) tile360.GoP {
	r := v.rates[id]
	if r == nil {
		r = v.latest
	}
	q := v.planner.Qualities
	g := tile360.GoP{Start: start, Duration: v.gop.Seconds(), Miss: r.Data.Missing}
	for t := range v.grid.Tiles() {
		for k := range q {
			bytes, mse := 0.0, math.NaN()
			if _, offered := v.offered[key{t, k}]; offered && r.Data.Bytes[t][k] != nil {
				bytes, mse = float64(*r.Data.Bytes[t][k]), *r.Data.MSE[t][k]
			}
			g.Bytes, g.Distortion = append(g.Bytes, bytes), append(g.Distortion, mse)
		}
	}
	return g
}

// lag returns how many bytes of the subscribed tiles are overdue in the newest group, and how many
// are not yet due.
func (v *Viewer) lag(now time.Time) (late, left float64) {
	g := v.groups[v.newest]
	gop := v.gopOf(v.newest, 0)
	done := min(1, max(0, now.Sub(v.local(g.start)).Seconds()/v.gop.Seconds()))
	for _, s := range v.subs {
		if s.first > v.newest {
			continue
		}
		bytes := gop.Bytes[s.tile*v.planner.Qualities+s.quality]
		got := 0.0
		if r := g.tracks[s.key]; r != nil {
			got = float64(r.bytes)
		}
		late += max(0, bytes*done-got)
		left += max(0, bytes*(1-done))
	}
	return late, left
}

// decideNext selects the tiles of the next GoP.
func (v *Viewer) decideNext(now time.Time) (actions []action) {
	v.measure(now)
	id := v.newest + 1
	start := v.media(v.groups[v.newest].start) + v.gop.Seconds()
	gop := v.gopOf(id, start)
	late, _ := v.lag(now)
	video := float64(v.groups[v.newest].bytes(key{-1, 0}))
	pending := late + video
	wanted := map[int]target{}
	if v.cfg.Scheme == Ours {
		requests := v.planner.Plan([]tile360.GoP{gop}, v.gop.Seconds(), pending)
		sure := len(v.planner.Chosen().Order)
		spare := v.planner.Capacity.Percentile(v.cfg.Percentile)*v.gop.Seconds() - pending - v.planner.Chosen().Bytes
		// Requests beyond the budget are skipped. The publisher sends everything as soon as it is
		// encoded, so their data would queue ahead of more important data.
		for i, r := range requests[:sure] {
			wanted[r.Tile] = target{v.keepQuality(&gop, r, &spare), priorityOf(i)}
		}
	} else {
		for i, r := range v.baseline(&gop, start, pending) {
			wanted[r.Tile] = target{r.Quality, priorityOf(i)}
		}
	}
	v.counters.Decisions++
	for tile, s := range v.subs {
		w, stays := wanted[tile]
		if stays && w.quality == s.quality {
			delete(wanted, tile)
			if d := int(w.priority) - int(s.priority); d > priorityStep || d < -priorityStep {
				s.priority = w.priority
				actions = append(actions, v.update(s, moqt.Parameters{SubscriberPriority: &w.priority}))
			}
			continue
		}
		delete(v.subs, tile)
		s.last = v.newest
		v.ending = append(v.ending, s)
		if s.first > v.newest { // the subscription has not started
			actions = append(actions, v.unsubscribe(s))
			continue
		}
		actions = append(actions, v.update(s, moqt.Parameters{Filter: &moqt.Filter{
			Type: wire.FilterAbsoluteRange, Start: moqt.Location{Group: s.first}, EndGroup: s.last,
		}}))
	}
	for tile, w := range wanted {
		if s := v.unending(key{tile, w.quality}); s != nil {
			s.last, s.priority = 0, w.priority
			v.subs[tile] = s
			actions = append(actions, v.update(s, moqt.Parameters{
				SubscriberPriority: &w.priority,
				Filter:             &moqt.Filter{Type: wire.FilterAbsoluteStart, Start: moqt.Location{Group: s.first}},
			}))
			continue
		}
		s := &subscription{key: key{tile, w.quality}, first: id, priority: w.priority}
		v.subs[tile] = s
		actions = append(
			actions,
			v.subscribe(s, &moqt.Filter{Type: wire.FilterAbsoluteStart, Start: moqt.Location{Group: id}}, false),
		)
	}
	keep := v.ending[:0]
	for _, s := range v.ending { // subscriptions not ended by the publisher
		if s.last+2 > v.newest {
			keep = append(keep, s)
			continue
		}
		actions = append(actions, v.unsubscribe(s))
	}
	v.ending = keep
	return actions
}

// unending removes and returns a subscription that was to end, or nil without one or if the
// publisher ends it. The session allows only one subscription of a track. The caller holds v.mu.
func (v *Viewer) unending(k key) *subscription {
	for i, s := range v.ending {
		if s.key == k && s.sub != nil && s.sub.Err() == nil && !s.sub.EndsWithFilter() {
			v.ending = slices.Delete(v.ending, i, i+1)
			return s
		}
	}
	return nil
}

// minGain is the fraction of the plan's loss that a quality change must avoid to be worth its two
// messages.
const minGain = 0.005

// keepQuality returns the current quality of a tile instead of the planned quality if they differ
// by one step and the change gains little. A current quality that is better than planned must also
// fit into the spare budget.
func (v *Viewer) keepQuality(gop *tile360.GoP, r tile360.Request, spare *float64) int {
	s := v.subs[r.Tile]
	if s == nil || s.quality < r.Quality-1 || s.quality > r.Quality+1 || s.quality == r.Quality {
		return r.Quality
	}
	is, would := r.Tile*v.planner.Qualities+s.quality, r.Tile*v.planner.Qualities+r.Quality
	more := gop.Bytes[is] - gop.Bytes[would]
	gain := v.planner.Seen(0, r.Tile) * (gop.Distortion[is] - gop.Distortion[would])
	if !(gop.Bytes[is] > 0) || more > *spare || !(gain < minGain*v.planner.Chosen().Loss) {
		return r.Quality
	}
	*spare -= max(0, more)
	return s.quality
}

// target is the planned quality and priority of a tile.
type target struct {
	quality  int
	priority uint8
}

const priorityStep = 16

// priorityOf returns the subscriber priority of the tile at index i of the plan. It has six steps,
// so that small changes in order cost no message.
func priorityOf(i int) uint8 {
	return uint8(priorityTile + min(5, i/4)*priorityStep)
}

// replan checks the plan against the current gaze. It joins newly needed tiles of the newest GoP
// and fetches those of the GoP on display.
func (v *Viewer) replan(now time.Time) (actions []action) {
	under := v.groups[v.newest]
	var gops []tile360.GoP
	var ids []uint64
	for _, id := range []uint64{v.newest - 1, v.newest} {
		g := v.groups[id]
		if g == nil || g.start.IsZero() || v.media(g.start)+v.gop.Seconds() <= v.playhead(now) {
			continue
		}
		gop := v.gopOf(id, v.media(g.start))
		gop.Have = make([]int, v.grid.Tiles())
		for t := range gop.Have {
			gop.Have[t] = -1
		}
		for k, r := range g.tracks {
			if k.tile >= 0 && len(r.frames) > 0 {
				gop.Have[k.tile] = max(gop.Have[k.tile], k.quality)
			}
		}
		for f := range v.urgent {
			if f.group == id {
				gop.Have[f.tile] = max(gop.Have[f.tile], f.quality)
			}
		}
		if g == under {
			for _, s := range v.subs {
				gop.Have[s.tile] = max(gop.Have[s.tile], s.quality)
			}
		}
		v.fixQualities(&gop)
		gops, ids = append(gops, gop), append(ids, id)
	}
	if len(gops) == 0 {
		return nil
	}
	late, left := v.lag(now)
	seconds := v.local(under.start).Add(v.gop).Sub(now).Seconds()
	requests := v.planner.Plan(gops, seconds, late+left)
	sure := len(v.planner.Chosen().Order)
	v.counters.Decisions++
	for _, r := range requests[:sure] {
		id, k := ids[r.GoP], key{r.Tile, r.Quality}
		const priority = priorityUrgent // these tiles exceed the budget planned for the others
		v.urgent[fetched{id, k}] = true
		v.counters.Urgent++
		if id != v.newest {
			actions = append(actions, v.fetch(id, k, priority))
			continue
		}
		s := &subscription{key: k, first: id, priority: priority}
		v.subs[r.Tile] = s
		actions = append(actions, v.subscribe(s, &moqt.Filter{Type: wire.FilterLargestObject}, true))
	}
	for f := range v.urgent {
		if f.group+keepGroups < v.newest {
			delete(v.urgent, f)
		}
	}
	return actions
}

// fixQualities excludes tiles that are already being received from replanning. A quality change
// within a GoP would restart the tile and waste the received data.
func (v *Viewer) fixQualities(gop *tile360.GoP) {
	for t, q := range gop.Have {
		if q >= 0 {
			clear(gop.Bytes[t*v.planner.Qualities : (t+1)*v.planner.Qualities])
		}
	}
}

// baseline selects tiles by one of the baseline schemes.
func (v *Viewer) baseline(gop *tile360.GoP, start, pending float64) []tile360.Request {
	tiles, seconds := v.grid.Tiles(), v.gop.Seconds()
	share, seen := make([]float64, tiles), make([]float64, tiles)
	var looks []tile360.Look
	ahead := func(at float64) float64 { return max(0, start+at*seconds-v.planner.Gaze.Last().T) }
	if v.cfg.Scheme == Viewport {
		looks = []tile360.Look{{Gaze: v.planner.Gaze.Predict(ahead(0.5)), P: 1}}
	} else {
		for _, at := range []float64{1. / 6, 0.5, 5. / 6} {
			looks = v.planner.Gaze.Looks(ahead(at), 1./3, looks)
		}
	}
	v.planner.View.Expect(looks, share, seen)
	capacity := &v.planner.Capacity
	p := tile360.Problem{
		Qualities: v.planner.Qualities, Seen: seen, Miss: gop.Miss, Bytes: gop.Bytes, Distortion: gop.Distortion,
		Budget: capacity.Percentile(v.cfg.Percentile)*seconds - pending, Capacity: capacity.Distribution(seconds, nil),
	}
	var plan tile360.Plan
	switch v.cfg.Scheme {
	case Whole:
		v.solver.Whole(&p, &plan)
	case Viewport:
		v.solver.Viewport(&p, &plan)
	case Fixed:
		v.solver.Fixed(&p, &plan)
	case Paper:
		v.solver.Paper(&p, 10, &plan)
	}
	var requests []tile360.Request
	for _, t := range plan.Order {
		requests = append(requests, tile360.Request{Tile: t, Quality: plan.Quality[t]})
	}
	return requests
}

func (g *group) bytes(k key) int {
	if r := g.tracks[k]; r != nil {
		return r.bytes
	}
	return 0
}

// subscribe returns an action that receives a tile until its subscription ends. It first waits for the
// end of the previous subscription of the track, since the session allows only one. The caller holds v.mu.
func (v *Viewer) subscribe(s *subscription, filter *moqt.Filter, join bool) action {
	v.counters.Subscribes++
	if join {
		v.counters.Fetches++
	}
	priority, name, timeout := s.priority, v.name(catalog.TileTrack(s.tile, s.quality)), v.latency
	began, ended := make(chan struct{}), make(chan struct{})
	previous := v.receiving[s.key]
	v.receiving[s.key] = ended
	var cancel context.CancelFunc
	s.cancel = func() {
		<-began
		cancel()
	}
	return func(ctx context.Context, session *moqt.Session) {
		ctx, cancel = context.WithCancel(ctx)
		close(began)
		defer close(ended)
		defer cancel()
		if previous != nil {
			<-previous
		}
		sub, err := session.Subscribe(
			ctx, name,
			moqt.SubscribeOptions{Filter: filter, Priority: &priority, ObjectDeliveryTimeout: timeout, Join: join},
		)
		if err == nil {
			v.mu.Lock()
			s.sub = sub
			v.mu.Unlock()
			err = v.receive(ctx, sub, s.key, join)
			sub.Cancel()
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.subs[s.tile] == s { // ended by the publisher; the next decision may subscribe again
			delete(v.subs, s.tile)
		}
		v.noteRefusal(s.key, err)
	}
}

// noteRefusal removes a refused tile and quality from the offer until the next catalog. The caller
// holds v.mu.
func (v *Viewer) noteRefusal(k key, err error) {
	var refused *moqt.RequestError
	if !errors.As(err, &refused) {
		return
	}
	level := slog.LevelDebug
	if v.counters.Refused++; v.counters.Refused == 1 {
		level = slog.LevelWarn
	}
	delete(v.offered, k)
	v.log.Log(
		context.Background(), level, "tile refused; showing the low-resolution sphere instead", "tile", k.tile,
		"quality", k.quality, "err", err,
	)
}

// update returns an action that changes a subscription.
func (v *Viewer) update(s *subscription, p moqt.Parameters) action {
	v.counters.Updates++
	return func(ctx context.Context, _ *moqt.Session) {
		v.mu.Lock()
		sub := s.sub
		v.mu.Unlock()
		if sub == nil {
			return // refused, or unanswered for a GoP: unsubscribe handles it
		}
		if _, err := sub.Update(ctx, p); err != nil && ctx.Err() == nil && sub.Err() == nil {
			v.log.Debug("could not update a subscription", "track", sub.Track().String(), "err", err)
		}
	}
}

// unsubscribe returns an action that ends a subscription.
func (v *Viewer) unsubscribe(s *subscription) action {
	if s.sub == nil || s.sub.Err() == nil {
		v.counters.Unsubscribes++
	}
	return func(context.Context, *moqt.Session) { s.cancel() }
}

// fetch returns an action that fetches a published group of a tile.
func (v *Viewer) fetch(id uint64, k key, priority uint8) action {
	v.counters.Fetches++
	name := v.name(catalog.TileTrack(k.tile, k.quality))
	return func(ctx context.Context, session *moqt.Session) {
		f, err := session.Fetch(
			ctx, name, moqt.Location{Group: id}, moqt.Location{Group: id}, moqt.FetchOptions{Priority: &priority},
		)
		if err == nil {
			err = v.readFetch(ctx, f, k)
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			v.log.Debug("could not fetch a tile", "track", name.String(), "group", id, "err", err)
			v.counters.Refused++
			return
		}
		v.complete(k, id)
	}
}
