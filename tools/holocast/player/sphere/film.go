package sphere

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/loc"
	"holocast/internal/moqt/wire"
	"holocast/internal/tile360"
)

// Timing of a recording's playback, as the web viewer has it.
const (
	filmAhead     = 1500 * time.Millisecond // kept ahead of the position
	filmShort     = 400 * time.Millisecond  // how near its end the whole sphere goes before tiles
	filmAgain     = 500 * time.Millisecond  // after a FETCH that failed
	leastMeasured = 3000                    // bytes that say something of the network
)

// Fetch reads the groups first to last of a recording's track, objects of at most limit bytes.
// over says that the recording ends before them.
type Fetch func(ctx context.Context, track string, first, last uint64, priority uint8, limit int, use func(wire.FetchObject, []byte)) (over bool, err error)

// Film plays a replay's recording of the sphere at the viewer's own pace (docs/spec/tiles.md):
// GoP by GoP, a little ahead of what is shown. Its clock is the position: a frame is due when
// that gets to its timestamp, and while it stands nothing comes late.
type Film struct {
	v      *Viewer
	ctx    context.Context
	wall   time.Time // timestamp of position 0
	length time.Duration
	fetch  Fetch
	rtt    func() time.Duration
	all    sync.WaitGroup

	// With the viewer's mu.
	position, entered time.Duration // now, and where the last seek went
	playing           bool
	until             time.Duration
	primed            bool
	run               int // seeks so far
	runs              context.Context
	cancel            context.CancelFunc // of the run
	loading           bool
	drop              context.CancelFunc // leaves out the tiles that are being fetched; nil while there are none
	notUntil          time.Time          // when to try again
	there             map[fetched]bool   // tiles that came or are asked for
	decided           time.Duration      // position of the last decision within a GoP
}

// Film makes the viewer play a recording whose position 0 has a timestamp. Close ends that; Play
// is not under way.
func (v *Viewer) Film(ctx context.Context, wall time.Time, length time.Duration, fetch Fetch, rtt func() time.Duration) *Film {
	f := &Film{v: v, ctx: ctx, wall: wall, length: length, fetch: fetch, rtt: rtt}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.forget()
	v.film, v.first = f, wall
	f.seek(0)
	return f
}

// forget forgets what was received. v.mu is held.
func (v *Viewer) forget() {
	clear(v.groups)
	clear(v.rates)
	clear(v.urgent)
	v.latest, v.first, v.began, v.newest, v.forgotten = nil, time.Time{}, false, 0, 0
	v.planner.Gaze = tile360.Gaze{Crowd: v.cfg.Crowd}
}

// Captured returns the timestamp of what a viewer of the shared replay sees now; the zero time
// where that is not known.
func (v *Viewer) Captured() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.film != nil || !v.began || !v.replayed {
		return time.Time{}
	}
	return time.Now().Add(-v.least - v.latency)
}

// Close stops fetching, and waits until nothing is under way.
func (f *Film) Close() {
	v := f.v
	v.mu.Lock()
	f.leave()
	f.run++
	f.cancel()
	v.film = nil
	v.forget()
	v.mu.Unlock()
	f.all.Wait()
}

// Seek goes to a position.
func (f *Film) Seek(position time.Duration) {
	f.v.mu.Lock()
	defer f.v.mu.Unlock()
	f.leave()
	f.cancel()
	f.v.forget()
	f.v.first = f.wall
	f.v.judge.centre, f.v.judge.since = -1, -1
	f.seek(position)
}

// seek begins anew at a position. v.mu is held.
func (f *Film) seek(position time.Duration) {
	f.run++
	f.runs, f.cancel = context.WithCancel(f.ctx)
	f.position, f.entered, f.decided = position, position, position
	// The GoP that holds it began before.
	f.until = max(0, position-f.v.gop+time.Millisecond).Truncate(time.Millisecond)
	f.primed, f.loading, f.drop, f.notUntil, f.there = false, false, nil, time.Time{}, map[fetched]bool{}
}

// leave judges what was seen of the GoPs that were not seen to their end. v.mu is held.
func (f *Film) leave() {
	if !f.primed {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(f.v.groups)) {
		if g := f.v.groups[id]; !g.judged && !g.start.IsZero() && !g.start.After(f.now()) {
			f.v.judgeGroup(g)
		}
	}
}

// now is the timestamp that is due. v.mu is held.
func (f *Film) now() time.Time { return f.wall.Add(f.position) }

// seen reports whether the slot of a GoP that begins at a time was seen: its middle is behind
// where the last seek went, or it is on the screen now. v.mu is held.
func (f *Film) seen(at time.Time, slot time.Duration) bool {
	now := f.now()
	return !at.After(now) && (at.Add(slot).After(now) || !at.Add(slot/2).Before(f.wall.Add(f.entered)))
}

// Until is up to where the whole sphere is here, beyond the recording's length if nothing is to
// come.
func (f *Film) Until() time.Duration {
	f.v.mu.Lock()
	defer f.v.mu.Unlock()
	return f.until
}

// Primed reports whether the position has a picture.
func (f *Film) Primed() bool {
	f.v.mu.Lock()
	defer f.v.mu.Unlock()
	return f.primed
}

// Tick moves the position, fetches what follows, and looks whether the head has turned.
func (f *Film) Tick(position time.Duration, playing bool) {
	v := f.v
	v.mu.Lock()
	defer v.mu.Unlock()
	f.position, f.playing = position, playing
	if f.primed {
		v.shows()
	}
	for _, id := range slices.Sorted(maps.Keys(v.groups)) {
		g := v.groups[id]
		if g.start.IsZero() || g.start.Add(v.gop).After(f.now()) {
			continue
		}
		if !g.judged {
			v.judgeGroup(g)
		}
		if g.start.Add(2 * v.gop).Before(f.now()) {
			delete(v.groups, id)
			delete(v.rates, id)
		}
	}
	f.refill()
	if v.cfg.Scheme == Ours && playing && position-f.decided >= v.gop/replans {
		f.decided = position
		f.turn()
	}
}

// refill begins to fetch the next GoP where it is time. v.mu is held.
func (f *Film) refill() {
	if f.loading {
		// The whole sphere goes on, with tiles or without.
		if f.primed && f.playing && f.drop != nil && f.until <= f.length && f.until-f.position < filmShort {
			f.drop()
		}
		return
	}
	if f.until > f.length || f.until-f.position > filmAhead || time.Now().Before(f.notUntil) {
		return
	}
	f.loading = true
	ctx, run, from := f.runs, f.run, f.until
	f.all.Go(func() { f.load(ctx, run, from) })
}

// load fetches the GoP that begins at a position, or within a GoP's time after it.
func (f *Film) load(ctx context.Context, run int, from time.Duration) {
	v := f.v
	v.mu.Lock()
	end := from + v.gop
	before, rates, sound := v.counters.Bytes, v.name(catalog.RatesTrack).Name, v.audio
	v.mu.Unlock()
	first, last := uint64(from.Milliseconds()), uint64(end.Milliseconds())-1
	began := time.Now()
	ahead, drop := context.WithCancel(ctx)
	defer drop()
	var recorded, beside sync.WaitGroup
	defer beside.Wait()
	if rates != "" {
		recorded.Go(func() {
			_, _ = f.fetch(ctx, rates, first, last, priorityRates, catalog.MaxSize, func(o wire.FetchObject, b []byte) { f.record(run, o.Group, b) })
		})
	}
	if sound != "" {
		beside.Go(func() {
			_, _ = f.fetch(ahead, sound, first, last, prioritySound, maxObject, func(o wire.FetchObject, b []byte) { f.packet(run, &o, b) })
		})
	}
	var ids []uint64
	over, err := f.fetch(ctx, catalog.VideoTrack, first, last, priorityVideo, maxObject, func(o wire.FetchObject, b []byte) {
		if len(ids) == 0 || ids[len(ids)-1] != o.Group {
			ids = append(ids, o.Group)
		}
		f.take(run, key{-1, 0}, &o, b)
	})
	recorded.Wait()
	v.mu.Lock()
	if f.run != run {
		v.mu.Unlock()
		return
	}
	if err != nil && !over {
		v.log.Debug("the recording's video cannot be fetched", "from", from, "err", err)
		f.loading, f.notUntil = false, time.Now().Add(filmAgain)
		v.mu.Unlock()
		return
	}
	if f.until = end; over {
		f.until = f.length + time.Millisecond
	}
	f.primed = f.primed || f.until > f.position
	f.drop = drop
	var tiles sync.WaitGroup
	for _, id := range ids {
		for i, r := range f.choose(id) {
			f.ask(ahead, &tiles, id, key{r.Tile, r.Quality}, priorityOf(i))
		}
	}
	v.mu.Unlock()
	tiles.Wait()
	beside.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	if f.run != run {
		return
	}
	f.loading, f.drop = false, nil
	if bytes := v.counters.Bytes - before; bytes > leastMeasured {
		v.planner.Capacity.Add(v.useful(float64(bytes) / max(time.Since(began).Seconds(), 0.001)))
	}
}

// choose decides which tiles of a GoP to fetch, in that order. v.mu is held.
func (f *Film) choose(id uint64) []tile360.Request {
	v := f.v
	g := v.groups[id]
	if !v.tiled || v.latest == nil || g == nil || g.start.IsZero() {
		return nil
	}
	f.look()
	v.planner.Capacity.Guess(firstRate)
	start := v.media(g.start)
	gop := v.gopOf(id, start)
	v.counters.Decisions++
	if v.cfg.Scheme != Ours {
		return v.baseline(&gop, start, 0)
	}
	return v.planner.Plan([]tile360.GoP{gop}, v.gop.Seconds(), 0)
}

// look tells the planner where the head has been. v.mu is held.
func (f *Film) look() {
	v := f.v
	v.planner.Latency = f.rtt().Seconds() + 0.1
	now := f.position.Seconds()
	from := v.planner.Gaze.Last().T
	if from > now || from < now-1 {
		from = max(0, now-1)
		v.planner.Gaze.Add(tile360.Sample{T: from, Gaze: v.cfg.Head(from)})
	}
	for t := from + 1./headRate; t <= now; t += 1. / headRate {
		v.planner.Gaze.Add(tile360.Sample{T: t, Gaze: v.cfg.Head(t)})
	}
}

// turn asks for tiles of GoPs that are here and to which the head has turned. v.mu is held.
func (f *Film) turn() {
	v := f.v
	if !v.tiled || v.latest == nil {
		return
	}
	f.look()
	var gops []tile360.GoP
	var ids []uint64
	pending := 0.0
	for _, id := range slices.Sorted(maps.Keys(v.groups)) {
		g := v.groups[id]
		if g.start.IsZero() || !g.start.Add(v.gop).After(f.now()) {
			continue
		}
		gop := v.gopOf(id, v.media(g.start))
		gop.Have = make([]int, v.grid.Tiles())
		for t := range gop.Have {
			gop.Have[t] = -1
		}
		for x := range f.there {
			if x.group != id {
				continue
			}
			gop.Have[x.tile] = max(gop.Have[x.tile], x.quality)
			if r := g.tracks[x.key]; r == nil || !r.complete {
				pending += max(0, gop.Bytes[x.tile*v.planner.Qualities+x.quality]-float64(g.bytes(x.key)))
			}
		}
		v.keep(&gop)
		gops, ids = append(gops, gop), append(ids, id)
	}
	if len(gops) == 0 {
		return
	}
	requests := v.planner.Plan(gops, (f.until - f.position).Seconds(), pending)
	v.counters.Decisions++
	for _, r := range requests[:len(v.planner.Chosen().Order)] {
		v.counters.Urgent++
		f.ask(f.runs, &f.all, ids[r.GoP], key{r.Tile, r.Quality}, priorityUrgent)
	}
}

// ask fetches a tile of a GoP. v.mu is held.
func (f *Film) ask(ctx context.Context, all *sync.WaitGroup, id uint64, k key, priority uint8) {
	v := f.v
	x, run, track := fetched{id, k}, f.run, catalog.TileTrack(k.tile, k.quality)
	f.there[x] = true
	v.counters.Fetches++
	all.Go(func() {
		_, err := f.fetch(ctx, track, id, id, priority, maxObject, func(o wire.FetchObject, b []byte) { f.take(run, k, &o, b) })
		v.mu.Lock()
		defer v.mu.Unlock()
		switch {
		case f.run != run:
		case err == nil:
			v.complete(k, id)
		case ctx.Err() == nil:
			v.refused(k, err)
			fallthrough
		default:
			delete(f.there, x)
		}
	})
}

// take keeps a frame.
func (f *Film) take(run int, k key, o *wire.FetchObject, payload []byte) {
	v := f.v
	p, err := loc.Parse(o.Properties)
	v.mu.Lock()
	defer v.mu.Unlock()
	if f.run != run {
		return
	}
	v.counters.Bytes += uint64(len(payload))
	if err != nil || o.Object >= maxFrames {
		v.counters.Damaged++
		return
	}
	g := v.groups[o.Group]
	if g == nil {
		g = &group{id: o.Group, tracks: map[key]*received{}}
		v.groups[o.Group] = g
	}
	at := f.now()
	if !f.primed {
		at = f.wall // the position waits for it
	}
	v.store(g, k, o.Object, &p, payload, at)
}

// record keeps the rates of a GoP.
func (f *Film) record(run int, id uint64, payload []byte) {
	v := f.v
	v.mu.Lock()
	defer v.mu.Unlock()
	r, err := catalog.ParseRates(payload, v.video.Sphere)
	switch {
	case f.run != run:
	case err != nil:
		v.counters.Damaged++
	default:
		v.counters.Bytes += uint64(len(payload))
		v.rates[id], v.latest = r, r
	}
}

// packet counts a packet of sound.
func (f *Film) packet(run int, o *wire.FetchObject, payload []byte) {
	v := f.v
	p, err := loc.Parse(o.Properties)
	v.mu.Lock()
	defer v.mu.Unlock()
	if f.run != run {
		return
	}
	v.counters.Bytes += uint64(len(payload))
	switch {
	case err != nil:
		v.counters.Damaged++
	case f.playing && f.primed && f.now().After(p.Timestamp):
		v.sound.Late++
	default:
		v.sound.Packets++
		v.sound.Bytes += uint64(len(payload))
	}
}
