package trace

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"holocast/internal/leaktest"
	"holocast/internal/moqt"
	"holocast/internal/trace/collector"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var track = moqt.TrackName{Namespace: moqt.Namespace{"holocast", "demo"}, Name: "points/0/full"}

// TestIDs checks the example of docs/follow-one-frame.md: printf
// holocast-demo--points.2f0.2ffull/1795378254120 | sha256sum.
func TestIDs(t *testing.T) {
	id, root := IDs(track, 1795378254120)
	if got := id.String() + " " + root.String(); got != "d88783c7cd03ae728e78c15f0f9beffe a0b3c1e3d30cd203" {
		t.Error(got)
	}
	if other, _ := IDs(track, 1795378254121); other == id {
		t.Error("two frames have one trace")
	}
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		cfg Config
		err string
	}{
		"off":       {Config{Every: 30}, ""},
		"host":      {Config{"http://localhost:4318", 30}, ""},
		"path":      {Config{"https://collector.example/otlp/v1/traces", 1}, ""},
		"none":      {Config{"", 0}, "trace.every must be above 0"},
		"no scheme": {Config{"localhost:4318", 30}, "trace.endpoint"},
		"gRPC":      {Config{"otlp://localhost:4317", 30}, "trace.endpoint"},
		"no host":   {Config{"http://", 30}, "trace.endpoint"},
	} {
		if err := c.cfg.Validate(); (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", name, err, c.err)
		}
	}
}

func TestTraces(t *testing.T) {
	var off *Tracer
	on := &Tracer{every: 30}
	for _, c := range []struct {
		tracer *Tracer
		name   string
		group  uint64
		want   bool
	}{
		{off, "points/0/full", 30, false},
		{on, "points/0/full", 30, true},
		{on, "points/0/full", 31, false},
		{on, "receipts/abcd", 30, false},
		{on, "catalog", 30, false},
	} {
		if got := c.tracer.Traces(moqt.TrackName{Name: c.name}, c.group); got != c.want {
			t.Errorf("%s group %d: %v", c.name, c.group, got)
		}
	}
	off.Close()
}

// Without an endpoint nothing is traced. OpenTelemetry's environment variables can set one, and can
// disable tracing.
func TestEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		environment map[string]string
		want        bool
	}{
		"nothing": {nil, false},
		"all":     {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, true},
		"traces":  {map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"}, true},
		"disabled": {
			map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
			false,
		},
		"none": {
			map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range c.environment {
				t.Setenv(k, v)
			}
			tracer, err := New(t.Context(), Config{Every: 30}, Program{Name: "test"}, slog.New(slog.DiscardHandler))
			if err != nil || (tracer != nil) != c.want {
				t.Errorf("%v, %v", tracer, err)
			}
			tracer.Close()
		})
	}
}

// The spans of two programs form one trace with the publisher's root.
func TestReport(t *testing.T) {
	into := collector.New()
	server := httptest.NewServer(into)
	defer server.Close()
	begin := time.Unix(1795378254, 0)
	for _, program := range []string{"capture-server", "relay"} {
		tracer, err := New(t.Context(), Config{server.URL, 2}, Program{Name: program}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if program == "capture-server" {
			tracer.Frame(track, 4, Span{Name: "frame", Begin: begin, End: begin.Add(time.Second)})
		} else {
			tracer.Report(track, 4, Span{
				Name: "send", Begin: begin.Add(time.Second), End: begin.Add(2 * time.Second), Failed: "late",
				Attributes: []attribute.KeyValue{attribute.Int("holocast.bytes", 7)},
			})
		}
		tracer.Close()
	}
	frames := into.Frames()
	if len(frames) != 1 || len(frames[0].Spans) != 2 {
		t.Fatalf("%+v", frames)
	}
	f := frames[0]
	root, ok := f.Root()
	id, span := IDs(track, 4)
	if !ok || f.Trace != id.String() || root.ID != span.String() || root.Program != "capture-server" ||
		!root.Begin.Equal(begin) {
		t.Errorf("root %+v of %s", root, f.Trace)
	}
	send := f.Spans[1]
	if send.Program != "relay" || send.Parent != root.ID || send.Failed != "late" ||
		send.Attributes["holocast.bytes"] != "7" ||
		send.Attributes["holocast.group"] != "4" ||
		send.Attributes["holocast.track"] != track.String() ||
		!send.End.Equal(begin.Add(2*time.Second)) {
		t.Errorf("%+v", send)
	}
}

// An unavailable collector is logged once and delays nothing.
func TestCollectorIsAway(t *testing.T) {
	server := httptest.NewServer(collector.New())
	server.Close()
	var said bytes.Buffer
	tracer, err := New(t.Context(), Config{server.URL, 1}, Program{Name: "test"},
		slog.New(slog.NewTextHandler(&said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		tracer.Frame(track, 1, Span{Name: "frame", Begin: time.Unix(1, 0), End: time.Unix(2, 0)})
		_ = tracer.provider.ForceFlush(context.Background())
	}
	tracer.Close()
	if n := strings.Count(said.String(), "refused spans"); n != 1 {
		t.Errorf("said %d times:\n%s", n, said.String())
	}
}
