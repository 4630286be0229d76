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

// Playback timing, as in the web viewer.
const (
	bufferAhead = 1500 * time.Millisecond // buffered ahead of the position
	bufferShort = 400 * time.Millisecond  // buffer level below which the sphere takes precedence over tiles
	retryAfter  = 500 * time.Millisecond  // delay after a failed FETCH
	minMeasured = 3000                    // smallest transfer, in bytes, that yields a rate measurement
)

// Fetch reads groups first to last of a recording's track, with objects of at most limit bytes.
// over reports that the recording ends before first.
type Fetch func(ctx context.Context, track string, first, last uint64, priority uint8, limit int,
	use func(wire.FetchObject, []byte)) (over bool, err error)

// Playback plays a replay's recording of the sphere at the viewer's own pace (docs/spec/tiles.md).
// The position is its clock, and it buffers GoPs shortly ahead of it. A frame is due when the
// position reaches the frame's timestamp; no frame can be late while the position does not advance.
type Playback struct {
	v      *Viewer
	ctx    context.Context
	wall   time.Time // timestamp at position 0
	length time.Duration
	fetch  Fetch
	rtt    func() time.Duration
	all    sync.WaitGroup

	// The fields below are guarded by the viewer's mu.
	position, entered time.Duration // current position; target of the last seek
	playing           bool
	buffered          time.Duration
	primed            bool
	run               int // number of seeks
	runs              context.Context
	cancel            context.CancelFunc // cancels runs
	loading           bool
	drop              context.CancelFunc // cancels FETCHes of the loading GoP's tiles and sound; nil if none
	notUntil          time.Time          // earliest time of the next attempt
	requested         map[fetched]bool   // tiles received or requested
	decided           time.Duration      // position of the last replan
}

// StartPlayback makes the viewer play a recording; wall is the timestamp at position 0. The caller
// must Close the Playback. Play must not be running.
func (v *Viewer) StartPlayback(
	ctx context.Context, wall time.Time, length time.Duration, fetch Fetch, rtt func() time.Duration,
) *Playback {
	f := &Playback{v: v, ctx: ctx, wall: wall, length: length, fetch: fetch, rtt: rtt}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reset()
	v.playback, v.first = f, wall
	f.seek(0)
	return f
}

// reset discards all received data. The caller holds v.mu.
func (v *Viewer) reset() {
	clear(v.groups)
	clear(v.rates)
	clear(v.urgent)
	v.latest, v.first, v.began, v.newest, v.forgotten = nil, time.Time{}, false, 0, 0
	v.planner.Gaze = tile360.Gaze{Crowd: v.cfg.Crowd}
}

// Captured returns the timestamp of the displayed frame of the shared replay, or the zero time if
// unknown.
func (v *Viewer) Captured() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.playback != nil || !v.began || !v.replayed {
		return time.Time{}
	}
	return time.Now().Add(-v.minDelay - v.latency)
}

// Close stops fetching and waits for pending requests.
func (f *Playback) Close() {
	v := f.v
	v.mu.Lock()
	f.judgePartial()
	f.run++
	f.cancel()
	v.playback = nil
	v.reset()
	v.mu.Unlock()
	f.all.Wait()
}

// Seek moves to a position.
func (f *Playback) Seek(position time.Duration) {
	f.v.mu.Lock()
	defer f.v.mu.Unlock()
	f.judgePartial()
	f.cancel()
	f.v.reset()
	f.v.first = f.wall
	f.v.judge.centre, f.v.judge.since = -1, -1
	f.seek(position)
}

// seek restarts playback at a position. The caller holds v.mu.
func (f *Playback) seek(position time.Duration) {
	f.run++
	f.runs, f.cancel = context.WithCancel(f.ctx)
	f.position, f.entered, f.decided = position, position, position
	// Start early enough to fetch the whole GoP that contains the position.
	f.buffered = max(0, position-f.v.gop+time.Millisecond).Truncate(time.Millisecond)
	f.primed, f.loading, f.drop, f.notUntil, f.requested = false, false, nil, time.Time{}, map[fetched]bool{}
}

// judgePartial judges the displayed GoPs that have not ended. The caller holds v.mu.
func (f *Playback) judgePartial() {
	if !f.primed {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(f.v.groups)) {
		if g := f.v.groups[id]; !g.judged && !g.start.IsZero() && !g.start.After(f.now()) {
			f.v.judgeGroup(g)
		}
	}
}

// now returns the timestamp at the position. The caller holds v.mu.
func (f *Playback) now() time.Time { return f.wall.Add(f.position) }

// seen reports whether the slot that starts at a timestamp was displayed. Either it is displayed
// now, or its middle has passed and is not before the target of the last seek. The caller holds
// v.mu.
func (f *Playback) seen(at time.Time, slot time.Duration) bool {
	now := f.now()
	return !at.After(now) && (at.Add(slot).After(now) || !at.Add(slot/2).Before(f.wall.Add(f.entered)))
}

// Buffered returns the end of the buffered range of the sphere. A value beyond the recording's
// length means that all data has arrived.
func (f *Playback) Buffered() time.Duration {
	f.v.mu.Lock()
	defer f.v.mu.Unlock()
	return f.buffered
}

// Primed reports whether there is a frame for the position.
func (f *Playback) Primed() bool {
	f.v.mu.Lock()
	defer f.v.mu.Unlock()
	return f.primed
}

// Tick sets the position, prefetches and replans.
func (f *Playback) Tick(position time.Duration, playing bool) {
	v := f.v
	v.mu.Lock()
	defer v.mu.Unlock()
	f.position, f.playing = position, playing
	if f.primed {
		v.noteShown()
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
		f.replan()
	}
}

// refill starts loading the next GoP if the buffer is short. The caller holds v.mu.
func (f *Playback) refill() {
	if f.loading {
		// The low-resolution sphere takes precedence over tiles.
		if f.primed && f.playing && f.drop != nil && f.buffered <= f.length && f.buffered-f.position < bufferShort {
			f.drop()
		}
		return
	}
	if f.buffered > f.length || f.buffered-f.position > bufferAhead || time.Now().Before(f.notUntil) {
		return
	}
	f.loading = true
	ctx, run, from := f.runs, f.run, f.buffered
	f.all.Go(func() { f.load(ctx, run, from) })
}

// load fetches the GoP that starts at or within one GoP duration after from, with its tiles, rates
// and sound.
func (f *Playback) load(ctx context.Context, run int, from time.Duration) {
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
			_, _ = f.fetch(
				ctx, rates, first, last, priorityRates, catalog.MaxSize,
				func(o wire.FetchObject, b []byte) { f.record(run, o.Group, b) },
			)
		})
	}
	if sound != "" {
		beside.Go(func() {
			_, _ = f.fetch(
				ahead, sound, first, last, prioritySound, maxObject,
				func(o wire.FetchObject, b []byte) { f.packet(run, &o, b) },
			)
		})
	}
	var ids []uint64
	over, err := f.fetch(
		ctx,
		catalog.VideoTrack,
		first,
		last,
		priorityVideo,
		maxObject,
		func(o wire.FetchObject, b []byte) {
			if len(ids) == 0 || ids[len(ids)-1] != o.Group {
				ids = append(ids, o.Group)
			}
			f.take(run, key{-1, 0}, &o, b)
		},
	)
	recorded.Wait()
	v.mu.Lock()
	if f.run != run {
		v.mu.Unlock()
		return
	}
	if err != nil && !over {
		v.log.Debug("could not fetch recorded video", "from", from, "err", err)
		f.loading, f.notUntil = false, time.Now().Add(retryAfter)
		v.mu.Unlock()
		return
	}
	if f.buffered = end; over {
		f.buffered = f.length + time.Millisecond
	}
	f.primed = f.primed || f.buffered > f.position
	f.drop = drop
	var tiles sync.WaitGroup
	for _, id := range ids {
		for i, r := range f.choose(id) {
			f.fetchTile(ahead, &tiles, id, key{r.Tile, r.Quality}, priorityOf(i))
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
	if bytes := v.counters.Bytes - before; bytes > minMeasured {
		v.planner.Capacity.Add(v.useful(float64(bytes) / max(time.Since(began).Seconds(), 0.001)))
	}
}

// choose returns the tiles of a GoP to fetch, in order. The caller holds v.mu.
func (f *Playback) choose(id uint64) []tile360.Request {
	v := f.v
	g := v.groups[id]
	if !v.tiled || v.latest == nil || g == nil || g.start.IsZero() {
		return nil
	}
	f.updateGaze()
	v.planner.Capacity.Guess(firstRate)
	start := v.media(g.start)
	gop := v.gopOf(id, start)
	v.counters.Decisions++
	if v.cfg.Scheme != Ours {
		return v.baseline(&gop, start, 0)
	}
	return v.planner.Plan([]tile360.GoP{gop}, v.gop.Seconds(), 0)
}

// updateGaze passes the gaze up to the position to the planner. The caller holds v.mu.
func (f *Playback) updateGaze() {
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

// replan fetches additional tiles of buffered GoPs for the current gaze. The caller holds v.mu.
func (f *Playback) replan() {
	v := f.v
	if !v.tiled || v.latest == nil {
		return
	}
	f.updateGaze()
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
		for x := range f.requested {
			if x.group != id {
				continue
			}
			gop.Have[x.tile] = max(gop.Have[x.tile], x.quality)
			if r := g.tracks[x.key]; r == nil || !r.complete {
				pending += max(0, gop.Bytes[x.tile*v.planner.Qualities+x.quality]-float64(g.bytes(x.key)))
			}
		}
		v.fixQualities(&gop)
		gops, ids = append(gops, gop), append(ids, id)
	}
	if len(gops) == 0 {
		return
	}
	requests := v.planner.Plan(gops, (f.buffered - f.position).Seconds(), pending)
	v.counters.Decisions++
	for _, r := range requests[:len(v.planner.Chosen().Order)] {
		v.counters.Urgent++
		f.fetchTile(f.runs, &f.all, ids[r.GoP], key{r.Tile, r.Quality}, priorityUrgent)
	}
}

// fetchTile fetches a tile of a GoP. The caller holds v.mu.
func (f *Playback) fetchTile(ctx context.Context, all *sync.WaitGroup, id uint64, k key, priority uint8) {
	v := f.v
	x, run, track := fetched{id, k}, f.run, catalog.TileTrack(k.tile, k.quality)
	f.requested[x] = true
	v.counters.Fetches++
	all.Go(func() {
		_, err := f.fetch(
			ctx, track, id, id, priority, maxObject, func(o wire.FetchObject, b []byte) { f.take(run, k, &o, b) },
		)
		v.mu.Lock()
		defer v.mu.Unlock()
		switch {
		case f.run != run:
		case err == nil:
			v.complete(k, id)
		case ctx.Err() == nil:
			v.noteRefusal(k, err)
			fallthrough
		default:
			delete(f.requested, x)
		}
	})
}

// take stores a frame.
func (f *Playback) take(run int, k key, o *wire.FetchObject, payload []byte) {
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
		at = f.wall // the position does not advance until it arrives
	}
	v.store(g, k, o.Object, &p, payload, at)
}

// record stores the rates of a GoP.
func (f *Playback) record(run int, id uint64, payload []byte) {
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

// packet counts a sound packet.
func (f *Playback) packet(run int, o *wire.FetchObject, payload []byte) {
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
	if v.cfg.Sound != nil {
		v.cfg.Sound(SoundPacket{Track: v.audible, Properties: o.Properties, Payload: payload})
	}
}
