// Package sphere plays a session's tiled 360° video (docs/spec/tiles.md) without a window: a
// recorded or still head decides where to look, internal/tile360 which tiles to fetch for
// that, and what arrived by the time it was due is what the viewer saw.
//
// The viewer shows a frame at its timestamp plus the catalog's target latency. Before each
// GoP begins at the publisher it subscribes to tiles for it, ends the subscriptions it no
// longer wants and leaves the rest alone; between, when the head turns, it joins tiles of the
// GoP under way and fetches those of the one being shown.
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

// Schemes are the ways to choose tiles: ours, and those that bench tiles compares it with.
const (
	Ours     = "ours"
	Whole    = "whole"
	Viewport = "viewport"
	Fixed    = "fixed"
	Paper    = "paper"
)

// Config says what to play and how to look at it.
type Config struct {
	// Head is where the viewer looks, by seconds since the first picture; nil = straight
	// ahead.
	Head     func(seconds float64) tile360.Vec
	Crowd    *tile360.Crowd // what others looked at; nil = not known
	Viewport tile360.Viewport
	Scheme   string // "" = Ours
	// Percentile of the predicted capacity is what is planned with; 0 = the planner's own.
	Percentile float64
	// Decode has FFmpeg decode what is seen, where it is installed.
	Decode bool
	// Reference is the source's file or URL; with it the viewport is compared with the
	// source. It implies Decode.
	Reference string
	// Clock is the relay's, Relay whether it is known.
	Clock *clock.Estimator
	Relay func() bool
	Log   *slog.Logger // nil = slog.Default
}

// The viewer's timing.
const (
	replans     = 4                      // decisions a GoP: at its beginning, and when the head may have turned
	decideAhead = 150 * time.Millisecond // before a GoP begins at the publisher, and a round trip
	slotsPerS   = 10                     // moments of a second at which the viewport is judged
	headRate    = 20                     // gaze samples per second
	settle      = 50 * time.Millisecond  // after a GoP's last frame was due until it is judged
	keepGroups  = 8
	maxFrames   = 1 << 9 // of a group
	maxObject   = 8 << 20
	maxGroup    = 32 << 20 // bytes of one track's
)

// Viewer plays one session's sphere, over any number of connections one after the other.
type Viewer struct {
	cfg Config
	log *slog.Logger

	mu       sync.Mutex
	video    catalog.Track // the catalog's; Sphere is set
	grid     tile360.Grid  // of one tile where there are none
	tiled    bool
	offered  map[key]catalog.Track
	name     func(track string) moqt.TrackName
	gop      time.Duration
	latency  time.Duration
	replayed bool

	groups    map[uint64]*group
	newest    uint64 // largest group of video begun
	forgotten uint64 // groups below this are, unless groups has them
	began     bool
	first     time.Time     // timestamp of the first picture, from which the head's time counts
	least     time.Duration // least arrival − timestamp seen
	rates     map[uint64]*catalog.Rates
	latest    *catalog.Rates
	planner   tile360.Planner
	solver    tile360.Solver
	subs      map[int]*subscription // tiles subscribed to from the newest decision on
	ending    []*subscription
	urgent    map[fetched]bool

	audio    string // name of the session's track of sound; "" = none
	sound    SoundReport
	interval meter // since the last decision
	train    tile360.Train
	opened   time.Time // that train's times count from
	rate     float64
	counters counters
	judge    judge
	decoder  *decoder
	film     *Film // while a recording is played by this viewer alone
	shown    bool  // showing is closed
	showing  chan struct{}
	closed   chan struct{}
}

// key is a tile at a quality; the low-resolution sphere is tile −1.
type key struct{ tile, quality int }

type fetched struct {
	group uint64
	key
}

// group is what arrived of a GoP.
type group struct {
	id     uint64
	start  time.Time // timestamp of its first frame
	tracks map[key]*received
	judged bool
}

// received is one tile's GoP, or the low-resolution sphere's.
type received struct {
	config   []byte
	frames   []frame // by object; those that are missing have no payload
	bytes    int
	complete bool // the subgroup ended as its publisher meant it to
}

type frame struct {
	payload []byte
	at      time.Time // arrival
	stamp   time.Time
}

// meter sums up an interval.
type meter struct {
	began   time.Time
	bytes   int
	objects int
	late    int // objects that came later than the earliest by more than half the target latency
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
		return nil, fmt.Errorf("scheme %q is unknown; %s, %s, %s, %s and %s are known", cfg.Scheme, Ours, Whole, Viewport, Fixed, Paper)
	}
	v := &Viewer{
		cfg: cfg, log: cmp.Or(cfg.Log, slog.Default()), groups: map[uint64]*group{}, rates: map[uint64]*catalog.Rates{},
		subs: map[int]*subscription{}, urgent: map[fetched]bool{}, showing: make(chan struct{}), closed: make(chan struct{}), least: math.MaxInt64,
		opened: time.Now(),
	}
	if cfg.Decode || cfg.Reference != "" {
		var err error
		if v.decoder, err = newDecoder(cfg, v.log); err != nil && cfg.Reference != "" {
			return nil, err
		} else if err != nil {
			v.log.Warn("what is seen is not decoded", "err", err)
		}
	}
	return v, nil
}

// Close ends decoding. Play must have returned.
func (v *Viewer) Close() {
	close(v.closed)
	if v.decoder != nil {
		v.decoder.close()
	}
}

// Showing is closed when the first picture was shown.
func (v *Viewer) Showing() <-chan struct{} { return v.showing }

// shows notes that something is shown. v.mu is held.
func (v *Viewer) shows() {
	if !v.shown {
		v.shown = true
		close(v.showing)
	}
}

// Closed is closed by Close.
func (v *Viewer) Closed() <-chan struct{} { return v.closed }

// Configure tells the viewer of a catalog whose Sphere is not nil. Name makes full names of
// its tracks.
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
		if t.Role == catalog.RoleAudio && t.Packaging == catalog.PackagingLOC && t.Namespace == "" {
			v.audio, v.sound.Codec = t.Name, t.Codec
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

// Play plays over one connection until ctx ends or the publisher ends the video, for which
// it returns nil.
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

// local returns when a timestamp was, on this machine's clock: by the relay's clock, or of
// recordings and where that is not known by the least delay that was seen. v.mu is held.
func (v *Viewer) local(stamp time.Time) time.Time {
	if !v.replayed && v.cfg.Relay != nil && v.cfg.Relay() {
		now := time.Now()
		return now.Add(stamp.Sub(v.cfg.Clock.At(now)))
	}
	if v.least == math.MaxInt64 {
		return time.Now()
	}
	return stamp.Add(v.least)
}

// due returns when a frame is to be shown: by this machine's clock, or by a film's. v.mu is held.
func (v *Viewer) due(stamp time.Time) time.Time {
	if v.film != nil {
		return stamp
	}
	return v.local(stamp).Add(v.latency)
}

// playhead returns the seconds since the first picture that are shown at a time. v.mu is held.
func (v *Viewer) playhead(now time.Time) float64 { return now.Sub(v.due(v.first)).Seconds() }

// media returns a timestamp in seconds since the first picture.
func (v *Viewer) media(stamp time.Time) float64 { return stamp.Sub(v.first).Seconds() }
