// Package publish maintains a publisher's session. It connects and reconnects to the relay, follows
// the relay's clock, manages the catalog, the tracks and their metrics, and shuts down in order.
// The content of the tracks comes from a [Medium], such as package points.
package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"

	"holocast/internal/catalog"
	"holocast/internal/clock"
	"holocast/internal/connect"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/internal/ratecontrol"
	"holocast/internal/secureobjects"
	"holocast/internal/trace"
)

// Medium is one kind of content in a session. It creates tracks with Publisher.NewTrack and
// NewDocument, writes to them in Run, and calls Publisher.Changed when its part of the catalog
// changes.
type Medium interface {
	// Name identifies the medium in logs.
	Name() string
	// Describe adds the medium's tracks and initialization data to c. It may be called from any
	// goroutine until Run returns. IDs of initialization data must be unique in the session.
	Describe(c *catalog.Catalog) error
	// Run writes to the tracks and returns nil when ctx is done or the content ends. If it returns
	// while ctx is not done, it has ended its tracks; other media continue.
	Run(ctx context.Context) error
	// Close frees the medium's resources. It is not called while Run runs.
	Close()
}

// Config configures a Publisher.
type Config struct {
	Namespace moqt.Namespace
	Log       *slog.Logger          // nil is slog.Default
	Metrics   prometheus.Registerer // for the session and its media; nil disables them
	Tracer    *trace.Tracer         // for sampled frames; nil disables tracing
	// Encrypt, if set, encrypts the session's objects and its catalog.
	Encrypt *secureobjects.Publisher
}

// Publisher publishes a session. Create one with New and add media with Add.
type Publisher struct {
	namespace moqt.Namespace
	log       *slog.Logger
	registry  prometheus.Registerer
	set       origin.Set
	session   atomic.Pointer[moqt.Session] // set once the relay has accepted the namespace
	relayTime clock.Estimator
	catalog   *Document
	tracer    *trace.Tracer
	encrypt   *secureobjects.Publisher // may be nil
	instance  wire.KeyValue            // track property (connect.NewInstance)

	mu     sync.Mutex
	tracks []*origin.Track
	media  []*running

	describing sync.Mutex // serializes describe
}

// running is a medium and its state.
type running struct {
	Medium
	ended atomic.Bool
}

// New creates a publisher without media.
func New(cfg Config) *Publisher {
	p := &Publisher{
		namespace: cfg.Namespace, log: cfg.Log, registry: cfg.Metrics, tracer: cfg.Tracer, encrypt: cfg.Encrypt,
		instance: connect.NewInstance(),
	}
	if p.tracer != nil {
		p.set.OnDone = p.traceDelivery
	}
	if p.log == nil {
		p.log = slog.Default()
	}
	p.catalog = p.NewDocument(catalog.TrackName)
	p.Register(newMetrics(p))
	return p
}

// Add adds a medium, which the publisher owns from now on, and publishes the new catalog. If Add
// fails, it closes the medium. Call it before Run.
func (p *Publisher) Add(m Medium) error {
	p.mu.Lock()
	p.media = append(p.media, &running{Medium: m})
	p.mu.Unlock()
	err := p.describe()
	if err != nil {
		p.mu.Lock()
		p.media = p.media[:len(p.media)-1]
		p.mu.Unlock()
		m.Close()
	}
	return err
}

// Close closes the media. Run must have returned.
func (p *Publisher) Close() {
	for _, m := range p.mediaNow() {
		m.Close()
	}
}

// Namespace returns the session's namespace.
func (p *Publisher) Namespace() moqt.Namespace { return p.namespace }

// Log returns the media's logger.
func (p *Publisher) Log() *slog.Logger { return p.log }

// Tracer returns the media's tracer; a nil tracer records nothing.
func (p *Publisher) Tracer() *trace.Tracer { return p.tracer }

// traceDelivery reports the span of a subgroup's delivery to the relay.
func (p *Publisher) traceDelivery(s origin.Delivery) {
	if !p.tracer.Traces(s.Track.Name(), s.Group) {
		return
	}
	p.tracer.Report(s.Track.Name(), s.Group, trace.Span{
		Name: "send", Begin: p.relayTime.At(s.Arrived), End: p.relayTime.At(s.Ended), Failed: s.Dropped,
		Attributes: []attribute.KeyValue{
			attribute.Int64("holocast.subgroup", int64(s.Subgroup)),
			attribute.Int64("holocast.bytes", s.Bytes),
		},
	})
}

// Register adds collectors to the session's metrics.
func (p *Publisher) Register(cs ...prometheus.Collector) {
	if p.registry != nil {
		p.registry.MustRegister(cs...)
	}
}

// RelayTime estimates the relay's clock, which timestamps captures.
func (p *Publisher) RelayTime() *clock.Estimator { return &p.relayTime }

// Connected reports whether the relay has accepted the session's namespace.
func (p *Publisher) Connected() bool { return p.session.Load() != nil }

// Path returns the state of the path to the relay; the zero Path if there is none.
func (p *Publisher) Path() ratecontrol.Path {
	s := p.session.Load()
	if s == nil {
		return ratecontrol.Path{}
	}
	st := s.Stats()
	return ratecontrol.Path{
		RTT: st.RTT, MinRTT: st.MinRTT, Bandwidth: 8 * st.Path.Bandwidth, Delivered: 8 * float64(st.Path.Delivered),
		Limited: !st.Path.AppLimited,
	}
}

// Handler returns the handler of requests for the session's tracks.
func (p *Publisher) Handler() moqt.Handler { return p.set.Handler() }

// Changed publishes a new catalog. Media call it when their description changes.
func (p *Publisher) Changed() {
	if err := p.describe(); err != nil {
		p.log.Warn("catalog not published", "err", err)
	}
}

func (p *Publisher) mediaNow() []*running {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.media[:len(p.media):len(p.media)]
}

func (p *Publisher) tracksNow() []*origin.Track {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tracks[:len(p.tracks):len(p.tracks)]
}

// describe publishes the catalog of the running media.
func (p *Publisher) describe() error {
	p.describing.Lock()
	defer p.describing.Unlock()
	c := &catalog.Catalog{Version: catalog.Version, GeneratedAt: p.relayTime.Now().UnixMilli()}
	for _, m := range p.mediaNow() {
		if m.ended.Load() {
			continue
		}
		if err := m.Describe(c); err != nil {
			return fmt.Errorf("catalog of %s: %w", m.Name(), err)
		}
	}
	c.Tracks = append(c.Tracks, catalog.NewClockTrack())
	return p.publishCatalog(c)
}

// publishCatalog publishes a catalog.
func (p *Publisher) publishCatalog(c *catalog.Catalog) error {
	b, err := c.Marshal()
	if err != nil {
		return err
	}
	return p.catalog.Publish(b)
}

// Run maintains the session and runs the media until ctx is done, all media end, or reconnecting
// cannot help. In the first two cases it then ends the tracks, drains subscribers and closes the
// session. It returns nil if ctx is done, otherwise the errors of the media and the session.
func (p *Publisher) Run(ctx context.Context, target connect.Target) error {
	linked := make(chan error, 1)
	link, unlink := context.WithCancel(context.WithoutCancel(ctx))
	defer unlink()
	p.log.Info("connecting", "relay", target.Address())
	go func() { linked <- p.keepSession(link, target) }()

	ran := make(chan error, 1)
	mediaCtx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { ran <- p.runMedia(mediaCtx) }()

	select {
	case err := <-linked: // reconnecting would not help
		stop()
		return errors.Join(err, <-ran)
	case err := <-ran:
		p.finish()
		unlink()
		return errors.Join(err, <-linked)
	}
}

// runMedia runs all media until they end. It removes each from the catalog when it ends.
func (p *Publisher) runMedia(ctx context.Context) error {
	media := p.mediaNow()
	failed := make([]error, len(media))
	var all sync.WaitGroup
	for i, m := range media {
		all.Go(func() {
			err := m.Run(ctx)
			if ctx.Err() != nil {
				return // canceled, not failed
			}
			failed[i] = err
			m.ended.Store(true)
			if len(media) > 1 {
				p.log.Warn("medium ended; the others continue", "medium", m.Name(), "err", err)
			}
			p.Changed()
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// On shutdown, subscribers have drainLimit to receive pending objects, checked every drainPoll. The
// last messages then have drainFlush to be sent.
const (
	drainLimit = time.Second
	drainPoll  = 10 * time.Millisecond
	drainFlush = 200 * time.Millisecond
)

// finish publishes the final catalog, ends the tracks and lets subscribers drain.
func (p *Publisher) finish() {
	if err := p.publishCatalog(&catalog.Catalog{Version: catalog.Version, IsComplete: true}); err != nil {
		p.log.Warn("last catalog not published", "err", err)
	}
	p.set.End(wire.DoneTrackEnded, "the session has ended")
	if !p.Connected() {
		return
	}
	for until := time.Now().Add(drainLimit); p.viewers() > 0 && time.Now().Before(until); {
		time.Sleep(drainPoll)
	}
	time.Sleep(drainFlush)
}

func (p *Publisher) viewers() (n int) {
	for _, t := range p.tracksNow() {
		n += t.Viewers()
	}
	return n
}
