package player

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/replay"
	"holocast/tools/holocast/player/sphere"
)

// Cue is an action at a position of a recording: a pause of duration For, or a seek to To.
type Cue struct {
	At    time.Duration
	Pause bool
	For   time.Duration // 0 = until Toggle or a seek
	To    time.Duration
}

// ErrNotRecorded is returned for a live session, which cannot be paused or seeked.
var ErrNotRecorded = errors.New("the session is live: only a replay can be paused or seeked")

// Playback timing, as in the web viewer.
const (
	playbackTick = 10 * time.Millisecond
	firstWindow  = 250 * time.Millisecond // first FETCH after a seek
	window       = time.Second            // later FETCHes
	keptAhead    = 1500 * time.Millisecond
	framesBefore = 100 * time.Millisecond  // a seek shows the last frame before its position, up to this much earlier
	videoBefore  = 1250 * time.Millisecond // in layout W, whose groups of a second decode from their first frame
	fetchAgain   = 500 * time.Millisecond  // delay after a failed FETCH
	fetchTimeout = 20 * time.Second
)

// recorded is the playback state of a replay's recording (docs/spec/replay.md). The player follows
// the replay shared by all viewers until a pause or seek, and then plays the recording at its own
// pace.
type recorded struct {
	changed chan struct{} // receives a value when tracks to play may have changed

	mu       sync.Mutex
	replayed bool             // the session is a replay
	catalog  *catalog.Catalog // catalog of the recording; nil until received
	refused  error            // why the replay offers no recording, if it does not
	own      bool             // this player plays at its own pace
	position time.Duration    // current position if own
	playing  bool
	seeks    int // seeks requested so far
	length   time.Duration
	over     bool // the end was reached
	script   []Cue
	resume   time.Time // end of the current scripted pause
	stats    playbackStats

	captured atomic.Int64 // capture time of the newest frame of the shared replay, Unix µs; 0 = unknown
}

// playbackStats accumulates over all connections.
type playbackStats struct {
	seeks          int // seeks after which a frame has been displayed
	seeking        time.Duration
	waited, paused time.Duration
}

// Recording is a report on the playback of a recording.
type Recording struct {
	PositionS float64 `json:"position_s"`
	LengthS   float64 `json:"length_s"`
	// Own is true if the player plays the recording at its own pace, false if it follows the shared
	// replay.
	Own     bool    `json:"own"`
	Playing bool    `json:"playing"`
	Seeks   int     `json:"seeks"`    // seeks followed by a displayed frame, including the start of playback
	SeekMS  float64 `json:"seek_ms"`  // mean time from a seek to its first displayed frame
	WaitedS float64 `json:"waited_s"` // time stalled for lack of data
	PausedS float64 `json:"paused_s"`
}

func newRecorded(from time.Duration, script []Cue, own bool) *recorded {
	return &recorded{
		changed:  make(chan struct{}, 1),
		own:      own,
		playing:  true,
		position: from,
		script:   slices.Clone(script),
		seeks:    1,
	}
}

// isReplay records whether the session is a replay.
func (r *recorded) isReplay(replayed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replayed = replayed
	if replayed {
		return
	}
	if r.catalog != nil { // a live session replaced the replay
		r.own, r.script = false, nil
	}
	r.catalog, r.refused = nil, nil
}

// isShared reports whether the session is a replay.
func (r *recorded) isShared() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.replayed
}

// wanted reports whether the player plays the recording at its own pace, and returns the
// recording's catalog, or nil if it is not known yet. err is not nil if there is no recording to
// play.
func (r *recorded) wanted() (own bool, c *catalog.Catalog, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.own && !r.replayed:
		return true, nil, ErrNotRecorded
	case r.own && r.catalog == nil:
		return true, nil, r.refused
	}
	return r.own, r.catalog, nil
}

func (r *recorded) notify() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// control changes the playback state. It switches the player from the shared replay to its own
// pace. It returns an error if the session has no recording.
func (p *Player) control(change func(r *recorded)) error {
	r, captured := p.recorded, p.captured()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.catalog == nil {
		if r.refused != nil {
			return r.refused
		}
		return ErrNotRecorded
	}
	if !r.own {
		r.own, r.playing, r.position = true, true, r.shared(captured)
		r.seeks++
	}
	r.resume = time.Time{}
	change(r)
	r.notify()
	return nil
}

// captured returns the capture time of the displayed frame of the shared replay, or the zero time
// if unknown.
func (p *Player) captured() (at time.Time) {
	if v := p.Sphere(); v != nil {
		at = v.Captured()
	}
	if us := p.recorded.captured.Load(); us > 0 && time.UnixMicro(us).After(at) {
		at = time.UnixMicro(us)
	}
	return at
}

// shared returns the position of the shared replay. The caller holds r.mu.
func (r *recorded) shared(captured time.Time) time.Duration {
	if r.catalog == nil || captured.IsZero() {
		return 0
	}
	return min(max(0, captured.Sub(wallclock(r.catalog))), r.length)
}

// seek moves to a position. The caller holds r.mu.
func (r *recorded) seek(to time.Duration) {
	r.position = min(max(0, to), r.length)
	r.seeks++
}

// Seek moves to a position in the recording.
func (p *Player) Seek(to time.Duration) error {
	return p.control(func(r *recorded) { r.seek(to) })
}

// Skip moves by d, backward if d is negative.
func (p *Player) Skip(d time.Duration) error {
	return p.control(func(r *recorded) { r.seek(r.position + d) })
}

// Toggle pauses or resumes the recording.
func (p *Player) Toggle() error {
	return p.control(func(r *recorded) { r.playing = !r.playing })
}

// Share returns to the shared replay.
func (p *Player) Share() error {
	r := p.recorded
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.catalog == nil {
		return ErrNotRecorded
	}
	r.own, r.script = false, nil
	r.notify()
	return nil
}

// ended reports whether playback reached the end of the recording.
func (r *recorded) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// recordingReport reports on the playback of the recording. It returns nil if the session has none.
func (p *Player) recordingReport() *Recording {
	r, captured := p.recorded, p.captured()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.catalog == nil {
		return nil
	}
	s := &r.stats
	out := &Recording{
		PositionS: seconds(r.position), LengthS: seconds(r.length), Own: r.own, Playing: r.playing, Seeks: s.seeks,
		WaitedS: seconds(s.waited), PausedS: seconds(s.paused),
	}
	if !r.own {
		out.PositionS, out.Playing = seconds(r.shared(captured)), true
	}
	if s.seeks > 0 {
		out.SeekMS = milliseconds(s.seeking / time.Duration(s.seeks))
	}
	return out
}

func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1e3) / 1e3 }

// wallclock returns the capture time at the start of a recording.
func wallclock(c *catalog.Catalog) time.Time {
	for _, t := range c.Tracks {
		if onTimeline(t) {
			return time.UnixMicro(int64(t.Template.Wallclock * 1e3))
		}
	}
	return time.Time{}
}

// onTimeline reports whether a track's group IDs are media times in milliseconds.
func onTimeline(t catalog.Track) bool {
	x := t.Template
	return x.Media == 0 && x.MediaStep == 1 && x.Location == [2]uint64{} && x.Step == [2]uint64{1, 0} &&
		t.TrackDuration > 0
}

// recordingNamespace returns the namespace in which a replay offers its recording.
func (p *Player) recordingNamespace() moqt.Namespace {
	return append(slices.Clone(p.cfg.Namespace), replay.OnDemandField)
}

// recordingAgain is the delay before the player subscribes again to a recording that ended, since
// its replay may return.
const recordingAgain = time.Second

// followRecording reads the recording's catalog until the session ends or the replay reports that
// it offers no recording.
func (p *Player) followRecording(ctx context.Context, s *moqt.Session) {
	r := p.recorded
	for {
		err := p.readRecording(ctx, s)
		if ctx.Err() != nil || s.Err() != nil {
			return
		}
		r.mu.Lock()
		known := r.catalog != nil
		if !known {
			r.refused = fmt.Errorf("the replay does not offer its recording: %w", err)
			r.notify()
		}
		r.mu.Unlock()
		if e := (*moqt.RequestError)(nil); errors.As(err, &e) && !known {
			return
		}
		select {
		case <-time.After(recordingAgain):
		case <-ctx.Done():
			return
		}
	}
}

// readRecording reads the recording's catalogs until their track ends. It returns the reason.
func (p *Player) readRecording(ctx context.Context, s *moqt.Session) error {
	sub, err := connect.Subscribe(
		ctx, s, moqt.TrackName{Namespace: p.recordingNamespace(), Name: catalog.TrackName}, 0, false,
	)
	if err != nil {
		return err
	}
	defer sub.Cancel()
	r := p.recorded
	var reader catalog.Reader
	return p.objects(ctx, sub, catalog.MaxSize, func(o wire.FetchObject, payload []byte) error {
		c, err := reader.Read(o.Group, payload, o.Properties, sub.Properties)
		if err != nil {
			return fmt.Errorf("read its catalog: %w", err)
		}
		if wallclock(c).IsZero() {
			return errors.New("its catalog has no track with media times")
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.catalog, r.refused, r.length = c, nil, 0
		for _, t := range c.Tracks {
			if onTimeline(t) {
				r.length = max(r.length, time.Duration(t.TrackDuration)*time.Millisecond)
			}
		}
		r.position = min(r.position, r.length)
		r.notify()
		return nil
	})
}

// playable is one component of a recording: a camera's track, a microphone's track or the sphere.
type playable interface {
	// Seek discards buffered data. The next frame displayed is the one at position.
	Seek(position time.Duration)
	// Tick fetches data ahead of position if necessary and displays due frames. playing is false
	// while the position does not advance.
	Tick(position time.Duration, playing bool)
	// Buffered returns the end of the buffered range. A value beyond the recording's length means
	// that all data has arrived.
	Buffered() time.Duration
	// Primed reports whether a frame has been displayed since the last seek.
	Primed() bool
	// Close stops fetching and waits for pending requests.
	Close()
}

// playRecording plays the recording until it ends or ctx is done.
func (p *Player) playRecording(
	ctx context.Context, s *moqt.Session, c *catalog.Catalog, cameras []*feed, v *sphere.Viewer,
) {
	r := p.recorded
	ctx, stop := context.WithCancel(ctx)
	var parts []playable
	defer func() {
		stop()
		for _, x := range parts {
			x.Close()
		}
	}()
	fetch := func(ctx context.Context, track string, first, last uint64, priority uint8, limit int,
		use func(wire.FetchObject, []byte),
	) (over bool, err error) {
		return p.fetchRecorded(
			ctx, s, moqt.TrackName{Namespace: p.recordingNamespace(), Name: track}, first, last, priority, limit, use,
		)
	}
	r.mu.Lock()
	length := r.length
	r.seeks++ // buffers start empty on a new connection
	r.mu.Unlock()
	for _, f := range cameras {
		parts = append(parts, newTrackBuffer(ctx, f, length, fetch))
	}
	if v != nil {
		parts = append(
			parts, v.StartPlayback(ctx, wallclock(c), length, fetch, func() time.Duration { return s.Stats().RTT }),
		)
	}
	parts = append(parts, p.recordedSound(ctx, c, length, fetch)...)
	tick := time.NewTicker(playbackTick)
	defer tick.Stop()
	b := playback{p: p, parts: parts, at: time.Now()}
	for !b.tick(time.Now()) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	r.notify()
}

// playback advances the position.
type playback struct {
	p      *Player
	parts  []playable
	at     time.Time // time of the previous tick
	sought time.Time // start of a seek after which no frame has been displayed yet; otherwise zero
	seeks  int
}

// tick advances the position, prefetches and displays due frames. It reports whether the recording
// has ended.
func (b *playback) tick(now time.Time) (over bool) {
	r := b.p.recorded
	r.mu.Lock()
	if !r.resume.IsZero() && !now.Before(r.resume) {
		if paused := r.resume.Sub(b.at); paused > 0 { // resume at the scheduled time, however late this tick is
			r.stats.paused += paused
			b.at = r.resume
		}
		r.resume, r.playing = time.Time{}, true
	}
	b.applySeek(now)
	waiting := slices.ContainsFunc(b.parts, func(x playable) bool { return !x.Primed() && x.Buffered() <= r.length })
	if !waiting && !b.sought.IsZero() {
		r.stats.seeks++
		r.stats.seeking += now.Sub(b.sought)
		b.sought = time.Time{}
	}
	elapsed := now.Sub(b.at)
	b.at = now
	switch {
	case !r.playing:
		r.stats.paused += elapsed
	case !waiting:
		wanted := r.position + elapsed
		here := r.length
		for _, x := range b.parts {
			if until := x.Buffered(); until <= r.length {
				here = min(here, max(until, r.position))
			}
		}
		if wanted > here && here < r.length {
			r.stats.waited += elapsed
			waiting = true
		}
		b.advance(min(wanted, here), now)
		b.applySeek(now)
	}
	position, playing := r.position, r.playing && !waiting
	over = r.playing && len(b.parts) > 0 && position >= r.length
	r.over = over
	r.mu.Unlock()
	b.p.playhead.set(position, now, playing)
	for _, x := range b.parts {
		x.Tick(position, playing)
	}
	return over
}

// advance moves the position to a target, or to the next cue on the way, and applies that cue. The
// caller holds r.mu.
func (b *playback) advance(to time.Duration, now time.Time) {
	r := b.p.recorded
	from := r.position
	r.position = to
	if len(r.script) == 0 || r.script[0].At < from || r.script[0].At > to {
		return
	}
	cue := r.script[0]
	r.script = r.script[1:]
	r.position = cue.At
	if cue.Pause {
		r.playing = false
		if cue.For > 0 {
			r.resume = now.Add(cue.For)
		}
		return
	}
	r.seek(cue.To)
}

// applySeek carries out a requested seek. The caller holds r.mu.
func (b *playback) applySeek(now time.Time) {
	r := b.p.recorded
	if r.seeks == b.seeks {
		return
	}
	b.seeks, b.sought = r.seeks, now
	b.p.meter.Jump()
	if m := b.p.cfg.Sound; m != nil {
		m.Seek()
	}
	for _, x := range b.parts {
		x.Seek(r.position)
	}
}

// fetchRecorded reads groups first to last of a recording's track. over reports that the recording
// ends before first.
func (p *Player) fetchRecorded(
	ctx context.Context, s *moqt.Session, name moqt.TrackName, first, last uint64, priority uint8, limit int,
	use func(wire.FetchObject, []byte),
) (over bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	f, err := s.Fetch(
		ctx, name, moqt.Location{Group: first}, moqt.Location{Group: last}, moqt.FetchOptions{Priority: &priority},
	)
	if err != nil {
		var refused *moqt.RequestError
		over = errors.As(err, &refused) && refused.Code == wire.RequestInvalidRange
		return over, err
	}
	return false, f.Each(ctx, limit, func(o wire.FetchObject, payload []byte) error {
		use(o, payload)
		return nil
	})
}
