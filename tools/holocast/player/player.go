// Package player receives a session like a viewer. It follows the catalog, subscribes to the
// cameras' point-cloud tracks, assembles and decodes frames, and measures quality of experience. It
// draws nothing; Clouds returns the newest point clouds.
//
// A late joiner subscribes from the largest object and requests the rest of that group with it (MOQT
// draft-18 §10.12.2, draft-22 §3.5), so its first frame arrives one round trip after the catalog. A frame is
// displayed when all its descriptions have arrived, or without the missing ones when an object of a
// later frame arrives. A congested path therefore costs point density, not frame rate.
package player

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
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
	"holocast/internal/render"
	"holocast/internal/secureobjects"
	"holocast/internal/trace"
	"holocast/tools/holocast/player/sound"
	"holocast/tools/holocast/player/sphere"
)

// Config configures a Player.
type Config struct {
	Namespace moqt.Namespace // of the session
	Cameras   []int          // camera numbers in the catalog; nil means all
	Quality   string         // quality of the points tracks; "" means the highest bit rate
	// DeliveryTimeout is the age at which senders drop an object; 0 means the catalog's value.
	DeliveryTimeout time.Duration
	// Viewer names the receipt track, receipts/<viewer>. The player sends one receipt per displayed
	// frame. "" disables receipts.
	Viewer string
	// Wait makes Play wait for the session's publisher.
	Wait bool
	// Sphere configures playback of the session's 360° video; nil disables it. The player sets its
	// Clock and Log.
	Sphere *sphere.Config
	// Sound plays the session's sound; nil disables it. The player sets its clock.
	Sound *sound.Mixer
	// Shown, if set, is called for every displayed frame, one call at a time. It must not call the
	// player.
	Shown func(ShownFrame)
	// Own makes the player play a replay's recording at its own pace, starting at From and
	// following Script. Script lists the cues in the order in which they apply. Without Own, the
	// player joins the shared replay and switches to its own pace at the first pause or seek.
	Own    bool
	From   time.Duration
	Script []Cue
	// View chooses each camera's quality by the viewer's pose while the session plays live; nil means
	// Quality for all.
	View   *View
	Tracer *trace.Tracer // traces sampled frames; nil = none
	// Decrypt decrypts the session; the connections given to Play use it as their Opener. nil plays
	// only sessions that are not encrypted.
	Decrypt *secureobjects.Viewer
	Log     *slog.Logger // nil = slog.Default
}

// ShownFrame describes a displayed frame.
type ShownFrame struct {
	Camera   uint16
	Sequence uint32
	Captured time.Time // on the relay's clock
	Arrived  time.Time // last byte of its first object, local clock
	Shown    time.Time // end of decoding, local clock
	Points   int
	Bytes    int // total size of its objects
}

// Player plays one session over successive or overlapping connections.
type Player struct {
	cfg       Config
	log       *slog.Logger
	meter     qoe.Meter
	clock     clock.Estimator
	began     time.Time
	joined    chan struct{}
	showed    chan struct{}
	exclusive chan struct{} // held by the connection that plays 360° video or a recording

	recorded  *recorded
	playhead  playhead
	selection *selection

	mu         sync.Mutex
	sphere     *sphere.Viewer   // nil if the session has no 360° video
	feeds      map[int]*feed    // displayed, by camera
	next       map[int]*feed    // to be displayed from their first frame on, by camera
	tracks     map[string]*feed // with Config.View: by track name
	switches   map[int]int      // changes of quality, by camera
	first      time.Time        // time of the first displayed frame
	hasClock   clockState
	rtt        time.Duration // to the relay
	minRTT     time.Duration
	unmeasured []shown // frames waiting for the clock
	replayed   bool    // the newest frame is recorded
	own        bool    // this player plays the recording at its own pace
	receipts   receipts
}

// New returns a player. The caller must Close it.
func New(cfg Config) *Player {
	p := &Player{
		cfg: cfg, log: cmp.Or(cfg.Log, slog.Default()), began: time.Now(),
		joined: make(chan struct{}), showed: make(chan struct{}), exclusive: make(chan struct{}, 1), feeds: map[int]*feed{},
		next: map[int]*feed{}, tracks: map[string]*feed{}, switches: map[int]int{},
		recorded: newRecorded(cfg.From, cfg.Script, cfg.Own), selection: newSelection(cfg.View),
	}
	if cfg.Sound != nil {
		cfg.Sound.Use(p.relayTime, sound.Live)
	}
	return p
}

// Close stops the decoders. Play must have returned.
func (p *Player) Close() {
	if v := p.Sphere(); v != nil {
		v.Close()
	}
	for _, f := range p.all() {
		f.close()
	}
}

// Joined returns a channel that is closed when the player has received the session's catalog.
func (p *Player) Joined() <-chan struct{} { return p.joined }

func (p *Player) isJoined() bool {
	select {
	case <-p.joined:
		return true
	default:
		return false
	}
}

// Showing returns a channel that is closed when the player has displayed its first frame.
func (p *Player) Showing() <-chan struct{} { return p.showed }

// Play plays the session over one connection until the publisher ends the session, playback of its
// recording reaches the end, ctx is done or the connection fails. It returns nil in the first two
// cases, *connect.NoSessionError if the session does not exist, and otherwise the connection's
// error. Errors that another connection would not fix are marked with connect.Final.
//
// Two calls may overlap while the session moves to another connection (connect.Target.KeepMoving).
// The new connection counts as settled once it has delivered a frame of each camera. 360° video and
// recordings use one connection at a time; the other call waits.
func (p *Player) Play(ctx context.Context, s *moqt.Session) error {
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() { p.followClock(ctx, s) })
	wg.Go(func() { p.selectQualities(ctx) })
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
			continue // until the sender returns
		}
		return connect.Final(err)
	}
	watching := map[string]context.CancelFunc{}
	var cameras sync.WaitGroup
	settling := newSettling(ctx)
	var current *catalog.Catalog
	following := false // the recording's catalog
	selected := p.selection.wait()
	var undecryptable <-chan struct{}
	if p.cfg.Decrypt != nil {
		undecryptable = p.cfg.Decrypt.Failed()
	}
	for going := true; going; {
		select {
		case <-undecryptable:
			return fail(p.cfg.Decrypt.Err())
		case u, ok := <-updates:
			if going = ok; !ok {
				continue
			}
			if u.Encrypted() {
				return fail(secureobjects.ErrNoKey)
			}
			current = u.Catalog
			p.recorded.isReplay(u.replayed)
			if u.replayed && !following {
				following = true
				wg.Go(func() { p.followRecording(ctx, s) })
			}
		case <-p.recorded.changed:
			if p.recorded.ended() {
				stop()
				cameras.Wait()
				for range updates {
					continue
				}
				return nil
			}
		case <-selected:
		}
		selected = p.selection.wait()
		if current == nil {
			continue
		}
		wanted, err := p.wanted(current, settling)
		if err != nil && p.isJoined() { // a previous catalog is playing
			p.log.Warn("ignored a catalog", "err", err)
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
	if ended == nil { // ended by the publisher; wait for data in flight
		cameras.Wait()
		return nil
	}
	stop()
	cameras.Wait()
	return ended
}

// wanted returns the functions that receive the catalog's tracks, by full track name, and
// configures the feeds.
func (p *Player) wanted(
	c *catalog.Catalog, settling *settling,
) (map[string]func(context.Context, *moqt.Session), error) {
	list := map[string]func(context.Context, *moqt.Session){}
	if c.IsComplete {
		return list, nil // ignore the tracks it lists
	}
	own, recording, err := p.recorded.wanted()
	if err != nil || own && recording == nil {
		return list, err
	}
	session := c
	if own {
		c = recording
	}
	feeds, err := p.configure(c, !own)
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
			p.exclusively(ctx, func() {
				defer p.followPlayhead(c)()
				p.playRecording(ctx, s, c, feeds, v)
			})
		}
	default:
		for _, f := range feeds {
			name := connect.TrackName(p.cfg.Namespace, f.track)
			settling.expect(f.camera)
			list[name.String()] = func(ctx context.Context, s *moqt.Session) {
				p.watch(ctx, s, name, f, func() { settling.received(f.camera) })
				settling.received(f.camera)
			}
		}
		p.listenTo(c, list)
		if v != nil {
			list[connect.TrackName(p.cfg.Namespace, *c.Sphere()).String()] = func(ctx context.Context, s *moqt.Session) {
				p.exclusively(ctx, func() {
					if err := v.Play(ctx, s); err != nil && ctx.Err() == nil && s.Err() == nil {
						p.log.Error("could not receive the 360° video", "err", err)
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

// exclusively waits until no other connection runs its play function, and then calls play.
func (p *Player) exclusively(ctx context.Context, play func()) {
	select {
	case p.exclusive <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-p.exclusive }()
	play()
}

// recordingKey is the key of the recording in the map that wanted returns.
const recordingKey = "recording"

// configure configures and returns the feeds of the cameras selected by Config.Cameras. While a
// camera changes its quality, it has two.
func (p *Player) configure(c *catalog.Catalog, live bool) (feeds []*feed, err error) {
	cameras := c.Cameras()
	for _, n := range p.cfg.Cameras {
		if !slices.Contains(cameras, n) {
			return nil, fmt.Errorf("the session has no camera %d, only %v", n, cameras)
		}
	}
	if live {
		p.useForSelection(c)
	} else {
		p.useForSelection(nil)
	}
	for _, n := range cameras {
		if p.cfg.Cameras != nil && !slices.Contains(p.cfg.Cameras, n) {
			continue
		}
		t, err := c.Select(n, p.cfg.Quality)
		if err != nil {
			return nil, err
		}
		if p.cfg.View == nil {
			f, err := p.feed(n)
			if err == nil {
				err = f.use(c, t)
			}
			if err != nil {
				return nil, err
			}
			feeds = append(feeds, f)
			continue
		}
		if live {
			t = p.selection.track(c, n)
		}
		f, shown, err := p.feedOf(t, live)
		if err == nil {
			err = f.use(c, t)
		}
		if err != nil {
			return nil, err
		}
		feeds = append(feeds, f)
		if f == shown {
			continue
		}
		f.follow(shown)
		tracks := c.PointsTracks(n)
		name := shown.name()
		if i := slices.IndexFunc(tracks, func(t catalog.Track) bool { return t.Name == name }); i >= 0 {
			if err := shown.use(c, tracks[i]); err != nil {
				return nil, err
			}
			feeds = append(feeds, shown)
		}
	}
	return feeds, nil
}

// use configures the feed for a track of a catalog.
func (f *feed) use(c *catalog.Catalog, t catalog.Track) (err error) {
	var init catalog.CameraInit
	if t.InitRef != "" {
		if init, err = c.Init(t); err != nil {
			return err
		}
	}
	f.configure(t, init)
	if t.Points.Layout == catalog.LayoutVideo {
		return f.openVideo()
	}
	return nil
}

// configureSphere configures the viewer of the catalog's 360° video. It returns nil if there is no
// such video or its playback is disabled.
func (p *Player) configureSphere(c *catalog.Catalog) (*sphere.Viewer, error) {
	if c.Sphere() == nil || p.cfg.Sphere == nil {
		return nil, nil
	}
	v := p.Sphere()
	if v == nil {
		cfg := *p.cfg.Sphere
		cfg.Clock, cfg.Log, cfg.Sound = &p.clock, p.log, p.sphereSound()
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

// Sphere returns the viewer of the session's 360° video, or nil.
func (p *Player) Sphere() *sphere.Viewer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sphere
}

// feed returns the feed of a camera, creating it if necessary.
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

// feedOf returns the feed of a track, creating it if necessary, and the camera's displayed feed. If
// they differ, the former replaces the latter once it has a frame, or now unless switching is set.
func (p *Player) feedOf(t catalog.Track, switching bool) (f, shown *feed, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	camera := t.Points.Camera
	if f = p.tracks[t.Name]; f == nil {
		if f, err = newFeed(p, camera); err != nil {
			return nil, nil, err
		}
		p.tracks[t.Name] = f
	}
	delete(p.next, camera)
	switch shown = p.feeds[camera]; {
	case shown == f:
	case shown == nil || !switching:
		p.feeds[camera], shown = f, f
	default:
		p.next[camera] = f
	}
	return f, shown, nil
}

// sorted returns the displayed feeds, by camera.
func (p *Player) sorted() []*feed {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := slices.Collect(maps.Values(p.feeds))
	slices.SortFunc(list, func(a, b *feed) int { return a.camera - b.camera })
	return list
}

// all returns the feeds of all cameras and qualities.
func (p *Player) all() []*feed {
	if p.cfg.View == nil {
		return p.sorted()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.tracks))
}

// Clouds returns the newest frame of every camera as points in studio coordinates, and the camera
// positions in millimeters.
func (p *Player) Clouds() (clouds []pointcloud.Points, sensors [][3]float64) {
	for _, f := range p.sorted() {
		if c := f.cloud(); len(c.XYZ) > 0 {
			clouds, sensors = append(clouds, c), append(sensors, f.pose().T)
		}
	}
	return clouds, sensors
}

// Shot returns a copy of the newest frame of every camera.
func (p *Player) Shot() (shot render.Shot) {
	for _, f := range p.sorted() {
		if c, ok := f.view(); ok {
			shot = append(shot, c)
		}
	}
	return shot
}

// pose returns the camera's current pose, from the catalog or the pose track.
func (f *feed) pose() camera.Transform {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at
}

// settling detects when a connection has delivered data of every expected camera.
type settling struct {
	ctx context.Context

	mu      sync.Mutex
	cameras map[int]bool // expected cameras; true once data has arrived
	all     bool         // the list is complete
}

func newSettling(ctx context.Context) *settling {
	return &settling{ctx: ctx, cameras: map[int]bool{}}
}

// expect adds a camera to wait for.
func (s *settling) expect(camera int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cameras[camera] = s.cameras[camera] || false
}

// begun declares the list of expected cameras complete.
func (s *settling) begun() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = true
	s.check()
}

// received records that a camera has delivered data or will not do so.
func (s *settling) received(camera int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cameras[camera] = true
	s.check()
}

// check calls connect.Settled if all cameras have delivered. The caller holds s.mu.
func (s *settling) check() {
	for _, received := range s.cameras {
		if !received {
			return
		}
	}
	if s.all {
		connect.Settled(s.ctx)
	}
}

// watch receives one camera's track until the track or the connection ends. It calls received for
// every object that was not fetched.
func (p *Player) watch(ctx context.Context, s *moqt.Session, name moqt.TrackName, f *feed, received func()) {
	for {
		sub, err := connect.Subscribe(ctx, s, name, f.timeout(p.cfg.DeliveryTimeout), true)
		if err == nil {
			err = f.receive(ctx, sub, received)
			sub.Cancel()
		}
		if connect.Ended(err) {
			f.drain()
			return
		}
		if !connect.Away(err) {
			if ctx.Err() == nil && s.Err() == nil {
				p.log.Error("could not receive a track", "track", name.String(), "err", err)
			}
			return
		}
		p.log.Warn("publisher is away", "track", name.String(), "reason", err)
	}
}
