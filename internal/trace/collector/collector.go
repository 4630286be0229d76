// Package collector is a small OpenTelemetry collector for the spans of package trace: OTLP over
// HTTP, binary protobuf.
package collector

import (
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	wire "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is one span of a frame.
type Span struct {
	Program, Name string
	ID, Parent    string // Parent is "" for the root
	Begin, End    time.Time
	Failed        string
	Attributes    map[string]string
}

// Frame holds the received spans of a frame, returned in order of start time.
type Frame struct {
	Trace string
	Spans []Span
	heard time.Time // arrival of the last span
}

// Memory limits, since any program can send spans to the collector.
const (
	maxBody   = 4 << 20
	maxTraces = 1000
	maxSpans  = 1000 // per frame
)

// settleAfter is the time without new spans after which a frame counts as complete. Programs export
// once a second.
const settleAfter = 3 * time.Second

// Collector collects spans by trace.
type Collector struct {
	mu     sync.Mutex
	frames map[string]*Frame // by trace
}

// New returns a collector without spans.
func New() *Collector { return &Collector{frames: map[string]*Frame{}} }

// ServeHTTP accepts an ExportTraceServiceRequest (OTLP 1.x, binary protobuf over HTTP).
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, "want application/x-protobuf", http.StatusUnsupportedMediaType)
		return
	}
	body := io.Reader(http.MaxBytesReader(w, r.Body, maxBody))
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = io.LimitReader(z, maxBody+1)
	}
	b, err := io.ReadAll(body)
	if err == nil && len(b) > maxBody {
		err = errors.New("request too large")
	}
	if err == nil {
		err = c.take(b, time.Now())
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf") // for an empty ExportTraceServiceResponse
}

// take stores the spans of a request.
func (c *Collector) take(b []byte, now time.Time) error {
	var request wire.ExportTraceServiceRequest
	if err := proto.Unmarshal(b, &request); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		program := attributes(resource.GetResource().GetAttributes())["service.name"]
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.add(program, s, now)
			}
		}
	}
	return nil
}

// add stores a span. The caller holds c.mu.
func (c *Collector) add(program string, s *otlp.Span, now time.Time) {
	id := fmt.Sprintf("%x", s.GetTraceId())
	f := c.frames[id]
	if f == nil {
		if len(c.frames) >= maxTraces {
			return
		}
		f = &Frame{Trace: id}
		c.frames[id] = f
	}
	if len(f.Spans) >= maxSpans {
		return
	}
	one := Span{
		Program: program, Name: s.GetName(), ID: fmt.Sprintf("%x", s.GetSpanId()),
		Parent: fmt.Sprintf("%x", s.GetParentSpanId()),
		Begin:  time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())),
		Attributes: attributes(s.GetAttributes()),
	}
	if s.GetStatus().GetCode() == otlp.Status_STATUS_CODE_ERROR {
		one.Failed = cmp.Or(s.GetStatus().GetMessage(), "failed")
	}
	f.Spans = append(f.Spans, one)
	f.heard = now
}

// attributes returns the text and number attributes.
func attributes(list []*common.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range list {
		switch v := kv.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			m[kv.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			m[kv.GetKey()] = fmt.Sprint(v.IntValue)
		case *common.AnyValue_DoubleValue:
			m[kv.GetKey()] = fmt.Sprint(v.DoubleValue)
		}
	}
	return m
}

// Settled removes complete frames, and returns those with a root span.
func (c *Collector) Settled(now time.Time) []Frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []Frame
	for id, f := range c.frames {
		if now.Sub(f.heard) < settleAfter {
			continue
		}
		delete(c.frames, id)
		if _, ok := f.Root(); ok {
			f.sort()
			list = append(list, *f)
		}
	}
	slices.SortFunc(list, func(a, b Frame) int { return a.Spans[0].Begin.Compare(b.Spans[0].Begin) })
	return list
}

// Root returns the publisher's span of the frame.
func (f *Frame) Root() (Span, bool) {
	i := slices.IndexFunc(f.Spans, func(s Span) bool { return s.Parent == "" })
	if i < 0 {
		return Span{}, false
	}
	return f.Spans[i], true
}

// sort orders the spans by start time. If times are equal, longer spans come first.
func (f *Frame) sort() {
	slices.SortStableFunc(f.Spans, func(a, b Span) int {
		return cmp.Or(a.Begin.Compare(b.Begin), b.End.Compare(a.End))
	})
}

// Frames returns all current frames, including those without a root span.
func (c *Collector) Frames() []Frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]Frame, 0, len(c.frames))
	for _, f := range c.frames {
		one := *f
		one.Spans = slices.Clone(f.Spans)
		one.sort()
		list = append(list, one)
	}
	return list
}
