// Package publish keeps a session with a relay: the connection and its renewal, the
// relay's clock, the catalog, the tracks with their metrics, and the orderly end. What
// the tracks carry is a [Medium]'s business: point clouds are package points.
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
	"holocast/internal/trace"
)

// Medium is one kind of content in a session. It makes its tracks with the Publisher's
// NewTrack and NewDocument, writes to them while it runs, and calls the Publisher's
// Changed when its part of the catalog is no longer true.
type Medium interface {
	// Name identifies the medium in the log: "points".
	Name() string
	// Describe adds the medium's tracks and their initialization data to c. It may be
	// called from any goroutine until Run has returned. IDs of initialization data are
	// unique among the session's media.
	Describe(c *catalog.Catalog) error
	// Run writes to the tracks until ctx ends or the content does, and returns nil then.
	// If it returns before ctx ends it has ended its tracks; the other media continue.
	Run(ctx context.Context) error
	// Close frees what the medium holds. Run is not under way.
	Close()
}

// Config says where a session is published.
type Config struct {
	Namespace moqt.Namespace
	Log       *slog.Logger          // nil is slog.Default
	Metrics   prometheus.Registerer // of the session and its media; nil is none
	Tracer    *trace.Tracer         // of single frames; nil is none
}

// Publisher publishes a session. Make one with New and give it media with Add.
type Publisher struct {
	namespace moqt.Namespace
	log       *slog.Logger
	registry  prometheus.Registerer
	set       origin.Set
	session   atomic.Pointer[moqt.Session] // once the relay accepted the namespace
	relayTime clock.Estimator
	catalog   *Document
	tracer    *trace.Tracer

	mu     sync.Mutex
	tracks []*origin.Track
	media  []*running

	describing sync.Mutex // so that the newest catalog is the one published last
}

// running is a medium of the session.
type running struct {
	Medium
	ended atomic.Bool
}

// New makes a publisher without media.
func New(cfg Config) *Publisher {
	p := &Publisher{namespace: cfg.Namespace, log: cfg.Log, registry: cfg.Metrics, tracer: cfg.Tracer}
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

// Add adds a medium before Run and publishes a catalog that includes it. The publisher
// then owns it; after an error the caller still does.
func (p *Publisher) Add(m Medium) error {
	p.mu.Lock()
	p.media = append(p.media, &running{Medium: m})
	p.mu.Unlock()
	err := p.describe()
	if err != nil {
		p.mu.Lock()
		p.media = p.media[:len(p.media)-1]
		p.mu.Unlock()
	}
	return err
}

// Close closes the media. Run must have returned.
func (p *Publisher) Close() {
	for _, m := range p.mediaNow() {
		m.Close()
	}
}

// Namespace is the session's.
func (p *Publisher) Namespace() moqt.Namespace { return p.namespace }

// Log is where media log.
func (p *Publisher) Log() *slog.Logger { return p.log }

// Tracer is where media report traced frames; nil traces none.
func (p *Publisher) Tracer() *trace.Tracer { return p.tracer }

// traceDelivery reports the span of a subgroup that was sent to the relay.
func (p *Publisher) traceDelivery(s origin.Delivery) {
	if !p.tracer.Traces(s.Track.Name(), s.Group) {
		return
	}
	p.tracer.Report(s.Track.Name(), s.Group, trace.Span{
		Name: "send", Begin: p.relayTime.At(s.Arrived), End: p.relayTime.At(s.Ended), Failed: s.Dropped,
		Attributes: []attribute.KeyValue{attribute.Int64("holocast.subgroup", int64(s.Subgroup)), attribute.Int64("holocast.bytes", s.Bytes)},
	})
}

// Register adds collectors to the session's metrics.
func (p *Publisher) Register(cs ...prometheus.Collector) {
	if p.registry != nil {
		p.registry.MustRegister(cs...)
	}
}

// RelayTime is the relay's clock, on which capture times are sent.
func (p *Publisher) RelayTime() *clock.Estimator { return &p.relayTime }

// Connected reports whether the relay has accepted the session's namespace.
func (p *Publisher) Connected() bool { return p.session.Load() != nil }

// Handler answers requests for the session's tracks.
func (p *Publisher) Handler() moqt.Handler { return p.set.Handler() }

// Changed publishes a new catalog. Media call it when what they describe has changed.
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

// describe publishes the catalog of the media that have not ended.
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

// publishCatalog publishes a whole catalog.
func (p *Publisher) publishCatalog(c *catalog.Catalog) error {
	b, err := c.Marshal()
	if err != nil {
		return err
	}
	return p.catalog.Publish(b)
}

// Run keeps a session with the relay and runs the media until ctx ends or all of them
// have ended. It then ends the tracks, lets subscribers drain and closes the session. It
// returns nil if ctx ended it, otherwise the media's errors.
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
	case err := <-linked: // connecting again would not help
		stop()
		return errors.Join(err, <-ran)
	case err := <-ran:
		p.finish()
		unlink()
		return errors.Join(err, <-linked)
	}
}

// runMedia runs all media to their ends. One that ends leaves the catalog.
func (p *Publisher) runMedia(ctx context.Context) error {
	media := p.mediaNow()
	failed := make([]error, len(media))
	var all sync.WaitGroup
	for i, m := range media {
		all.Go(func() {
			err := m.Run(ctx)
			if ctx.Err() != nil {
				return // stopped, not failed
			}
			failed[i] = err
			m.ended.Store(true)
			if len(media) > 1 {
				p.log.Warn("medium ended, the others continue", "medium", m.Name(), "err", err)
			}
			p.Changed()
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// Draining: how long subscribers may take to receive what is under way, and how long
// the last messages may take to leave.
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
	for _, t := range p.tracksNow() {
		n += t.Viewers()
	}
	return n
}
