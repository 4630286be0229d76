package points

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"holocast/capture-server/depthmap"
	"holocast/capture-server/source"
	"holocast/internal/camera"
	"holocast/internal/pointcloud"
	"holocast/internal/trace"
)

// idleInterval is the frame interval of a track without viewers.
const idleInterval = time.Second

// pipeline runs one camera. One goroutine reads captures, another encodes the newest. A newer
// capture replaces one that is still waiting.
type pipeline struct {
	m       *Medium
	number  int
	src     source.Source
	period  time.Duration // between captures
	mapper  *depthmap.Mapper
	encoder *pointcloud.Encoder
	tracks  []*pointsTrack
	toDepth camera.Transform // from the space of the tracks' pixels to the depth camera's
	ended   atomic.Bool
	pose    atomic.Pointer[camera.Transform] // from the depth camera's space to studio space
	gain    atomic.Pointer[depthmap.Gain]

	// Used by the capturing goroutine only.
	sequence uint32

	mu      sync.Mutex
	pending *capture // waiting to be encoded, or nil
	wake    chan struct{}

	// Used by the encoding goroutine only.
	grid    pointcloud.Grid
	mapped  *camera.Transform // pose set in mapper
	matched *depthmap.Gain    // gain set in mapper
	lastErr string
	gray    int       // captures without usable colour
	warned  time.Time // about them
}

// capture is a frame of the source. It is released once encoded or dropped.
type capture struct {
	source.Frame
	sequence uint32
	taken    time.Time // time at which the source delivered it
}

func newPipeline(of *Medium, number int, c Camera) (*pipeline, error) {
	cfg := of.cfg.Cloud
	cfg.Pose, cfg.Gain = c.Pose, depthmap.Gain{}
	m, err := depthmap.New(c.Source.Calibration(), cfg)
	if err != nil {
		return nil, err
	}
	e, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{})
	if err != nil {
		m.Close()
		return nil, err
	}
	l := &pipeline{
		m: of, number: number, src: c.Source, mapper: m, encoder: e,
		wake: make(chan struct{}, 1),
	}
	rate := c.Source.FPS()
	if rate == 0 {
		rate = defaultFPS
	}
	l.period = time.Duration(float64(time.Second) / rate)
	l.move(c.Pose)
	l.match(c.Gain)
	var lens camera.Intrinsics
	lens, l.toDepth = m.Output()
	qualities := []string{qualityFull}
	switch {
	case of.cfg.High:
		qualities = append(qualities, qualityHigh, qualityMedium, qualityFair, qualityLow)
	case of.cfg.Low:
		qualities = append(qualities, qualityLow)
	}
	for _, quality := range qualities {
		t, err := newPointsTrack(l, quality, lens)
		if err != nil {
			l.free()
			return nil, err
		}
		l.tracks = append(l.tracks, t)
	}
	return l, nil
}

// free frees the mapper and the encoders.
func (l *pipeline) free() {
	l.encoder.Close()
	l.mapper.Close()
	for _, t := range l.tracks {
		if t.video != nil {
			t.video.close()
		}
	}
}

// move sets the depth camera's pose. The crop box uses it from the next frame on.
func (l *pipeline) move(pose camera.Transform) {
	if pose == (camera.Transform{}) {
		pose = camera.Identity
	}
	l.pose.Store(&pose)
}

// match sets the gain from the next frame on.
func (l *pipeline) match(gain depthmap.Gain) {
	if l.m.cfg.MatchColors {
		l.gain.Store(&gain)
	}
}

// gridPose returns the transform from the space of the tracks' pixels to studio space.
func (l *pipeline) gridPose() camera.Transform { return l.pose.Load().Compose(l.toDepth) }

// run publishes the camera. It returns nil if ctx is done or the source ends, or the source's
// error.
func (l *pipeline) run(ctx context.Context) error {
	var encoding sync.WaitGroup
	encoding.Go(func() { l.encode(ctx) })
	defer func() {
		close(l.wake)
		encoding.Wait()
		if c := l.next(); c != nil {
			c.Release()
		}
	}()
	for {
		var f source.Frame
		err := l.src.Next(ctx, &f)
		var damage *source.DamageError
		switch {
		case err == nil:
			l.take(f)
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &damage):
			l.m.session.Log().Warn("skipped damaged data", "camera", l.number, "err", err)
		default:
			return err
		}
	}
}

// take queues a capture if a track needs it, replacing one that is still waiting. It releases
// unused captures.
func (l *pipeline) take(f source.Frame) {
	now, m := time.Now(), l.m.metrics
	if !l.want(now) {
		m.frames.WithLabelValues(l.label(), "idle").Inc()
		f.Release()
		return
	}
	// Sequence numbers count needed captures, so that viewers see a capture that was not encoded in
	// time as a loss.
	l.sequence++
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending != nil {
		m.frames.WithLabelValues(l.label(), "dropped").Inc()
		l.strain(lostShare*l.period, now)
		l.pending.Release()
	}
	l.pending = &capture{Frame: f, sequence: l.sequence - 1, taken: now}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// want reports whether any track is due for a capture, and marks the due tracks.
func (l *pipeline) want(now time.Time) (any bool) {
	for _, t := range l.tracks {
		if t.wanted(now) {
			t.due.Store(true)
			any = true
		}
	}
	return any
}

// encode publishes captures, always the newest, until ctx is done or until wake is closed and the
// last capture is published.
func (l *pipeline) encode(ctx context.Context) {
	for {
		select {
		case _, more := <-l.wake:
			if !more {
				return
			}
		case <-ctx.Done():
			return
		}
		// Wait for a processor before choosing the capture.
		select {
		case l.m.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if c := l.next(); c != nil {
			l.publish(c)
			c.Release()
		}
		<-l.m.slots
	}
}

// next removes and returns the waiting capture, or nil.
func (l *pipeline) next() *capture {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.pending
	l.pending = nil
	return c
}

// publish maps a capture and publishes a frame on every track that needs one.
func (l *pipeline) publish(c *capture) {
	m := l.m.metrics
	begun := time.Now()
	if pose := l.pose.Load(); pose != l.mapped {
		l.mapped = pose
		l.mapper.SetPose(*pose)
	}
	if gain := l.gain.Load(); gain != nil && gain != l.matched {
		l.matched = gain
		l.mapper.SetGain(*gain)
	}
	every := l.m.every()
	err := l.mapper.MapRows(&c.Frame, &l.grid, every)
	mapped := time.Now()
	if bad := (*depthmap.ColorError)(nil); errors.As(err, &bad) {
		l.colorless(err, mapped)
	} else if err != nil {
		l.fail(err)
		return
	}
	h := pointcloud.Header{
		Sequence:     c.sequence,
		DeviceTime:   uint64(max(0, c.DeviceTime.Microseconds())),
		CaptureTime:  uint64(l.m.session.RelayTime().At(c.CaptureTime).UnixMicro()),
		Camera:       uint16(l.number),
		Descriptions: uint8(l.m.cfg.Descriptions),
	}
	size := 0
	for _, t := range l.tracks {
		if !t.due.Load() && !t.wanted(begun) {
			continue
		}
		group, encoding := t.newestGroup(), time.Now()
		n, err := t.publish(l.encoder, h, &l.grid)
		if err != nil {
			l.fail(err)
			return
		}
		size += n
		l.trace(t, group, c, begun, mapped, encoding, n)
	}
	published := time.Now()
	l.strain(published.Sub(c.taken), published)
	m.frames.WithLabelValues(l.label(), "published").Inc()
	if every > 1 {
		m.thinned.WithLabelValues(l.label()).Inc()
	}
	m.observe(l.label(), "wait", begun.Sub(c.taken))
	m.observe(l.label(), "map", mapped.Sub(begun))
	m.observe(l.label(), "encode", published.Sub(mapped))
	m.latency.WithLabelValues(l.label()).Observe(published.Sub(c.CaptureTime).Seconds())
	l.m.session.Log().Debug("frame published", "camera", l.number, "sequence", c.sequence, "bytes", size,
		"wait", begun.Sub(c.taken), "map", mapped.Sub(begun), "encode", published.Sub(mapped),
		"since_capture", published.Sub(c.CaptureTime))
}

// trace reports the spans of a published frame if the frame is sampled.
func (l *pipeline) trace(t *pointsTrack, group uint64, c *capture, begun, mapped, encoding time.Time, size int) {
	tracer := l.m.session.Tracer()
	if !tracer.Traces(t.Name(), group) {
		return
	}
	published := time.Now()
	relay := l.m.session.RelayTime()
	tracer.Frame(t.Name(), group, trace.Span{
		Name: "frame", Begin: relay.At(c.CaptureTime), End: relay.At(published),
		Attributes: []attribute.KeyValue{
			attribute.Int("holocast.camera", l.number), attribute.Int64("holocast.sequence", int64(c.sequence)),
			attribute.Int("holocast.bytes", size),
			attribute.Float64("holocast.clock_error_ms", float64(relay.Estimate(published).Error.Microseconds())/1e3),
		},
	})
	for _, s := range []trace.Span{
		{Name: "capture", Begin: c.CaptureTime, End: c.taken},
		{Name: "wait", Begin: c.taken, End: begun},
		{Name: "map", Begin: begun, End: mapped},
		{Name: "encode", Begin: encoding, End: published},
	} {
		s.Begin, s.End = relay.At(s.Begin), relay.At(s.End)
		tracer.Report(t.Name(), group, s)
	}
}

// strain reports a capture's processing time to the governor.
func (l *pipeline) strain(took time.Duration, now time.Time) {
	if g := l.m.governor; g != nil {
		g.observe(l.number, float64(took)/float64(l.period), now)
	}
}

// colorless counts a capture without usable colour. It logs a warning for the first one and then at
// most once a minute.
func (l *pipeline) colorless(err error, now time.Time) {
	l.gray++
	if now.Sub(l.warned) < time.Minute {
		return
	}
	l.warned = now
	l.m.session.Log().Warn("captures without usable colour show depth alone or earlier colour", "camera", l.number,
		"name", l.src.Name(), "captures", l.gray, "err", err)
}

// fail counts an unusable capture. It logs the error unless it repeats the last one.
func (l *pipeline) fail(err error) {
	for _, t := range l.tracks {
		t.due.Store(false)
	}
	l.m.metrics.frames.WithLabelValues(l.label(), "failed").Inc()
	if s := err.Error(); s != l.lastErr {
		l.lastErr = s
		l.m.session.Log().Warn("capture dropped", "camera", l.number, "name", l.src.Name(), "err", err)
	}
}

func (l *pipeline) label() string { return l.src.Name() }
