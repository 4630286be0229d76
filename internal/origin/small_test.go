package origin

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// countingSink counts the pieces of a single subgroup.
type countingSink struct {
	Sink
	ctx    context.Context
	pieces atomic.Int64
	bytes  atomic.Int64
	closed chan struct{}
}

func (s *countingSink) Context() context.Context  { return s.ctx }
func (s *countingSink) Changed() <-chan struct{}  { return nil }
func (s *countingSink) Passes(moqt.Location) bool { return true }
func (s *countingSink) Ended(uint64) bool         { return false }
func (s *countingSink) Forwarding() bool          { return true }
func (s *countingSink) Priority() uint8           { return 128 }
func (s *countingSink) DeliveryTimeouts(moqt.Properties) (object, subgroup time.Duration) {
	return time.Minute, time.Minute
}

func (s *countingSink) OpenSubgroup(wire.SubgroupHeader, moqt.Properties) (SubgroupSink, error) {
	return s, nil
}
func (s *countingSink) Done(wire.DoneCode, string) error { return nil }
func (s *countingSink) WriteRaw([]byte) error            { return nil }
func (s *countingSink) More()                            {}
func (s *countingSink) Retime()                          {}
func (s *countingSink) Send(src moqt.Source) error {
	for {
		b, err := src.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		s.pieces.Add(1)
		s.bytes.Add(int64(len(b)))
	}
}

func (s *countingSink) Close() error          { close(s.closed); return nil }
func (s *countingSink) Reset(wire.StreamCode) {}
func (s *countingSink) Abort(wire.StreamCode) {}

// TestSmallObjectsShareWrites checks that objects that arrive together are sent in few pieces even
// if each has a deadline.
func TestSmallObjectsShareWrites(t *testing.T) {
	const objects = 5000
	tr := NewTrack(testName, nil, Limits{})
	v := NewQueue(0).Attach(tr)
	f, err := tr.OpenSubgroup(header(1, 0))
	if err != nil {
		t.Fatal(err)
	}
	var enc wire.ObjectEncoder
	var b []byte
	for i := range uint64(objects) { // each empty
		if b, err = enc.Append(b, wire.Object{ID: i}); err != nil {
			t.Fatal(err)
		}
	}
	want := int64(len(b))
	for len(b) > 0 {
		n := copy(f.Space(), b)
		b = b[n:]
		if err := f.Commit(n); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	sink := &countingSink{ctx: ctx, closed: make(chan struct{})}
	done := make(chan struct{})
	go func() { defer close(done); _ = v.Serve(sink) }()
	<-sink.closed
	cancel()
	<-done
	if sink.bytes.Load() != want || sink.pieces.Load() > objects/10 {
		t.Errorf("%d of %d bytes in %d pieces", sink.bytes.Load(), want, sink.pieces.Load())
	}
}
