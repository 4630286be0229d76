// Package collector receives the spans that package trace sends, as a small OpenTelemetry
// collector: OTLP over HTTP, binary protobuf.
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

// Frame is what is known of a frame, its spans in the order in which they began.
type Frame struct {
	Trace string
	Spans []Span
	heard time.Time // when the last span came
}

// Bounds of what is kept: programs that others run may send here, too.
const (
	maxBody   = 4 << 20
	maxTraces = 1000
	maxSpans  = 1000 // of a frame
)

// settleAfter is how long after its last span a frame counts as told: programs send theirs
// once a second.
const settleAfter = 3 * time.Second

// Collector collects spans by trace.
type Collector struct {
	mu     sync.Mutex
	frames map[string]*Frame // by trace
}

// New returns a collector without spans.
func New() *Collector { return &Collector{frames: map[string]*Frame{}} }

// ServeHTTP takes an ExportTraceServiceRequest (OTLP 1.x, binary protobuf over HTTP).
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, "only application/x-protobuf is taken", http.StatusUnsupportedMediaType)
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
		err = errors.New("too large")
	}
	if err == nil {
		err = c.take(b, time.Now())
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf") // of an empty ExportTraceServiceResponse
}

// take takes the spans of a request.
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

// add takes a span. c.mu is held.
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
		Program: program, Name: s.GetName(), ID: fmt.Sprintf("%x", s.GetSpanId()), Parent: fmt.Sprintf("%x", s.GetParentSpanId()),
		Begin: time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())), Attributes: attributes(s.GetAttributes()),
	}
	if s.GetStatus().GetCode() == otlp.Status_STATUS_CODE_ERROR {
		one.Failed = cmp.Or(s.GetStatus().GetMessage(), "failed")
	}
	f.Spans = append(f.Spans, one)
	f.heard = now
}

// attributes are those of text and numbers.
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

// Settled removes and returns the frames of which nothing came for a while, those whose root is
// known; others are forgotten.
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

// Root is the publisher's span of the frame.
func (f *Frame) Root() (Span, bool) {
	i := slices.IndexFunc(f.Spans, func(s Span) bool { return s.Parent == "" })
	if i < 0 {
		return Span{}, false
	}
	return f.Spans[i], true
}

// sort puts the spans into the order in which they began, longer ones first.
func (f *Frame) sort() {
	slices.SortStableFunc(f.Spans, func(a, b Span) int {
		return cmp.Or(a.Begin.Compare(b.Begin), b.End.Compare(a.End))
	})
}

// Frames returns what is known of all frames now, those included whose root is not.
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
