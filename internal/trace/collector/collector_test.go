package collector

import (
	"bytes"
	"compress/gzip"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	wire "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// request encodes spans as a request.
func request(t testing.TB, spans ...*otlp.Span) []byte {
	t.Helper()
	b, err := proto.Marshal(
		&wire.ExportTraceServiceRequest{
			ResourceSpans: []*otlp.ResourceSpans{{ScopeSpans: []*otlp.ScopeSpans{{Spans: spans}}}},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestServeHTTP(t *testing.T) {
	whole := request(t, &otlp.Span{TraceId: []byte{1}, SpanId: []byte{2}, Name: "frame"})
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(whole)
	_ = z.Close()
	var bomb bytes.Buffer
	z = gzip.NewWriter(&bomb)
	_, _ = z.Write(make([]byte, maxBody+1))
	_ = z.Close()
	for name, c := range map[string]struct {
		kind, encoding string
		body           []byte
		status, frames int
	}{
		"plain":               {"application/x-protobuf", "", whole, 200, 1},
		"gzip":                {"application/x-protobuf", "gzip", packed.Bytes(), 200, 1},
		"no spans":            {"application/x-protobuf", "", nil, 200, 0},
		"JSON":                {"application/json", "", []byte("{}"), 415, 0},
		"damaged":             {"application/x-protobuf", "", whole[:len(whole)-1], 400, 0},
		"not gzip":            {"application/x-protobuf", "gzip", whole, 400, 0},
		"too large":           {"application/x-protobuf", "", make([]byte, maxBody+1), 400, 0},
		"too large, unpacked": {"application/x-protobuf", "gzip", bomb.Bytes(), 400, 0},
	} {
		t.Run(name, func(t *testing.T) {
			col := New()
			r := httptest.NewRequest("POST", "/v1/traces", bytes.NewReader(c.body))
			r.Header.Set("Content-Type", c.kind)
			r.Header.Set("Content-Encoding", c.encoding)
			w := httptest.NewRecorder()
			col.ServeHTTP(w, r)
			if w.Code != c.status || len(col.Frames()) != c.frames {
				t.Errorf("%d %s, %d frames", w.Code, strings.TrimSpace(w.Body.String()), len(col.Frames()))
			}
		})
	}
}

// A frame settles once no spans arrive for a while; frames without a root are dropped then.
func TestSettled(t *testing.T) {
	c := New()
	now := time.Unix(1795378254, 0)
	at := func(ms int) uint64 { return uint64(now.Add(time.Duration(ms) * time.Millisecond).UnixNano()) }
	spans := []*otlp.Span{
		{
			TraceId:           []byte{1},
			SpanId:            []byte{3},
			ParentSpanId:      []byte{2},
			Name:              "send",
			StartTimeUnixNano: at(5),
			EndTimeUnixNano:   at(9),
		},
		{
			TraceId:           []byte{1},
			SpanId:            []byte{4},
			ParentSpanId:      []byte{2},
			Name:              "capture",
			StartTimeUnixNano: at(0),
			EndTimeUnixNano:   at(2),
		},
		{TraceId: []byte{1}, SpanId: []byte{2}, Name: "frame", StartTimeUnixNano: at(0), EndTimeUnixNano: at(5)},
		{TraceId: []byte{9}, SpanId: []byte{3}, ParentSpanId: []byte{2}, Name: "send"},
	}
	if err := c.take(request(t, spans...), now); err != nil {
		t.Fatal(err)
	}
	if early := c.Settled(now.Add(settleAfter - 1)); early != nil {
		t.Errorf("%+v", early)
	}
	frames := c.Settled(now.Add(settleAfter))
	if len(frames) != 1 || len(frames[0].Spans) != 3 || len(c.Frames()) != 0 {
		t.Fatalf("%+v", frames)
	}
	for i, want := range []string{"frame", "capture", "send"} {
		if got := frames[0].Spans[i].Name; got != want {
			t.Errorf("span %d: %s, want %s", i, got, want)
		}
	}
}

func TestBounds(t *testing.T) {
	c := New()
	var spans []*otlp.Span
	for i := range maxTraces + 10 {
		spans = append(spans, &otlp.Span{TraceId: []byte{byte(i), byte(i >> 8)}}, &otlp.Span{TraceId: []byte{0, 0}})
	}
	if err := c.take(request(t, spans...), time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, f := range c.Frames() {
		if len(f.Spans) > maxSpans {
			t.Errorf("%d spans", len(f.Spans))
		}
	}
	if n := len(c.Frames()); n != maxTraces {
		t.Errorf("%d frames", n)
	}
}

// Any peer may send the collector anything.
func FuzzTake(f *testing.F) {
	f.Add(
		request(
			f,
			&otlp.Span{TraceId: []byte{1}, SpanId: []byte{2}, Name: "frame", StartTimeUnixNano: 1, EndTimeUnixNano: 2},
		),
	)
	f.Add([]byte{0x0a, 0xff})
	f.Fuzz(func(_ *testing.T, b []byte) {
		c := New()
		now := time.Unix(0, 0)
		_ = c.take(b, now)
		c.Settled(now.Add(settleAfter))
	})
}
