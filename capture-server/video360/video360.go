// Package video360 publishes 360° video (docs/spec/tiles.md). Each input frame becomes a frame of
// every tile at every quality, and of the whole sphere at low resolution, in one-second groups.
// Sound and the tiles' rates have their own tracks.
//
// On a slow machine it drops qualities before it drops frames.
package video360

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holocast/capture-server/publish"
	"holocast/capture-server/source/videoinput"
	"holocast/internal/catalog"
	"holocast/internal/loc"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/tileencoder"
)

// Config configures a Medium. Zero fields mean the defaults.
type Config struct {
	Columns, Rows, Qualities int // defaults: 8, 4 and 3
	Quantisers               []int
	Preset                   string
	MaxBitrate               int64         // for the whole sphere at the best quality, bits per second
	TargetLatency            time.Duration // from capture to display; default 1 s
}

// Medium publishes the 360° video of a session.
type Medium struct {
	session *publish.Publisher
	src     *videoinput.Player
	cfg     Config
	sphere  catalog.Sphere
	encoder *tileencoder.Encoder
	gop     int64 // frames
	metrics *metrics

	video, audio, rates *track
	tiles               [][]*track // [tile][quality]
	ended               atomic.Bool
	skip                atomic.Pointer[[]bool] // qualities left out

	// Used to align sound groups with video groups.
	mu     sync.Mutex
	starts []start // starts of the newest GoPs
}

// start records the start of a GoP.
type start struct {
	group uint64
	at    time.Time // capture time, local clock
}

// track is a track and its open group.
type track struct {
	*origin.Track
	priority uint8
	feed     *origin.Feed
	group    uint64
	object   uint64
}

var _ publish.Medium = (*Medium)(nil)

// cacheAge exceeds a GoP, so that a late joiner gets the current group from its start.
const cacheAge = 2500 * time.Millisecond

// distortEvery is the number of frames per distortion measurement.
const distortEvery = 3

// New creates the medium of a source. Errors name the wrong setting.
func New(session *publish.Publisher, cfg Config, src *videoinput.Player) (*Medium, error) {
	if cfg.Columns == 0 && cfg.Rows == 0 {
		cfg.Columns, cfg.Rows = 8, 4
	}
	if cfg.Qualities == 0 {
		cfg.Qualities = 3
	}
	if cfg.TargetLatency == 0 {
		cfg.TargetLatency = tileencoder.DefaultLatency
	}
	m := &Medium{
		session: session,
		src:     src,
		cfg:     cfg,
		sphere:  src.Sphere,
		metrics: newMetrics(),
		gop:     int64(tileencoder.GOP(src.FPSNum, src.FPSDen)),
	}
	m.sphere.Columns, m.sphere.Rows, m.sphere.Qualities = cfg.Columns, cfg.Rows, cfg.Qualities
	skip := make([]bool, cfg.Qualities)
	m.skip.Store(&skip)
	var err error
	m.encoder, err = tileencoder.New(tileencoder.Config{
		Sphere: m.sphere, FPSNum: src.FPSNum, FPSDen: src.FPSDen, Quantisers: cfg.Quantisers,
		Preset: cfg.Preset, MaxBitrate: cfg.MaxBitrate, DistortEvery: distortEvery, RatesEvery: int(m.gop),
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", src.Input, err)
	}
	newTrack := func(name string, priority uint8) *track {
		timeout := cfg.TargetLatency
		if name == catalog.VideoTrack { // later frames of the GoP may be in time, and depend on this one
			timeout += m.gopDuration()
		}
		return &track{
			priority: priority,
			Track: session.NewTrack(publish.Track{
				Name: name, Priority: priority, DeliveryTimeout: timeout,
				CacheAge: cacheAge,
			}),
		}
	}
	m.video = newTrack(catalog.VideoTrack, tileencoder.PriorityVideo)
	m.rates = newTrack(catalog.RatesTrack, tileencoder.PriorityRates)
	if src.AudioFormat() != nil {
		m.audio = newTrack(catalog.AudioTrack, tileencoder.PriorityAudio)
	}
	m.tiles = make([][]*track, m.sphere.Tiles())
	for i := range m.tiles {
		for q := range cfg.Qualities {
			m.tiles[i] = append(m.tiles[i], newTrack(catalog.TileTrack(i, q), tileencoder.PriorityTile))
		}
	}
	m.metrics.qualities.Set(float64(cfg.Qualities))
	session.Register(m.metrics.collectors()...)
	return m, nil
}

// Name implements publish.Medium.
func (m *Medium) Name() string { return "tiles" }

// Close implements publish.Medium.
func (m *Medium) Close() { m.encoder.Close() }

// all returns the medium's tracks.
func (m *Medium) all() []*track {
	list := append(slices.Concat(m.tiles...), m.video, m.rates)
	if m.audio != nil {
		list = append(list, m.audio)
	}
	return list
}

// Describe implements publish.Medium.
func (m *Medium) Describe(c *catalog.Catalog) error {
	if m.ended.Load() {
		return nil
	}
	return m.encoder.Describe(c, tileencoder.Description{
		Label: m.src.Name(), TargetLatency: m.cfg.TargetLatency, Audio: m.src.AudioFormat(), Skip: *m.skip.Load(),
	})
}

// Run implements publish.Medium.
func (m *Medium) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, note := range m.src.Notes {
		m.session.Log().Warn("360° video opened; see note", "input", m.src.Input.String(), "note", note)
	}
	played := make(chan error, 1)
	go func() { played <- m.src.Run(ctx) }()
	var sound sync.WaitGroup
	sound.Go(m.publishSound)
	err := m.publishPictures()
	if err != nil {
		cancel()
		for f := range m.src.Frames() {
			m.src.Release(f)
		}
	}
	sound.Wait()
	if perr := <-played; err == nil {
		err = perr
	}
	m.ended.Store(true)
	for _, t := range m.all() {
		t.close()
		if ctx.Err() == nil {
			t.End(wire.DoneTrackEnded, "the video has ended")
		}
	}
	return err
}

// publishPictures encodes frames until the source ends.
func (m *Medium) publishPictures() error {
	var (
		group   = publish.FirstGroup()
		first   = group
		zero    time.Time // capture time of the first frame
		begun   bool
		last    time.Time // timestamp of the previous frame
		gopAt   int64     // timestamp of the GoP's first frame, ms
		shedder = newShedder(m.cfg.Qualities, m.gopDuration(), m.src.Since(1))
		drops   dropReport
	)
	for f := range m.src.Frames() {
		if !begun {
			zero = f.Captured
		}
		lag := time.Since(f.Captured)
		if shedder.dropFrame(lag) {
			m.metrics.frames.WithLabelValues("dropped").Inc()
			m.src.Release(f)
			if n := drops.dropped(time.Now()); n > 0 {
				m.session.Log().Warn("machine too slow for 360° video, dropping frames; "+
					"use a smaller tiles.size or a faster tiles.preset", "frames", n)
			}
			continue
		}
		now := first + uint64(max(0, m.frameAt(f.Captured.Sub(zero))/m.gop))
		idr := !begun || now > group
		if idr {
			if begun {
				m.publishRates(group, gopAt)
			}
			group = now
			if shedder.gop(lag) {
				m.change(shedder.skip())
			}
		}
		stamp := m.session.RelayTime().At(f.Captured)
		if !stamp.After(last) {
			stamp = last.Add(time.Microsecond)
		}
		last = stamp
		if idr {
			gopAt = stamp.UnixMilli()
			m.noteStart(start{group, f.Captured})
		}
		started := time.Now()
		err := m.encoder.Encode(&f.Frame.Frame, idr, *m.skip.Load(), func(tile, quality int, payload []byte) error {
			t := m.video
			if tile != tileencoder.Video {
				t = m.tiles[tile][quality]
			}
			p := loc.Properties{Timestamp: stamp}
			if idr {
				p.VideoConfig = m.encoder.Config(tile, quality)
			}
			return t.write(group, p, payload)
		})
		took := time.Since(started)
		m.src.Release(f)
		if err != nil {
			return err
		}
		shedder.encoded(took)
		m.metrics.frames.WithLabelValues("published").Inc()
		m.metrics.encode.Observe(took.Seconds())
		m.metrics.latency.Observe(time.Since(f.Captured).Seconds())
		begun = true
	}
	if begun {
		m.publishRates(group, gopAt)
	}
	return nil
}

// frameAt returns the number of the frame at a media time.
func (m *Medium) frameAt(d time.Duration) int64 {
	return int64(d.Seconds()*float64(m.src.FPSNum)/float64(m.src.FPSDen) + 0.5)
}

func (m *Medium) gopDuration() time.Duration { return m.src.Since(m.gop) }

// change applies a new set of skipped qualities, starting with the GoP that begins now.
func (m *Medium) change(skip []bool) {
	before := 0
	for _, s := range *m.skip.Swap(&skip) {
		if !s {
			before++
		}
	}
	n := 0
	for q, s := range skip {
		if !s {
			n++
			continue
		}
		for i := range m.tiles {
			m.tiles[i][q].close()
		}
	}
	m.metrics.qualities.Set(float64(n))
	if n < before {
		m.metrics.dropped.Inc()
	}
	switch {
	case n == m.cfg.Qualities:
		m.session.Log().Info("encoding all qualities of 360° video")
	case n > before:
		m.session.Log().Info("encoding another quality of 360° video", "qualities", n, "of", m.cfg.Qualities)
	default:
		m.session.Log().Warn("machine too slow for all qualities of 360° video, dropping some; "+
			"use fewer tiles.qualities, a smaller tiles.size, a faster tiles.preset or a lower process priority for "+
			"other programs",
			"qualities", n, "of", m.cfg.Qualities)
	}
	m.session.Changed()
}

func (m *Medium) publishRates(group uint64, at int64) {
	b, err := json.Marshal([]catalog.Rates{{T: at, Data: m.encoder.Rates()}})
	if err == nil {
		err = m.rates.WriteObject(wire.SubgroupHeader{
			Group: group, Priority: tileencoder.PriorityRates,
			EndOfGroup: true, FirstObject: true,
		}, moqt.Object{}, b)
	}
	if err != nil {
		m.session.Log().Warn("rates not published", "err", err)
	}
}

// maxStarts bounds the GoP starts kept for sound.
const maxStarts = 8

func (m *Medium) noteStart(s start) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.starts = append(m.starts, s)
	if len(m.starts) > maxStarts {
		m.starts = m.starts[1:]
	}
}

// groupAt returns the group of sound captured at a time, or false if that is before the first
// frame.
func (m *Medium) groupAt(at time.Time) (uint64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := len(m.starts) - 1; i >= 0; i-- {
		if s := m.starts[i]; !at.Before(s.at) {
			return s.group + uint64(at.Sub(s.at)/m.gopDuration()), true
		}
	}
	return 0, false
}

// publishSound publishes packets until the source ends.
func (m *Medium) publishSound() {
	var group uint64
	var last time.Time
	for p := range m.src.Packets() {
		now, ok := m.groupAt(p.Captured)
		if !ok || m.audio == nil {
			continue
		}
		group = max(group, now) // the video's clock may have stepped back
		stamp := m.session.RelayTime().At(p.Captured)
		if !stamp.After(last) {
			stamp = last.Add(time.Microsecond)
		}
		last = stamp
		if err := m.audio.write(group, loc.Properties{Timestamp: stamp}, p.Data); err != nil {
			m.session.Log().Warn("sound not published", "err", err)
		}
	}
}

// write writes the next object of a group, opening the group if it is new.
func (t *track) write(group uint64, p loc.Properties, payload []byte) error {
	if t.feed == nil || group != t.group {
		t.close()
		f, err := t.OpenSubgroup(wire.SubgroupHeader{
			Group: group, Mode: wire.SubgroupIDExplicit, Priority: t.priority,
			HasProperties: true, EndOfGroup: true, FirstObject: true,
		})
		if err != nil {
			return err
		}
		t.feed, t.group, t.object = f, group, 0
	}
	err := t.feed.WriteObject(moqt.Object{ID: t.object, Properties: p.Append(nil)}, bytes.Clone(payload))
	t.object++
	return err
}

// close ends the open group.
func (t *track) close() {
	if t.feed != nil {
		_ = t.feed.Close() // the cache may have evicted the group
		t.feed = nil
	}
}

// metrics are the medium's metrics.
type metrics struct {
	frames    *prometheus.CounterVec
	dropped   prometheus.Counter
	qualities prometheus.Gauge
	encode    prometheus.Histogram
	latency   prometheus.Histogram
}

func newMetrics() *metrics {
	buckets := []float64{.002, .004, .006, .008, .010, .012, .015, .020, .025, .030, .040, .050, .1, .2, .5, 1, 2}
	return &metrics{
		frames: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holocast_tiles_frames_total",
			Help: "Frames by result: published, or dropped because the machine was too slow.",
		}, []string{"result"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holocast_tiles_quality_drops_total",
			Help: "Reductions of the number of encoded qualities because encoding took too long.",
		}),
		qualities: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holocast_tiles_qualities", Help: "Qualities being encoded; fewer than configured on a slow machine.",
		}),
		encode: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holocast_tiles_encode_seconds", Help: "Time to encode all tiles of a frame.", Buckets: buckets,
		}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holocast_tiles_capture_to_published_seconds",
			Help: "Time from capture to publication of all tiles of a frame.", Buckets: buckets,
		}),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.frames, m.dropped, m.qualities, m.encode, m.latency}
}
