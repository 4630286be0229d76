package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/trace"
	"holocast/internal/trace/collector"
)

// updatePicture redraws the figure in docs/follow-one-frame.md.
var updatePicture = flag.Bool("update", false, "redraw docs/images/frame.svg")

var tracedTrack = moqt.TrackName{Namespace: moqt.Namespace{"holocast", "demo"}, Name: "points/0/full"}

// TestFrameTrace checks that publisher, relay and viewer report their spans of a frame in one
// trace, in causal order on one clock, and only for the frames they are configured to sample. The
// viewer gets the collector's URL from the environment.
func TestFrameTrace(t *testing.T) {
	into := collector.New()
	server := httptest.NewServer(into)
	defer server.Close()
	const descriptions = 4
	port := freePort(t)
	startRelay(t, port, "--trace-endpoint", server.URL, "--trace-every", "10")
	start(t, "capture-server", "--source", "synthetic", "--fps", "15", "--descriptions", strconv.Itoa(descriptions),
		"--trace-endpoint", server.URL, "--trace-every", "10", sessionURL(port, "demo"))
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	start(t, "holocast", "play", sessionURL(port, "demo"), "--wait", "--trace-every", "20")

	var whole []tracedFrame
	until(t, "two frames with spans of all programs", func() bool {
		whole = whole[:0]
		for _, f := range into.Frames() {
			if traced, ok := newTracedFrame(t, f, descriptions); ok {
				whole = append(whole, traced)
			}
		}
		return len(whole) >= 2
	})
	for _, f := range whole {
		f.check(t, descriptions)
	}
	if *updatePicture {
		if err := os.WriteFile("../../docs/images/frame.svg", []byte(frameSVG(whole[0].Frame)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// tracedFrame indexes a frame's spans by program and name.
type tracedFrame struct {
	collector.Frame
	spans map[string][]collector.Span
}

// newTracedFrame indexes a frame's spans. It returns false if some are missing or the frame was not
// sent completely.
func newTracedFrame(t *testing.T, f collector.Frame, descriptions int) (tracedFrame, bool) {
	t.Helper()
	traced := tracedFrame{f, map[string][]collector.Span{}}
	for _, s := range f.Spans {
		what := s.Program + " " + s.Name
		traced.spans[what] = append(traced.spans[what], s)
		if group := number(t, s, "holocast.group"); int(group)%10 != 0 || s.Program == "holocast play" && int(group)%20 != 0 {
			t.Errorf("unexpected span %s of group %.0f", what, group)
		}
		if s.Failed != "" {
			return traced, false
		}
	}
	for what, n := range map[string]int{
		"capture-server frame": 1, "capture-server capture": 1, "capture-server wait": 1,
		"capture-server map": 1, "capture-server encode": 1,
		"capture-server send": descriptions, "relay receive": descriptions, "relay send": descriptions,
		"holocast play receive": 1, "holocast play wait": 1, "holocast play decode": 1,
	} {
		if len(traced.spans[what]) != n {
			return traced, false
		}
	}
	return traced, true
}

// check checks that the spans form one trace in causal order, within the programs' clock error.
func (f tracedFrame) check(t *testing.T, descriptions int) {
	t.Helper()
	root, decode := f.spans["capture-server frame"][0], f.spans["holocast play decode"][0]
	id, span := trace.IDs(tracedTrack, uint64(number(t, root, "holocast.group")))
	if f.Trace != id.String() || root.ID != span.String() || root.Parent != "" {
		t.Errorf("trace %s, root %s of %q: want %s, %s", f.Trace, root.ID, root.Parent, id, span)
	}
	for _, s := range f.Spans {
		if s.ID != root.ID && s.Parent != root.ID {
			t.Errorf("%s %s: parent %s", s.Program, s.Name, s.Parent)
		}
		if s.End.Before(s.Begin) {
			t.Errorf("%s %s ends before it begins", s.Program, s.Name)
		}
	}
	if number(t, root, "holocast.sequence") != number(t, decode, "holocast.sequence") {
		t.Errorf(
			"published sequence %s, decoded %s", root.Attributes["holocast.sequence"],
			decode.Attributes["holocast.sequence"],
		)
	}
	known := time.Duration(
		(number(t, root, "holocast.clock_error_ms")+number(t, decode, "holocast.clock_error_ms"))*1e6,
	) + time.Microsecond
	after := func(what string, later, earlier time.Time) {
		t.Helper()
		if later.Add(known).Before(earlier) {
			t.Errorf("%s: %v too early", what, earlier.Sub(later))
		}
	}
	one := func(what string) collector.Span { return f.spans[what][0] }
	after("capture, then wait", one("capture-server wait").Begin, one("capture-server capture").End)
	after("wait, then map", one("capture-server map").Begin, one("capture-server wait").End)
	after("map, then encode", one("capture-server encode").Begin, one("capture-server map").End)
	after("the frame ends as it is encoded", root.End, one("capture-server encode").End)
	byPart := func(what string) map[string]collector.Span {
		m := map[string]collector.Span{}
		for _, s := range f.spans[what] {
			m[s.Attributes["holocast.subgroup"]] = s
		}
		if len(m) != descriptions {
			t.Errorf("%s: descriptions %v", what, m)
		}
		return m
	}
	published, received, sent := byPart("capture-server send"), byPart("relay receive"), byPart("relay send")
	for part, at := range received {
		after("encode, then send", published[part].Begin, one("capture-server encode").Begin)
		after("send, then receive", at.Begin, published[part].Begin)
		after("receive, then send on", sent[part].Begin, at.Begin)
		after("send on, then decode", decode.Begin, sent[part].Begin)
	}
	after("send on, then receive", one("holocast play receive").End, sent["0"].Begin)
	after("receive, then wait", one("holocast play wait").Begin, one("holocast play receive").End)
	after("wait, then decode", decode.Begin, one("holocast play wait").End)
	delay := time.Duration(number(t, decode, "holocast.delay_ms") * 1e6)
	if d := decode.End.Sub(root.Begin) - delay; d.Abs() > known {
		t.Errorf("delay %v, trace longer by %v", delay, d)
	}
}

// number parses a numeric attribute of a span.
func number(t *testing.T, s collector.Span, name string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s.Attributes[name], 64)
	if err != nil {
		t.Errorf("%s %s: %s: %v", s.Program, s.Name, name, err)
	}
	return v
}

// TestTrace checks that "holocast trace" prints and draws a received frame.
func TestTrace(t *testing.T) {
	address := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	picture := filepath.Join(t.TempDir(), "frame.svg")
	p := start(t, "holocast", "trace", "--listen", address, "--frames", "1", "--svg", picture)
	tracer, err := trace.New(
		t.Context(), trace.Config{Endpoint: "http://" + address, Every: 1}, trace.Program{Name: "<program>"},
		slog.New(slog.DiscardHandler),
	)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "a listening collector", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	begin := time.Unix(1795378254, 0)
	tracer.Frame(tracedTrack, 1, trace.Span{Name: "frame", Begin: begin, End: begin.Add(10 * time.Millisecond)})
	tracer.Report(
		tracedTrack,
		1,
		trace.Span{
			Name:   "send",
			Begin:  begin.Add(5 * time.Millisecond),
			End:    begin.Add(20 * time.Millisecond),
			Failed: "late",
		},
	)
	tracer.Close()
	p.mustSucceed()
	for _, want := range []string{
		"holocast-demo--points.2f0.2ffull, group 1",
		"     0.00     10.00  ████████████████████                      <program>: frame\n",
		"     5.00     15.00            ██████████████████████████████  <program>: send (late)\n",
	} {
		if !strings.Contains(p.Stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, p.Stdout.String())
		}
	}
	b, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	texts := 0
	for d := xml.NewDecoder(bytes.NewReader(b)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, b)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "text" {
			texts++
		}
	}
	if texts < 8 { // title, ticks and two texts per span
		t.Errorf("%d texts in\n%s", texts, b)
	}
}
