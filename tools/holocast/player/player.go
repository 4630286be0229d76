// Package player receives a session as a viewer does: it follows the catalog,
// subscribes to the cameras' point-cloud tracks, puts frames together, decodes
// them and measures what a viewer would see. It draws nothing; whoever wants a
// picture asks for the newest cloud.
//
// A viewer that comes late subscribes from the largest object on and fetches the
// group before it (MOQT draft-18 §10.12.2), so it has a frame one round trip after
// the catalog. A frame is shown when all its descriptions have arrived, or with
// those that have when an object of a later frame does: a congested path costs
// density, not frames.
package player

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/clock"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/pointcloud"
	"holocast/internal/qoe"
	"holocast/internal/trace"
	"holocast/tools/holocast/player/sphere"
)

// Config says what to play.
type Config struct {
	Namespace moqt.Namespace // of the session
	Cameras   []int          // numbers in the catalog; nil = all
	Quality   string         // of the points tracks; "" = the highest bit rate
	// DeliveryTimeout is how old an object may get before it is not worth sending
	// any more; 0 = what the catalog says of the track.
	DeliveryTimeout time.Duration
	// Viewer names the track receipts/<viewer> that a receipt of every frame
	// shown is sent on; "" sends none.
	Viewer string
	// Wait makes Play wait for a session that nobody publishes yet.
	Wait bool
	// Sphere says how to play the session's 360° video; nil = not at all. Its clock is the
	// player's.
	Sphere *sphere.Config
	// Shown, if set, is called for every frame that was shown, one after the other. It
	// must not call the player.
	Shown func(ShownFrame)
	// Own has the player play a replay's recording by itself from the start, from From on
	// and as Script says: the cues one after the other, each when the position gets to it. Else it
	// does so once it is told to pause or seek.
	Own    bool
	From   time.Duration
	Script []Cue
	Tracer *trace.Tracer // of single frames; nil = none
	Log    *slog.Logger  // nil = slog.Default
}

// ShownFrame is a frame that was shown.
type ShownFrame struct {
	Camera   uint16
	Sequence uint32
	Captured time.Time // on the relay's clock
	Arrived  time.Time // the last byte of its first object, local clock
	Shown    time.Time // decoded, local clock
	Points   int
	Bytes    int // of its objects
}

// Player plays one session, over any number of connections one after the other.
type Player struct {
	cfg    Config
	log    *slog.Logger
	meter  qoe.Meter
	clock  clock.Estimator
	began  time.Time
	joined chan struct{}
	showed chan struct{}
	turn   chan struct{} // taken by the connection that plays 360° video or a recording

	recorded *recorded

	mu         sync.Mutex
	sphere     *sphere.Viewer // nil where the session has none
	feeds      map[int]*feed
	first      time.Time // when the first frame was shown
	hasClock   clockState
	rtt        time.Duration // to the relay
	minRTT     time.Duration
	unmeasured []shown // frames that wait for the clock
	replayed   bool    // the newest frame came from a recording
	own        bool    // which this player plays by itself
	receipts   receipts
}

// New returns a player. The caller must Close it.
func New(cfg Config) *Player {
	return &Player{
		cfg: cfg, log: cmp.Or(cfg.Log, slog.Default()), began: time.Now(),
		joined: make(chan struct{}), showed: make(chan struct{}), turn: make(chan struct{}, 1), feeds: map[int]*feed{},
		recorded: newRecorded(cfg.From, cfg.Script, cfg.Own),
	}
}

// Close stops the decoders. Play must have returned.
func (p *Player) Close() {
	if v := p.Sphere(); v != nil {
		v.Close()
	}
	for _, f := range p.sorted() {
		f.close()
	}
}

// Joined is closed when the session's catalog is here.
func (p *Player) Joined() <-chan struct{} { return p.joined }

func (p *Player) isJoined() bool {
	select {
	case <-p.joined:
		return true
	default:
		return false
	}
}

// Showing is closed when the first frame was shown.
func (p *Player) Showing() <-chan struct{} { return p.showed }

// Play may run over two connections at a time, while the session moves from one to the other
// (connect.Target.KeepMoving); it has settled once each camera's frames come over its own. 360°
// video and recordings play over one: the other is to wait.
//
// Play plays over one connection until ctx or the connection ends, whose error it
// returns, or the publisher ends the session: then it returns nil. A session that
// does not exist is a *connect.NoSessionError. What another connection would not mend is
// marked with connect.Final.
func (p *Player) Play(ctx context.Context, s *moqt.Session) error {
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { p.followClock(ctx, s) })
	if p.cfg.Viewer != "" {
		wg.Go(func() { p.receipts.open(ctx, s, p.receiptsTrack(), p.log) })
		defer p.receipts.close(s)
	}

	updates := make(chan update)
	var ended error
	wg.Go(func() {
		ended = p.followCatalog(ctx, s, updates)
		close(updates)
	})
	fail := func(err error) error {
		stop()
		for range updates {
			continue // until its sender is gone
		}
		return connect.Final(err)
	}
	watching := map[string]context.CancelFunc{}
	var cameras sync.WaitGroup
	settling := newSettling(ctx)
	var current *catalog.Catalog
	following := false // the recording's catalog
	for going := true; going; {
		select {
		case u, ok := <-updates:
			if going = ok; !ok {
				continue
			}
			current = u.Catalog
			p.recorded.isReplay(u.replayed)
			if u.replayed && !following {
				following = true
				wg.Go(func() { p.followRecording(ctx, s) })
			}
		case <-p.recorded.turned:
			if p.recorded.ended() {
				stop()
				cameras.Wait()
				for range updates {
					continue
				}
				return nil
			}
		}
		if current == nil {
			continue
		}
		wanted, err := p.wanted(current, settling)
		if err != nil && p.isJoined() { // it played before
			p.log.Warn("catalog ignored", "err", err)
			continue
		}
		if err != nil {
			return fail(err)
		}
		for name, cancel := range watching {
			if _, ok := wanted[name]; !ok {
				cancel()
				delete(watching, name)
			}
		}
		for name, start := range wanted {
			if watching[name] == nil {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				watching[name] = cancel
				cameras.Go(func() { start(ctx, s) })
			}
		}
		settling.begun()
	}
	if ended == nil { // in order: what is in flight still arrives
		cameras.Wait()
		return nil
	}
	stop()
	cameras.Wait()
	return ended
}

// wanted lists what to receive, by full track name, and tells the feeds of their cameras.
func (p *Player) wanted(c *catalog.Catalog, settling *settling) (map[string]func(context.Context, *moqt.Session), error) {
	list := map[string]func(context.Context, *moqt.Session){}
	if c.IsComplete {
		return list, nil // whatever it still lists
	}
	own, recording, err := p.recorded.wanted()
	if err != nil || own && recording == nil {
		return list, err
	}
	session := c
	if own {
		c = recording
	}
	feeds, err := p.configure(c)
	if err != nil {
		return nil, err
	}
	if t, ok := session.Poses(); ok {
		name := connect.TrackName(p.cfg.Namespace, t)
		list[name.String()] = func(ctx context.Context, s *moqt.Session) { p.followPoses(ctx, s, name) }
	}
	v, err := p.configureSphere(c)
	if err != nil {
		return nil, err
	}
	switch {
	case own:
		list[recordingKey] = func(ctx context.Context, s *moqt.Session) {
			p.alone(ctx, func() { p.playRecording(ctx, s, c, feeds, v) })
		}
	default:
		for _, f := range feeds {
			name := connect.TrackName(p.cfg.Namespace, f.track)
			settling.expect(f.camera)
			list[name.String()] = func(ctx context.Context, s *moqt.Session) {
				p.watch(ctx, s, name, f, func() { settling.came(f.camera) })
				settling.came(f.camera)
			}
		}
		if v != nil {
			list[connect.TrackName(p.cfg.Namespace, *c.Sphere()).String()] = func(ctx context.Context, s *moqt.Session) {
				p.alone(ctx, func() {
					if err := v.Play(ctx, s); err != nil && ctx.Err() == nil && s.Err() == nil {
						p.log.Error("the 360° video cannot be received", "err", err)
					}
				})
			}
		}
	}
	select {
	case <-p.joined:
	default:
		close(p.joined)
	}
	return list, nil
}

// alone calls play once no other connection does what it does.
func (p *Player) alone(ctx context.Context, play func()) {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-p.turn }()
	play()
}

// recordingKey stands for the recording in what is wanted.
const recordingKey = "recording"

// configure tells the feeds of a catalog's cameras, those that are to be played.
func (p *Player) configure(c *catalog.Catalog) (feeds []*feed, err error) {
	cameras := c.Cameras()
	for _, n := range p.cfg.Cameras {
		if !slices.Contains(cameras, n) {
			return nil, fmt.Errorf("the session has no camera %d, only %v", n, cameras)
		}
	}
	for _, n := range cameras {
		if p.cfg.Cameras != nil && !slices.Contains(p.cfg.Cameras, n) {
			continue
		}
		t, err := c.Select(n, p.cfg.Quality)
		if err != nil {
			return nil, err
		}
		var init catalog.CameraInit
		if t.InitRef != "" {
			if init, err = c.Init(t); err != nil {
				return nil, err
			}
		}
		f, err := p.feed(n)
		if err != nil {
			return nil, err
		}
		f.configure(t, init)
		feeds = append(feeds, f)
	}
	return feeds, nil
}

// configureSphere tells the viewer of a catalog's 360° video; nil where there is none, or it is
// not to be played.
func (p *Player) configureSphere(c *catalog.Catalog) (*sphere.Viewer, error) {
	if c.Sphere() == nil || p.cfg.Sphere == nil {
		return nil, nil
	}
	v := p.Sphere()
	if v == nil {
		cfg := *p.cfg.Sphere
		cfg.Clock, cfg.Log = &p.clock, p.log
		cfg.Relay = func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.hasClock == clockRelay
		}
		var err error
		if v, err = sphere.New(cfg); err != nil {
			return nil, err
		}
		p.mu.Lock()
		p.sphere = v
		p.mu.Unlock()
		go func() {
			select {
			case <-v.Showing():
				p.firstShown(time.Now())
			case <-v.Closed():
			}
		}()
	}
	v.Configure(c, func(t catalog.Track) moqt.TrackName { return connect.TrackName(p.cfg.Namespace, t) })
	return v, nil
}

// Sphere returns the viewer of the session's 360° video, nil where there is none.
func (p *Player) Sphere() *sphere.Viewer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sphere
}

// feed finds or makes the feed of a camera.
func (p *Player) feed(camera int) (*feed, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.feeds[camera]
	if f == nil {
		var err error
		if f, err = newFeed(p, camera); err != nil {
			return nil, err
		}
		p.feeds[camera] = f
	}
	return f, nil
}

func (p *Player) sorted() []*feed {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*feed, 0, len(p.feeds))
	for _, f := range p.feeds {
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b *feed) int { return a.camera - b.camera })
	return list
}

// Clouds returns the newest frame of every camera as points in the studio's
// coordinates, and where each camera stands, millimetres.
func (p *Player) Clouds() (clouds []pointcloud.Points, sensors [][3]float64) {
	for _, f := range p.sorted() {
		if c := f.cloud(); len(c.XYZ) > 0 {
			clouds, sensors = append(clouds, c), append(sensors, f.pose().T)
		}
	}
	return clouds, sensors
}

// YUp reports whether the studio's y axis points up, going by how the cameras
// stand in it: their own points down.
func (p *Player) YUp() bool {
	var y float64
	for _, f := range p.sorted() {
		y += f.pose().R[4] // what the camera's y axis becomes
	}
	return y < 0
}

// pose is where the camera is, as the catalog and the pose track say.
func (f *feed) pose() camera.Transform {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at
}

// settling tells when what a connection is to bring comes.
type settling struct {
	ctx context.Context

	mu      sync.Mutex
	cameras map[int]bool // expected; false = nothing came yet
	all     bool         // there are no others
}

func newSettling(ctx context.Context) *settling {
	return &settling{ctx: ctx, cameras: map[int]bool{}}
}

// expect says that a camera's frames are to come.
func (s *settling) expect(camera int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cameras[camera] = s.cameras[camera] || false
}

// begun says that all cameras are expected.
func (s *settling) begun() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = true
	s.check()
}

// came says that a camera's frames come, or will not.
func (s *settling) came(camera int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cameras[camera] = true
	s.check()
}

// check is what follows from the above. s.mu is held.
func (s *settling) check() {
	for _, came := range s.cameras {
		if !came {
			return
		}
	}
	if s.all {
		connect.Settled(s.ctx)
	}
}

// watch receives one camera's track until it or the connection ends. came is called when
// something of it has come, once or more often.
func (p *Player) watch(ctx context.Context, s *moqt.Session, name moqt.TrackName, f *feed, came func()) {
	for {
		sub, err := connect.Subscribe(ctx, s, name, f.timeout(p.cfg.DeliveryTimeout), true)
		if err == nil {
			err = f.receive(ctx, sub, came)
			sub.Cancel()
		}
		if connect.Ended(err) {
			f.drain()
			return
		}
		if !connect.Away(err) {
			if ctx.Err() == nil && s.Err() == nil {
				p.log.Error("track not received", "track", name.String(), "err", err)
			}
			return
		}
		p.log.Warn("the publisher is away", "track", name.String(), "reason", err)
	}
}
