// Package sphere plays a session's tiled 360° video (docs/spec/tiles.md) without a window. A
// recorded or fixed head orientation determines the gaze, and internal/tile360 selects the tiles. A
// frame counts as displayed if it arrived by its due time.
//
// A frame is due at its timestamp plus the catalog's target latency. Before each GoP starts at the
// publisher, the viewer subscribes to the GoP's tiles and ends subscriptions it no longer needs.
// Between these decisions, when the head turns, it joins tiles of the newest GoP and fetches tiles
// of the GoP on display.
package sphere

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/clock"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/tile360"
)

// Schemes select tiles. Ours is the default; the others are baselines for `holocast-lab bench
// tiles`.
const (
	Ours     = "ours"
	Whole    = "whole"
	Viewport = "viewport"
	Fixed    = "fixed"
	Paper    = "paper"
)

// Config configures a Viewer.
type Config struct {
	// Head returns the gaze at a time in seconds since the first frame; nil means straight ahead.
	Head     func(seconds float64) tile360.Vec
	Crowd    *tile360.Crowd // gaze of earlier viewers; nil if unknown
	Viewport tile360.Viewport
	Scheme   string // default Ours
	// Percentile of the predicted capacity to plan with; 0 means the planner's default.
	Percentile float64
	// Decode decodes the displayed tiles with FFmpeg, if it is installed.
	Decode bool
	// Reference is the file or URL of the source, for comparison with the viewport. It implies
	// Decode.
	Reference string
	// Clock estimates the relay's clock. Relay reports whether the estimate is valid.
	Clock *clock.Estimator
	Relay func() bool
	// Sound, if set, is called for every packet of the sound track.
	Sound func(SoundPacket)
	Log   *slog.Logger // default slog.Default
}

// SoundPacket is a packet of the sound track.
type SoundPacket struct {
	Track      catalog.Track
	Properties wire.Properties
	Payload    []byte
	// Due is the local time at which to play it; zero in a recording played at the viewer's own pace.
	Due time.Time
}

// Timing and limits.
const (
	replans     = 4                      // decisions per GoP
	decideAhead = 150 * time.Millisecond // lead before a GoP starts at the publisher, in addition to the RTT
	slotsPerS   = 10                     // viewport measurements per second
	headRate    = 20                     // gaze samples per second
	settle      = 50 * time.Millisecond  // delay from a GoP's last frame to its measurement
	keepGroups  = 8
	maxFrames   = 1 << 9 // per group
	maxObject   = 8 << 20
	maxGroup    = 32 << 20 // bytes per track and group
)

// Viewer plays one session's 360° video over successive connections.
type Viewer struct {
	cfg Config
	log *slog.Logger

	mu       sync.Mutex
	video    catalog.Track // from the catalog; Sphere is set
	grid     tile360.Grid  // 1×1 without tiles
	tiled    bool
	offered  map[key]catalog.Track
	name     func(track string) moqt.TrackName
	gop      time.Duration
	latency  time.Duration
	replayed bool

	groups    map[uint64]*group
	newest    uint64 // largest group of the video track
	forgotten uint64 // groups with smaller IDs that are not in groups have been deleted
	began     bool
	first     time.Time     // timestamp of the first frame, time 0 of Config.Head
	minDelay  time.Duration // smallest arrival − timestamp
	rates     map[uint64]*catalog.Rates
	latest    *catalog.Rates
	planner   tile360.Planner
	solver    tile360.Solver
	subs      map[int]*subscription // current subscriptions by tile
	ending    []*subscription
	receiving map[key]chan struct{} // closed when the newest subscription of a track has ended
	urgent    map[fetched]bool

	audio    string // name of the sound track; "" = none
	audible  catalog.Track
	sound    SoundReport
	interval meter // since the last decision
	train    tile360.Train
	opened   time.Time // time 0 of train
	rate     float64
	counters counters
	judge    judge
	decoder  *decoder
	playback *Playback // set while playing a recording at its own pace
	shown    bool      // showing is closed
	showing  chan struct{}
	closed   chan struct{}
}

// key identifies a tile at a quality. The low-resolution sphere is tile −1.
type key struct{ tile, quality int }

type fetched struct {
	group uint64
	key
}

// group holds the received data of a GoP.
type group struct {
	id     uint64
	start  time.Time // timestamp of the first frame
	tracks map[key]*received
	judged bool
}

// received holds the received data of one track in a GoP.
type received struct {
	config   []byte
	frames   []frame // indexed by object ID; missing frames have no payload
	bytes    int
	complete bool // the publisher ended the subgroup
}

type frame struct {
	payload []byte
	at      time.Time // arrival
	stamp   time.Time
}

// meter accumulates over an interval.
type meter struct {
	began   time.Time
	bytes   int
	objects int
	late    int // objects delayed by more than half the target latency beyond the minimum
}

// New returns a viewer. The caller must Close it.
func New(cfg Config) (*Viewer, error) {
	if cfg.Head == nil {
		cfg.Head = func(float64) tile360.Vec { return tile360.Vec{Z: 1} }
	}
	if cfg.Viewport == (tile360.Viewport{}) {
		cfg.Viewport = tile360.Degrees(90, 90)
	}
	cfg.Scheme, cfg.Percentile = cmp.Or(cfg.Scheme, Ours), cmp.Or(cfg.Percentile, tile360.BudgetPercentile)
	switch cfg.Scheme {
	case Ours, Whole, Viewport, Fixed, Paper:
	default:
		return nil, fmt.Errorf("unknown scheme %q; use %s, %s, %s, %s or %s", cfg.Scheme, Ours, Whole, Viewport, Fixed, Paper)
	}
	v := &Viewer{
		cfg: cfg, log: cmp.Or(cfg.Log, slog.Default()), groups: map[uint64]*group{}, rates: map[uint64]*catalog.Rates{},
		subs: map[int]*subscription{}, receiving: map[key]chan struct{}{}, urgent: map[fetched]bool{},
		showing: make(chan struct{}), closed: make(chan struct{}),
		minDelay: math.MaxInt64,
		opened:   time.Now(),
	}
	if cfg.Decode || cfg.Reference != "" {
		var err error
		if v.decoder, err = newDecoder(cfg, v.log); err != nil && cfg.Reference != "" {
			return nil, err
		} else if err != nil {
			v.log.Warn("cannot decode the video", "err", err)
		}
	}
	return v, nil
}

// Close stops the decoder. Play must have returned.
func (v *Viewer) Close() {
	close(v.closed)
	if v.decoder != nil {
		v.decoder.close()
	}
}

// Showing returns a channel that is closed when the first frame has been displayed.
func (v *Viewer) Showing() <-chan struct{} { return v.showing }

// noteShown records that a frame is displayed. The caller holds v.mu.
func (v *Viewer) noteShown() {
	if !v.shown {
		v.shown = true
		close(v.showing)
	}
}

// Closed returns a channel that Close closes.
func (v *Viewer) Closed() <-chan struct{} { return v.closed }

// Configure applies a catalog whose Sphere is not nil. name returns the full name of a track.
func (v *Viewer) Configure(c *catalog.Catalog, name func(catalog.Track) moqt.TrackName) {
	t := *c.Sphere()
	v.mu.Lock()
	defer v.mu.Unlock()
	s := t.Sphere
	grid := tile360.Grid{Columns: max(1, s.Columns), Rows: max(1, s.Rows), Width: s.Width, Height: s.Height}
	if v.planner.View == nil || grid != v.grid {
		v.planner.View = tile360.NewView(grid, v.cfg.Viewport, 8)
		v.judge.view = tile360.NewView(grid, v.cfg.Viewport, 24)
		v.rates, v.latest = map[uint64]*catalog.Rates{}, nil
	}
	v.video, v.grid, v.tiled = t, grid, s.Tiles() > 0
	v.gop = time.Duration(cmp.Or(t.MaxGOPDuration, 1000) * float64(time.Millisecond))
	v.latency = time.Duration(cmp.Or(t.TargetLatency, 1000) * float64(time.Millisecond))
	v.planner.Qualities = max(1, s.Qualities)
	v.planner.Percentile, v.planner.Solver.Refine = v.cfg.Percentile, tile360.DefaultRefine
	v.planner.Gaze.Crowd = v.cfg.Crowd
	v.offered, v.audio = map[key]catalog.Track{}, ""
	for _, t := range c.Tracks {
		if t.Role == catalog.RoleAudio && t.Packaging == catalog.PackagingLOC && t.Namespace == "" &&
			t.Sound == nil {
			v.audio, v.audible, v.sound.Codec = t.Name, t, t.Codec
		}
		if t.Tile != nil {
			v.offered[key{t.Tile.Tile, t.Tile.Quality}] = t
		}
	}
	namespaced := map[string]moqt.TrackName{}
	for _, t := range c.Tracks {
		namespaced[t.Name] = name(t)
	}
	v.name = func(track string) moqt.TrackName { return namespaced[track] }
}

// Play plays over one connection. It returns nil if the publisher ends the video, otherwise
// ctx.Err() or the error that ended the video's subscription.
func (v *Viewer) Play(ctx context.Context, s *moqt.Session) error {
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	v.mu.Lock()
	v.began = false
	clear(v.subs)
	v.ending = nil
	v.interval = meter{began: time.Now()}
	video, rates, latency, gop := v.name(catalog.VideoTrack), v.name(catalog.RatesTrack), v.latency, v.gop
	var sound moqt.TrackName
	if v.audio != "" {
		sound = v.name(v.audio)
	}
	v.mu.Unlock()

	ended := make(chan error, 1)
	running.Go(func() { ended <- v.receiveTrack(ctx, s, video, key{-1, 0}, latency+gop) })
	if rates.Name != "" {
		running.Go(func() { v.followRates(ctx, s, rates) })
	}
	if sound.Name != "" {
		running.Go(func() { v.followSound(ctx, s, sound, latency) })
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	next := schedule{}
	for {
		select {
		case err := <-ended:
			var done *moqt.DoneError
			if errors.As(err, &done) && (done.Code == wire.DoneTrackEnded || done.Code == wire.DoneSubscriptionEnded) {
				return nil
			}
			return err
		case <-ctx.Done():
			return ctx.Err()
		case now := <-tick.C:
			v.mu.Lock()
			v.judgeDue(now)
			actions := v.decide(now, s.Stats().RTT, &next)
			v.mu.Unlock()
			for _, act := range actions {
				running.Go(func() { act(ctx, s) })
			}
		}
	}
}

// local converts a timestamp to this machine's clock, using the relay's clock or, for recordings
// and without a relay clock, the smallest delay observed. The caller holds v.mu.
func (v *Viewer) local(stamp time.Time) time.Time {
	if !v.replayed && v.cfg.Relay != nil && v.cfg.Relay() {
		now := time.Now()
		return now.Add(stamp.Sub(v.cfg.Clock.At(now)))
	}
	if v.minDelay == math.MaxInt64 {
		return time.Now()
	}
	return stamp.Add(v.minDelay)
}

// due returns the time at which to display a frame, on this machine's clock or on the playback's
// timeline. The caller holds v.mu.
func (v *Viewer) due(stamp time.Time) time.Time {
	if v.playback != nil {
		return stamp
	}
	return v.local(stamp).Add(v.latency)
}

// playhead returns the media time displayed at local time now, in seconds since the first frame.
// The caller holds v.mu.
func (v *Viewer) playhead(now time.Time) float64 { return now.Sub(v.due(v.first)).Seconds() }

// media converts a timestamp to seconds since the first frame.
func (v *Viewer) media(stamp time.Time) float64 { return stamp.Sub(v.first).Seconds() }
