// Package imported publishes point clouds computed by other systems, recorded or live. Each cloud
// becomes a frame (internal/pointcloud, layout B) and a group of the track points/<number>/full.
// Clouds are already in studio space.
package imported

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"holocast/capture-server/publish"
	"holocast/capture-server/source"
	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/pointcloud"
)

// Config configures a Medium.
type Config struct {
	First int // number of the first cloud track; cameras come before it
	// DeliveryTimeout is the age at which the rest of a frame is dropped; 0 disables it.
	DeliveryTimeout time.Duration
	// Delivery is catalog.DeliveryStream (the default) or catalog.DeliveryDatagram.
	Delivery string
	// AlwaysEncode encodes every cloud. Otherwise tracks without viewers get one frame per second,
	// so that a late joiner immediately has a picture.
	AlwaysEncode bool
}

// Medium publishes the clouds of a session.
type Medium struct {
	cfg     Config
	session *publish.Publisher
	streams []*stream
	frames  *prometheus.CounterVec
}

var _ publish.Medium = (*Medium)(nil)

const (
	quality      = "full"
	layout       = pointcloud.LayoutPoints
	priority     = 96 // publisher priority, the same as cameras'
	defaultFPS   = 30 // if the source's rate is unknown
	idleInterval = time.Second
)

// stream is one source and its track. Only its own goroutine writes frames.
type stream struct {
	m       *Medium
	number  int
	src     source.Clouds
	track   *origin.Track
	encoder *pointcloud.Encoder
	ended   atomic.Bool

	sequence uint32
	group    uint64
	most     int       // maximum points per cloud announced in the catalog
	newest   time.Time // time of the last published frame
	frame    pointcloud.Frame
}

// New creates a medium that owns the sources. If it fails, the caller still owns them.
func New(session *publish.Publisher, cfg Config, sources []source.Clouds) (*Medium, error) {
	m := &Medium{cfg: cfg, session: session, frames: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holocast_capture_clouds_total",
		Help: "Point clouds received from other systems, by result: published, idle (no viewers) or failed.",
	}, []string{"source", "result"})}
	for i, src := range sources {
		e, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{})
		if err != nil {
			m.release()
			return nil, err
		}
		s := &stream{m: m, number: cfg.First + i, src: src, encoder: e, group: publish.FirstGroup()}
		s.track = session.NewTrack(publish.Track{
			Name: catalog.PointsTrack(s.number, quality), Priority: priority, DeliveryTimeout: cfg.DeliveryTimeout,
		})
		m.streams = append(m.streams, s)
	}
	session.Register(m.frames)
	return m, nil
}

// Name implements publish.Medium.
func (m *Medium) Name() string { return "clouds" }

// Close implements publish.Medium. It frees the encoders and closes the sources.
func (m *Medium) Close() {
	m.release()
	for _, s := range m.streams {
		if err := s.src.Close(); err != nil {
			m.session.Log().Warn("could not close a source", "name", s.src.Name(), "err", err)
		}
	}
}

func (m *Medium) release() {
	for _, s := range m.streams {
		s.encoder.Close()
	}
}

// Describe implements publish.Medium.
func (m *Medium) Describe(c *catalog.Catalog) error {
	for _, s := range m.streams {
		if s.ended.Load() {
			continue
		}
		rate := s.src.FPS()
		if rate == 0 {
			rate = defaultFPS
		}
		renderGroup, altGroup := 1, s.number+1
		c.Tracks = append(c.Tracks, catalog.Track{
			Name: s.track.Name().Name, Packaging: catalog.PackagingPoints, IsLive: true, Role: catalog.RolePoints,
			Label: s.src.Name(), RenderGroup: &renderGroup, AltGroup: &altGroup, Framerate: s.src.FPS(),
			Bitrate: int64(float64(s.src.MaxPoints()) * layout.BytesPerPoint() * 8 * rate),
			Points: &catalog.Points{
				Camera: s.number, CameraName: s.src.Name(), Quality: quality, Layout: layout.String(), Descriptions: 1,
				MaxPoints: s.src.MaxPoints(), DeliveryTimeout: int(m.cfg.DeliveryTimeout.Milliseconds()),
				Delivery: m.cfg.Delivery,
			},
		})
	}
	return nil
}

// errNoCloud is returned by Run if a source failed and none is left.
var errNoCloud = errors.New("no point-cloud source is left to publish")

// Run implements publish.Medium. It returns nil if ctx is done or all sources end, otherwise the
// first failure.
func (m *Medium) Run(ctx context.Context) error {
	log := m.session.Log()
	var g errgroup.Group
	for _, s := range m.streams {
		g.Go(func() error {
			err := s.run(ctx)
			if ctx.Err() != nil {
				return nil //nolint:nilerr // canceled, not failed
			}
			s.ended.Store(true)
			s.track.End(wire.DoneTrackEnded, "the source has ended")
			m.session.Changed()
			if err != nil {
				log.Error("source failed", "name", s.src.Name(), "err", err)
				return fmt.Errorf("%w; %s: %w", errNoCloud, s.src.Name(), err)
			}
			log.Info("source ended", "name", s.src.Name())
			return nil
		})
	}
	return g.Wait()
}

// run publishes the source. It returns nil if ctx is done or the source ends, or the source's
// error. Sources drop late clouds themselves, so run encodes each cloud before it reads the next.
func (s *stream) run(ctx context.Context) error {
	var c source.Cloud
	s.most = s.src.MaxPoints()
	last := ""
	for {
		err := s.src.Next(ctx, &c)
		var damage *source.DamageError
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &damage):
			s.m.session.Log().Warn("skipped damaged data", "name", s.src.Name(), "err", err)
			continue
		case err != nil:
			return err
		}
		if most := s.src.MaxPoints(); most != s.most {
			s.most = most
			s.m.session.Changed()
		}
		if !s.wanted() {
			s.count("idle")
			continue
		}
		if err := s.publish(&c); err != nil {
			s.count("failed")
			if text := err.Error(); text != last {
				last = text
				s.m.session.Log().Warn("point cloud dropped", "name", s.src.Name(), "err", err)
			}
			continue
		}
		s.count("published")
	}
}

func (s *stream) count(result string) { s.m.frames.WithLabelValues(s.src.Name(), result).Inc() }

// wanted reports whether the track is due for a cloud.
func (s *stream) wanted() bool {
	return s.m.cfg.AlwaysEncode || s.track.Viewers() > 0 || time.Since(s.newest) >= idleInterval
}

func (s *stream) publish(c *source.Cloud) error {
	s.frame.Layout, s.frame.Points = layout, c.Points
	payload, err := s.encoder.Encode(nil, pointcloud.Header{
		Sequence:     s.sequence,
		DeviceTime:   uint64(max(0, c.DeviceTime.Microseconds())),
		CaptureTime:  uint64(s.m.session.RelayTime().At(c.CaptureTime).UnixMicro()),
		Camera:       uint16(s.number),
		Descriptions: 1,
	}, &s.frame, 0)
	s.sequence++
	if err != nil {
		return err
	}
	header := wire.SubgroupHeader{
		Group:       s.group,
		Mode:        wire.SubgroupIDExplicit,
		Priority:    priority,
		EndOfGroup:  true,
		FirstObject: true,
	}
	s.group++
	s.newest = time.Now()
	if s.m.cfg.Delivery == catalog.DeliveryDatagram {
		publish.SendParts(s.track, header, 0, payload)
		return nil
	}
	return s.track.WriteObject(header, moqt.Object{}, payload)
}
