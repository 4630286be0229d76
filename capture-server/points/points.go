// Package points publishes depth cameras as point clouds. Each camera's newest capture becomes a
// grid of points (package depthmap), a frame (internal/pointcloud) and a group of the tracks
// points/<camera>/<quality>. The track pose carries the camera poses.
//
// One frame is one group. Description i is object i of subgroup i, with falling priority, so that a
// congested hop drops density instead of frames. With datagram delivery each description is cut
// into objects that fit a datagram (internal/parts). In layout W a group holds one second of
// frames.
package points

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"holocast/capture-server/depthmap"
	"holocast/capture-server/publish"
	"holocast/capture-server/source"
	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/moqt/wire"
	"holocast/internal/pointcloud"
)

// Config configures a Medium. Zero fields mean the defaults.
type Config struct {
	// Cloud configures the mapping of captures to points. Its Pose and Gain are ignored in favour of
	// Camera's.
	Cloud depthmap.Config
	// MatchColors applies the cameras' gains.
	MatchColors  bool
	Layout       pointcloud.Layout // 0 is LayoutGrid
	Descriptions int               // 1 or 4; 0 is 1
	// Low adds to each camera a track with every second pixel in x and y.
	Low bool
	// High adds to each camera lossy tracks in layout W: high at a tenth of the bit rate, medium and fair
	// at 7/8 and 2/3 of that, and low with every second pixel in x and y. They are encoded only while
	// watched.
	High bool
	// Bitrate limits the total bit rate of all cameras' tracks in layout W, in bit/s; 0 = constant
	// quality.
	Bitrate float64
	// DeliveryTimeout is the age at which the rest of a frame is dropped; 0 disables it.
	DeliveryTimeout time.Duration
	// Delivery is catalog.DeliveryStream (the default) or catalog.DeliveryDatagram.
	Delivery string
	// AlwaysEncode encodes every frame of every track. Otherwise tracks without viewers get one
	// frame per second, so that a late joiner immediately has a picture.
	AlwaysEncode bool
	// Thin drops rows of points from all cameras' frames during overload. Otherwise whole frames
	// are dropped.
	Thin bool
}

// Camera is a camera to publish. Its index is its number in the session.
type Camera struct {
	Source source.Source
	// Pose maps the depth camera's space to studio space; the zero Transform is Identity.
	Pose camera.Transform
	// Gain is applied to colours if Config.MatchColors is set.
	Gain depthmap.Gain
}

// Medium publishes the cameras of a session.
type Medium struct {
	cfg       Config
	session   *publish.Publisher
	metrics   *metrics
	pipelines []*pipeline
	slots     chan struct{} // limits concurrent encodes
	governor  *governor     // nil without Config.Thin
	rate      *rate         // nil without Config.Bitrate
	began     time.Time
	posing    sync.Mutex // serializes publishPoses
	poses     *publish.Document
}

var _ publish.Medium = (*Medium)(nil)

// Publisher priorities of the tracks (lower first).
const (
	priorityDescription = 96 // priority of description 0
	priorityStep        = 32 // added per description
)

// New creates a medium that owns the cameras. If it fails, the caller still owns them; the error
// names the setting or camera.
func New(session *publish.Publisher, cfg Config, cameras []Camera) (*Medium, error) {
	if cfg.Layout == 0 {
		cfg.Layout = pointcloud.LayoutGrid
	}
	if cfg.Descriptions == 0 {
		cfg.Descriptions = 1
	}
	if cfg.Descriptions != 1 && cfg.Descriptions != 4 {
		return nil, fmt.Errorf("descriptions is %d, want 1 or 4", cfg.Descriptions)
	}
	m := &Medium{
		cfg: cfg, session: session, metrics: newMetrics(), poses: session.NewDocument(catalog.PoseTrack),
		slots: make(chan struct{}, runtime.GOMAXPROCS(0)), began: time.Now(),
	}
	fps := 0.0
	for _, c := range cameras {
		fps = max(fps, c.Source.FPS())
	}
	m.rate = newRate(session, cfg.Bitrate, cmp.Or(fps, defaultFPS))
	if cfg.Thin {
		m.governor = newGovernor(session.Log(), len(cameras))
	}
	for i, c := range cameras {
		l, err := newPipeline(m, i, c)
		if err != nil {
			m.release()
			return nil, fmt.Errorf("camera %s: %w", c.Source.Name(), err)
		}
		m.pipelines = append(m.pipelines, l)
	}
	if err := m.publishPoses(); err != nil {
		m.release()
		return nil, err
	}
	session.Register(m.metrics.collectors(m)...)
	return m, nil
}

// every returns the thinning factor n, where frames keep one row in n.
func (m *Medium) every() int {
	if m.governor == nil {
		return 1
	}
	return int(m.governor.every.Load())
}

// Name implements publish.Medium.
func (m *Medium) Name() string { return "points" }

// Close implements publish.Medium. It frees the encoders and closes the cameras.
func (m *Medium) Close() {
	m.release()
	for _, l := range m.pipelines {
		if err := l.src.Close(); err != nil {
			m.session.Log().Warn("could not close a camera", "camera", l.number, "err", err)
		}
	}
}

// release frees encoders and mappers.
func (m *Medium) release() {
	for _, l := range m.pipelines {
		l.free()
	}
}

// Place sets camera poses, which map depth camera space to studio space, by camera number. It
// publishes them and a new catalog. If any pose is invalid it changes none.
func (m *Medium) Place(poses map[int]camera.Transform) error {
	for n, pose := range poses {
		if n < 0 || n >= len(m.pipelines) {
			return fmt.Errorf("pose of camera %d: the session has only %d cameras", n, len(m.pipelines))
		}
		if err := pose.Validate(); err != nil {
			return fmt.Errorf("pose of camera %d: %w", n, err)
		}
	}
	for n, pose := range poses {
		m.pipelines[n].move(pose)
	}
	if err := m.publishPoses(); err != nil {
		return err
	}
	m.session.Changed()
	return nil
}

// Match sets gains by camera number. Without Config.MatchColors it only checks them. If any gain is
// invalid it changes none.
func (m *Medium) Match(gains map[int]depthmap.Gain) error {
	for n, gain := range gains {
		if n < 0 || n >= len(m.pipelines) {
			return fmt.Errorf("gain of camera %d: the session has only %d cameras", n, len(m.pipelines))
		}
		if err := gain.Validate(); err != nil {
			return fmt.Errorf("camera %d: %w", n, err)
		}
	}
	for n, gain := range gains {
		m.pipelines[n].match(gain)
	}
	return nil
}

// errNoCamera is returned by Run if a camera failed and none is left.
var errNoCamera = errors.New("no camera is left to publish")

// Run implements publish.Medium. It returns nil if ctx is done or all cameras end, otherwise the
// first failure.
func (m *Medium) Run(ctx context.Context) error {
	log := m.session.Log()
	var g errgroup.Group
	for _, l := range m.pipelines {
		g.Go(func() error {
			err := l.run(ctx)
			if ctx.Err() != nil {
				return nil //nolint:nilerr // canceled, not failed
			}
			m.end(l)
			if err != nil {
				log.Error("camera failed", "camera", l.number, "name", l.src.Name(), "err", err)
				return fmt.Errorf("%w; camera %s: %w", errNoCamera, l.src.Name(), err)
			}
			log.Info("camera ended", "camera", l.number, "name", l.src.Name())
			return nil
		})
	}
	announcing, stop := context.WithCancel(ctx)
	var announcer sync.WaitGroup
	announcer.Go(func() { m.announceErrors(announcing) })
	err := g.Wait()
	stop()
	announcer.Wait()
	if ctx.Err() == nil {
		m.poses.End(wire.DoneTrackEnded, "no camera is left")
	}
	return err
}

// announceErrors publishes a catalog when a track's depth error has changed, until ctx is done.
func (m *Medium) announceErrors(ctx context.Context) {
	var videos []*video
	for _, l := range m.pipelines {
		for _, t := range l.tracks {
			if t.video != nil {
				videos = append(videos, t.video)
			}
		}
	}
	if len(videos) == 0 {
		return
	}
	tick := time.NewTicker(announceInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		changed := false
		for _, v := range videos {
			changed = v.announce() || changed
		}
		if changed {
			m.session.Changed()
		}
	}
}

// end removes a camera from the session.
func (m *Medium) end(l *pipeline) {
	l.ended.Store(true)
	for _, t := range l.tracks {
		t.End(wire.DoneTrackEnded, "the camera has ended")
	}
	if err := m.publishPoses(); err != nil {
		m.session.Log().Warn("poses not published", "err", err)
	}
	m.session.Changed()
}
