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

// Cue is what happens when a recording gets to a position: the player pauses there for so
// long, or goes to another position.
type Cue struct {
	At    time.Duration
	Pause bool
	For   time.Duration // 0 = until Play or Toggle is called
	To    time.Duration
}

// ErrNotRecorded says that a session cannot be paused or moved about in.
var ErrNotRecorded = errors.New("the session is live: only a replay can be paused and moved about in")

// Timing of a recording's playback, as the web viewer has it.
const (
	playbackTick = 10 * time.Millisecond
	firstWindow  = 250 * time.Millisecond // fetched at a time, at first after a seek
	window       = time.Second            // and then
	keptAhead    = 1500 * time.Millisecond
	framesBefore = 100 * time.Millisecond // a seek shows the frame before its place, which may have begun so long ago
	fetchAgain   = 500 * time.Millisecond // after a FETCH that failed
	fetchTimeout = 20 * time.Second
)

// recorded is a replay's recording and how it is played (docs/spec/replay.md): by this player
// alone, or, as long as nobody pauses or seeks, at the pace that all viewers of the replay
// share.
type recorded struct {
	turned chan struct{} // what is to be played has changed

	mu       sync.Mutex
	replayed bool             // the session is a replay
	catalog  *catalog.Catalog // the recording's; nil until it is known
	refused  error            // why it will not be
	own      bool             // this player plays it
	position time.Duration    // where it is then
	playing  bool
	jumps    int // seeks that are to be carried out
	length   time.Duration
	over     bool // it was played to its end
	script   []Cue
	resume   time.Time // when a pause of the script ends
	stats    playbackStats

	captured atomic.Int64 // of the newest frame of the shared replay, UNIX µs; 0 = unknown
}

// playbackStats are what a playback adds up.
type playbackStats struct {
	seeks          int // of which something was shown
	seeking        time.Duration
	waited, paused time.Duration
}

// Recording is what came of a recording.
type Recording struct {
	PositionS float64 `json:"position_s"`
	LengthS   float64 `json:"length_s"`
	// Own says that this player plays the recording by itself; else it watches the replay that
	// all share.
	Own     bool    `json:"own"`
	Playing bool    `json:"playing"`
	Seeks   int     `json:"seeks"`    // the first position counts
	SeekMS  float64 `json:"seek_ms"`  // mean time from a seek to its first picture
	WaitedS float64 `json:"waited_s"` // playing, but what was due had not arrived
	PausedS float64 `json:"paused_s"`
}

func newRecorded(from time.Duration, script []Cue, own bool) *recorded {
	return &recorded{turned: make(chan struct{}, 1), own: own, playing: true, position: from, script: slices.Clone(script), jumps: 1}
}

// isReplay notes whether the session is one.
func (r *recorded) isReplay(replayed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replayed = replayed
	if replayed {
		return
	}
	if r.catalog != nil { // another session took its place
		r.own, r.script = false, nil
	}
	r.catalog, r.refused = nil, nil
}

// wanted reports whether this player plays the recording by itself, and what there is of it: nil
// as long as that is not known.
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

func (r *recorded) turn() {
	select {
	case r.turned <- struct{}{}:
	default:
	}
}

// control changes how the recording is played; the player then plays it by itself.
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
		r.jumps++
	}
	r.resume = time.Time{}
	change(r)
	r.turn()
	return nil
}

// captured is when what is shown of the shared replay was captured; the zero time where that is
// not known.
func (p *Player) captured() (at time.Time) {
	if v := p.Sphere(); v != nil {
		at = v.Captured()
	}
	if us := p.recorded.captured.Load(); us > 0 && time.UnixMicro(us).After(at) {
		at = time.UnixMicro(us)
	}
	return at
}

// shared is the position of the shared replay. r.mu is held.
func (r *recorded) shared(captured time.Time) time.Duration {
	if r.catalog == nil || captured.IsZero() {
		return 0
	}
	return min(max(0, captured.Sub(wallclock(r.catalog))), r.length)
}

// seek goes to a position. r.mu is held.
func (r *recorded) seek(to time.Duration) {
	r.position = min(max(0, to), r.length)
	r.jumps++
}

// Seek goes to a position of the recording.
func (p *Player) Seek(to time.Duration) error {
	return p.control(func(r *recorded) { r.seek(to) })
}

// Skip goes forward by d, backward if that is negative.
func (p *Player) Skip(d time.Duration) error {
	return p.control(func(r *recorded) { r.seek(r.position + d) })
}

// Toggle pauses the recording, or goes on with it.
func (p *Player) Toggle() error {
	return p.control(func(r *recorded) { r.playing = !r.playing })
}

// Share returns to the replay that all viewers share.
func (p *Player) Share() error {
	r := p.recorded
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.catalog == nil {
		return ErrNotRecorded
	}
	r.own, r.script = false, nil
	r.turn()
	return nil
}

// ended reports whether the recording was played to its end.
func (r *recorded) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// recordingReport is nil where there is no recording.
func (p *Player) recordingReport() *Recording {
	r, captured := p.recorded, p.captured()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.catalog == nil {
		return nil
	}
	s := &r.stats
	out := &Recording{PositionS: seconds(r.position), LengthS: seconds(r.length), Own: r.own, Playing: r.playing, Seeks: s.seeks,
		WaitedS: seconds(s.waited), PausedS: seconds(s.paused)}
	if !r.own {
		out.PositionS, out.Playing = seconds(r.shared(captured)), true
	}
	if s.seeks > 0 {
		out.SeekMS = milliseconds(s.seeking / time.Duration(s.seeks))
	}
	return out
}

func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1e3) / 1e3 }

// wallclock is the capture time of a recording's beginning.
func wallclock(c *catalog.Catalog) time.Time {
	for _, t := range c.Tracks {
		if onTimeline(t) {
			return time.UnixMicro(int64(t.Template.Wallclock * 1e3))
		}
	}
	return time.Time{}
}

// onTimeline reports whether a track's group IDs are media time in milliseconds.
func onTimeline(t catalog.Track) bool {
	x := t.Template
	return x.Media == 0 && x.MediaStep == 1 && x.Location == [2]uint64{} && x.Step == [2]uint64{1, 0} && t.TrackDuration > 0
}

// recordingNamespace is where a replay offers its recording.
func (p *Player) recordingNamespace() moqt.Namespace {
	return append(slices.Clone(p.cfg.Namespace), replay.OnDemandField)
}

// recordingAgain is when a recording that ended is asked for again: its replay may return.
const recordingAgain = time.Second

// followRecording learns what a replay's recording has, for as long as the session lasts, or
// until the replay says that it offers none.
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
			r.turn()
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

// readRecording takes the catalogs of a recording until their track ends, and returns why it
// did.
func (p *Player) readRecording(ctx context.Context, s *moqt.Session) error {
	sub, err := connect.Subscribe(ctx, s, moqt.TrackName{Namespace: p.recordingNamespace(), Name: catalog.TrackName}, 0, false)
	if err != nil {
		return err
	}
	defer sub.Cancel()
	r := p.recorded
	var reader catalog.Reader
	return p.objects(ctx, sub, catalog.MaxSize, func(o wire.FetchObject, payload []byte) error {
		c, err := reader.Read(payload, o.Properties, sub.Properties)
		if err != nil {
			return fmt.Errorf("its catalog: %w", err)
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
		r.turn()
		return nil
	})
}

// part is what is played of a recording: a camera's track, or the sphere.
type part interface {
	// Seek empties it; what it shows next is what the position shows.
	Seek(position time.Duration)
	// Tick fetches what follows a position, where that is not here, and shows what is due;
	// playing: the position goes on.
	Tick(position time.Duration, playing bool)
	// Until is up to where everything is here, beyond the recording's length if nothing is to
	// come.
	Until() time.Duration
	// Primed reports whether something was shown since the last seek.
	Primed() bool
	// Close stops fetching and waits until nothing is under way.
	Close()
}

// playRecording plays the recording until ctx ends, or it does.
func (p *Player) playRecording(ctx context.Context, s *moqt.Session, c *catalog.Catalog, cameras []*feed, v *sphere.Viewer) {
	r := p.recorded
	ctx, stop := context.WithCancel(ctx)
	var parts []part
	defer func() {
		stop()
		for _, x := range parts {
			x.Close()
		}
	}()
	fetch := func(ctx context.Context, track string, first, last uint64, priority uint8, limit int, use func(wire.FetchObject, []byte)) (over bool, err error) {
		return p.fetchRecorded(ctx, s, moqt.TrackName{Namespace: p.recordingNamespace(), Name: track}, first, last, priority, limit, use)
	}
	r.mu.Lock()
	length := r.length
	r.jumps++ // of a connection before, nothing is here
	r.mu.Unlock()
	for _, f := range cameras {
		parts = append(parts, newReel(ctx, f, length, fetch))
	}
	if v != nil {
		parts = append(parts, v.Film(ctx, wallclock(c), length, fetch, func() time.Duration { return s.Stats().RTT }))
	}
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
	r.turn()
}

// playback moves the position on.
type playback struct {
	p      *Player
	parts  []part
	at     time.Time // of the tick before
	sought time.Time // when a seek began of which nothing was shown; zero without one
	jumps  int
}

// tick advances, fetches ahead, and shows what is due. It reports whether the recording is
// over.
func (b *playback) tick(now time.Time) (over bool) {
	r := b.p.recorded
	r.mu.Lock()
	if !r.resume.IsZero() && !now.Before(r.resume) {
		if paused := r.resume.Sub(b.at); paused > 0 { // the recording goes on from then, however late this tick is
			r.stats.paused += paused
			b.at = r.resume
		}
		r.resume, r.playing = time.Time{}, true
	}
	b.jump(now)
	waiting := slices.ContainsFunc(b.parts, func(x part) bool { return !x.Primed() && x.Until() <= r.length })
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
			if until := x.Until(); until <= r.length {
				here = min(here, max(until, r.position))
			}
		}
		if wanted > here && here < r.length {
			r.stats.waited += elapsed
			waiting = true
		}
		b.advance(min(wanted, here), now)
		b.jump(now)
	}
	position, playing := r.position, r.playing && !waiting
	over = r.playing && len(b.parts) > 0 && position >= r.length
	r.over = over
	r.mu.Unlock()
	for _, x := range b.parts {
		x.Tick(position, playing)
	}
	return over
}

// advance moves the position to where it should be, and does what the script says on the way.
// r.mu is held.
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

// jump carries out a seek. r.mu is held.
func (b *playback) jump(now time.Time) {
	r := b.p.recorded
	if r.jumps == b.jumps {
		return
	}
	b.jumps, b.sought = r.jumps, now
	b.p.meter.Jump()
	for _, x := range b.parts {
		x.Seek(r.position)
	}
}

// fetchRecorded reads the groups first to last of a recording's track. over says that the
// recording ends before them.
func (p *Player) fetchRecorded(ctx context.Context, s *moqt.Session, name moqt.TrackName, first, last uint64, priority uint8,
	limit int, use func(wire.FetchObject, []byte),
) (over bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	f, err := s.Fetch(ctx, name, moqt.Location{Group: first}, moqt.Location{Group: last}, moqt.FetchOptions{Priority: &priority})
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
