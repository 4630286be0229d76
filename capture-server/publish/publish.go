// Package publish turns cameras into the tracks of a session: each camera's newest
// capture becomes a point-cloud frame (package cloud, then internal/pointcloud) and a
// group of its tracks points/<camera>/<quality>; the catalog and the cameras' poses go
// beside them. It keeps the session with the relay and its clock.
//
// A frame is one group. Its description i is object i of subgroup i, of a lower
// priority the higher i is, so that a congested hop drops density, not frames.
package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"holocast/capture-server/cloud"
	"holocast/capture-server/source"
	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/clock"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/pointcloud"
)

// Config says what is published. Zero fields take the defaults.
type Config struct {
	Namespace moqt.Namespace
	// Cloud is how captures become points; its Pose is each camera's own.
	Cloud        cloud.Config
	Layout       pointcloud.Layout // 0 is LayoutGrid
	Descriptions int               // 1 or 4; 0 is 1
	// Low adds a track of every second pixel in x and y to each camera.
	Low bool
	// DeliveryTimeout is how old a frame may become under way before its rest is
	// dropped; 0 is no limit.
	DeliveryTimeout time.Duration
	// AlwaysEncode encodes every frame of every track. Else a track that nobody
	// watches gets one frame a second, so that who comes has a picture at once.
	AlwaysEncode bool

	Log     *slog.Logger          // nil is slog.Default
	Metrics prometheus.Registerer // nil is none
}

// Camera is a camera to publish. Its number in the session is its index.
type Camera struct {
	Source source.Source
	// Pose is the motion from the depth camera's space to the studio's; the zero
	// Transform is Identity.
	Pose camera.Transform
	FPS  float64 // what the catalog says; 0 where it is not known
}

// Publisher publishes cameras. Make one with New.
type Publisher struct {
	cfg       Config
	log       *slog.Logger
	metrics   *metrics
	pipelines []*pipeline
	slots     chan struct{} // bounds the frames being encoded at a time
	set       origin.Set
	tracks    []*origin.Track
	goaway    chan struct{}
	session   atomic.Pointer[moqt.Session] // once the relay accepted the namespace
	relayTime clock.Estimator
	catalog   *document
	poses     *document
}

// Publisher priorities of the tracks (lower first).
const (
	priorityDocument    = 32 // the catalog, the poses
	priorityDescription = 96 // of description 0
	priorityStep        = 32 // more for each further description
)

// cacheAge is how long frames are kept for those who join late. A relay asks for the
// newest only.
const cacheAge = time.Second

// New makes a publisher of cameras, which its Close closes; after an error they are
// still the caller's. Errors name the setting or the camera that is wrong.
func New(cfg Config, cameras []Camera) (*Publisher, error) {
	if cfg.Layout == 0 {
		cfg.Layout = pointcloud.LayoutGrid
	}
	if cfg.Descriptions == 0 {
		cfg.Descriptions = 1
	}
	if cfg.Descriptions != 1 && cfg.Descriptions != 4 {
		return nil, fmt.Errorf("descriptions is %d, want 1 or 4", cfg.Descriptions)
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	p := &Publisher{
		cfg: cfg, log: cfg.Log, metrics: newMetrics(),
		slots: make(chan struct{}, runtime.GOMAXPROCS(0)), goaway: make(chan struct{}, 1),
	}
	p.catalog, p.poses = p.newDocument(catalog.TrackName), p.newDocument(catalog.PoseTrack)
	for i, c := range cameras {
		l, err := newPipeline(p, i, c)
		if err != nil {
			p.release()
			return nil, fmt.Errorf("camera %s: %w", c.Source.Name(), err)
		}
		p.pipelines = append(p.pipelines, l)
	}
	if err := p.describe(); err != nil {
		p.release()
		return nil, err
	}
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(p.metrics.collectors(p)...)
	}
	return p, nil
}

// Close frees the encoders and closes the cameras. Run must have returned.
func (p *Publisher) Close() {
	p.release()
	for _, l := range p.pipelines {
		if err := l.src.Close(); err != nil {
			p.log.Warn("closing camera", "camera", l.number, "err", err)
		}
	}
}

// release frees what the publisher made itself.
func (p *Publisher) release() {
	for _, l := range p.pipelines {
		l.encoder.Close()
		l.mapper.Close()
	}
}

// Connected reports whether the relay has accepted the session's namespace.
func (p *Publisher) Connected() bool { return p.session.Load() != nil }

func (p *Publisher) newTrack(name string, priority uint8, timeout time.Duration, properties ...wire.KeyValue) *origin.Track {
	kvs := append(properties, wire.KeyValue{Type: wire.PropertyPublisherPriority, Int: uint64(priority)})
	if ms := uint64(timeout.Milliseconds()); ms > 0 {
		kvs = append(kvs, wire.KeyValue{Type: wire.PropertyObjectDeliveryTimeout, Int: ms},
			wire.KeyValue{Type: wire.PropertySubgroupDeliveryTimeout, Int: ms})
	}
	t := origin.NewTrack(moqt.TrackName{Namespace: p.cfg.Namespace, Name: name},
		wire.AppendKeyValues(nil, kvs...), origin.Limits{MaxAge: cacheAge})
	p.set.Add(t)
	p.tracks = append(p.tracks, t)
	return t
}

// firstGroup is above the groups of an earlier life of the publisher, which had less
// than one a millisecond.
func firstGroup() uint64 { return uint64(time.Now().UnixMilli()) }

// Run captures and publishes until ctx ends or no camera is left, and keeps a session
// with the relay. It then ends the tracks, lets what is under way arrive and closes
// the session. It returns nil when ctx ended it.
func (p *Publisher) Run(ctx context.Context, target connect.Target) error {
	linked := make(chan error, 1)
	link, unlink := context.WithCancel(context.WithoutCancel(ctx))
	defer unlink()
	p.log.Info("connecting", "relay", target.URL)
	go func() { linked <- p.keepSession(link, target) }()

	captured := make(chan error, 1)
	capturing, stop := context.WithCancel(ctx)
	defer stop()
	go func() { captured <- p.capture(capturing) }()

	select {
	case err := <-linked: // it cannot be mended by trying again
		stop()
		return errors.Join(err, <-captured)
	case err := <-captured:
		p.finish()
		unlink()
		return errors.Join(err, <-linked)
	}
}

// errNoCamera says that all cameras failed or came to their end.
var errNoCamera = errors.New("no camera is left to publish")

// capture runs the cameras. It returns nil when ctx ended them, or when all of them
// came to their end; else the first that failed says why.
func (p *Publisher) capture(ctx context.Context) error {
	var g errgroup.Group
	for _, l := range p.pipelines {
		g.Go(func() error {
			err := l.run(ctx)
			if ctx.Err() != nil {
				return nil //nolint:nilerr // ctx ended it, it did not fail
			}
			l.ended.Store(true)
			for _, t := range l.tracks {
				t.End(wire.DoneTrackEnded, "the camera is gone")
			}
			if err := p.describe(); err != nil {
				p.log.Warn("catalog", "err", err)
			}
			if err != nil {
				p.log.Error("camera failed", "camera", l.number, "name", l.src.Name(), "err", err)
				return fmt.Errorf("%w; camera %s: %w", errNoCamera, l.src.Name(), err)
			}
			p.log.Info("camera came to its end", "camera", l.number, "name", l.src.Name())
			return nil
		})
	}
	return g.Wait()
}

// Draining: how long viewers may take to receive what is under way, and how long the
// last messages may take to leave.
const (
	drainLimit = time.Second
	drainPoll  = 10 * time.Millisecond
	drainFlush = 200 * time.Millisecond
)

// finish ends the session's tracks.
func (p *Publisher) finish() {
	if err := p.publishCatalog(&catalog.Catalog{Version: catalog.Version, IsComplete: true}); err != nil {
		p.log.Warn("catalog", "err", err)
	}
	p.set.End(wire.DoneTrackEnded, "the session is over")
	if !p.Connected() {
		return
	}
	for until := time.Now().Add(drainLimit); p.viewers() > 0 && time.Now().Before(until); {
		time.Sleep(drainPoll)
	}
	time.Sleep(drainFlush)
}

func (p *Publisher) viewers() (n int) {
	for _, t := range p.tracks {
		n += t.Viewers()
	}
	return n
}
