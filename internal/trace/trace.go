// Package trace follows single frames through a session. Programs report their work on a frame as
// spans of one OpenTelemetry trace, over OTLP; docs/follow-one-frame.md describes them.
//
// No trace context is sent between programs. A frame is a group of a track; the trace ID and root
// span ID are a hash of the full track name and the group ID. All programs trace the frames whose
// group ID is a multiple of Config.Every. The root span is the publisher's, and the parent of all
// others. Times are on the relay's clock.
package trace

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"

	"holocast/internal/moqt"
)

// DefaultEvery traces one frame per second at 30 FPS.
const DefaultEvery = 30

// tracks is the name prefix of tracks whose groups are frames.
const tracks = "points/"

// path is the collectors' HTTP path for traces.
const path = "/v1/traces"

// flushLimit bounds the final export in Close.
const flushLimit = 2 * time.Second

// Config is the trace section of a program's configuration.
type Config struct {
	// Endpoint is the URL of an OTLP collector over HTTP. "" means OTEL_EXPORTER_OTLP_ENDPOINT.
	// Without either, tracing is off.
	Endpoint string `yaml:"endpoint"`
	// Every is the interval between traced frames, in frames.
	Every uint64 `yaml:"every"`
}

// Validate returns an error that names the invalid setting.
func (c Config) Validate() error {
	if c.Every == 0 {
		return errors.New("trace.every must be above 0")
	}
	if c.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("trace.endpoint: %q: want a URL such as http://host:4318", c.Endpoint)
	}
	return nil
}

// Program identifies the program that reports spans.
type Program struct {
	Name    string // service.name, unless the environment sets it
	Version string
}

// Tracer reports spans. A nil Tracer traces nothing.
type Tracer struct {
	every    uint64
	provider *sdk.TracerProvider
	tracer   api.Tracer
}

// New returns the tracer for a valid configuration, or nil if tracing is off. Spans that the
// collector refuses are dropped and logged.
func New(ctx context.Context, cfg Config, p Program, log *slog.Logger) (*Tracer, error) {
	var options []otlptracehttp.Option
	switch {
	case cfg.Endpoint != "":
		u, err := url.Parse(cfg.Endpoint)
		if err != nil {
			return nil, fmt.Errorf("trace.endpoint: %w", err)
		}
		if u.Path == "" || u.Path == "/" {
			u.Path = path
		}
		options = append(options, otlptracehttp.WithEndpointURL(u.String()))
	case !environment():
		return nil, nil
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("trace.endpoint: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", p.Name), attribute.String("service.version", p.Version),
	), resource.WithHost(), resource.WithProcessPID(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(&complaining{SpanExporter: exporter, log: log}, sdk.WithBatchTimeout(time.Second)),
		sdk.WithResource(about),
		sdk.WithIDGenerator(ids{}),
	)
	return &Tracer{every: cfg.Every, provider: provider, tracer: provider.Tracer("holocast")}, nil
}

// environment reports whether OpenTelemetry's environment variables name a collector.
func environment() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// complaining logs the first of a series of failures, and the end of the series.
type complaining struct {
	sdk.SpanExporter
	log     *slog.Logger
	failing atomic.Bool
}

// ExportSpans implements sdk.SpanExporter.
func (c *complaining) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !c.failing.Swap(true):
		c.log.Warn("trace collector refused spans; dropping them", "err", err)
	case err == nil && c.failing.Swap(false):
		c.log.Info("trace collector is accepting spans again")
	}
	return nil
}

// Close exports the remaining spans and ends the tracer.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // failures are logged
}

// Traces reports whether a group is a traced frame.
func (t *Tracer) Traces(track moqt.TrackName, group uint64) bool {
	return t != nil && group%t.every == 0 && strings.HasPrefix(track.Name, tracks)
}

// Span is a step in a frame's processing.
type Span struct {
	Name       string
	Begin, End time.Time // on the relay's clock
	Failed     string    // reason for incomplete work; "" if complete
	Attributes []attribute.KeyValue
}

// Frame reports the root span of a traced frame, from capture to publication.
func (t *Tracer) Frame(track moqt.TrackName, group uint64, s Span) {
	trace, root := IDs(track, group)
	t.emit(context.WithValue(context.Background(), idsKey{}, rootIDs{trace, root}), track, group, s)
}

// Report reports a span of a traced frame.
func (t *Tracer) Report(track moqt.TrackName, group uint64, s Span) {
	trace, root := IDs(track, group)
	t.emit(api.ContextWithRemoteSpanContext(context.Background(), api.NewSpanContext(api.SpanContextConfig{
		TraceID: trace, SpanID: root, TraceFlags: api.FlagsSampled, Remote: true,
	})), track, group, s)
}

func (t *Tracer) emit(ctx context.Context, track moqt.TrackName, group uint64, s Span) {
	_, span := t.tracer.Start(ctx, s.Name, api.WithTimestamp(s.Begin), api.WithAttributes(
		attribute.String("holocast.track", track.String()), attribute.Int64("holocast.group", int64(group)),
	), api.WithAttributes(s.Attributes...))
	if s.Failed != "" {
		span.SetStatus(codes.Error, s.Failed)
	}
	span.End(api.WithTimestamp(s.End))
}

// IDs returns the IDs of a frame's trace and root span: the first 16 and the next 8 bytes of the
// SHA-256 of the full track name as printed, a slash and the group ID in decimal.
func IDs(track moqt.TrackName, group uint64) (api.TraceID, api.SpanID) {
	sum := sha256.Sum256([]byte(track.String() + "/" + strconv.FormatUint(group, 10)))
	return api.TraceID(sum[:16]), api.SpanID(sum[16:24])
}

type idsKey struct{}

// ids assigns root spans the IDs in their context, and other spans random IDs.
type ids struct{}

// NewIDs implements sdk.IDGenerator.
func (g ids) NewIDs(ctx context.Context) (api.TraceID, api.SpanID) {
	root := ctx.Value(idsKey{}).(rootIDs)
	return root.trace, root.span
}

// NewSpanID implements sdk.IDGenerator.
func (ids) NewSpanID(context.Context, api.TraceID) (id api.SpanID) {
	for !id.IsValid() {
		for i := range id {
			id[i] = byte(rand.Uint32())
		}
	}
	return id
}

type rootIDs struct {
	trace api.TraceID
	span  api.SpanID
}
