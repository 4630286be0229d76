package moqt

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"holocast/internal/moqt/wire"
)

// SubgroupWriter writes one subgroup stream, object by object or as raw bytes from a subgroup
// reader. Use it from one goroutine at a time, unless a method permits more.
type SubgroupWriter struct {
	p        *Publication
	str      uniStream
	group    uint64
	subgroup uint64
	priority uint8  // publisher priority
	slot     uint64 // order among equal priorities; guarded by p.mu
	enc      wire.ObjectEncoder
	buf      []byte        // object header
	left     uint64        // bytes left of the current object's payload
	begun    bool          // an object was written
	first    Properties    // of the first object
	pull     sourceStream  // str if it can pull from a source, otherwise nil
	more     chan struct{} // signalled by More if pull is nil

	mu       sync.Mutex // the end of the publication may write the header too
	src      Source     // of Send
	header   []byte     // stream header, nil once written
	deadline time.Time
	aborted  bool // the stream was reset
}

// smallObject is the payload size up to which an object is copied to be written in one call.
const smallObject = 512

// SetDeadline sets the time after which writes fail with ErrDeliveryTimeout and reset the stream.
// The zero time means never. It may be called from any goroutine.
func (w *SubgroupWriter) SetDeadline(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.aborted && !t.Equal(w.deadline) {
		w.deadline = t
		_ = w.str.SetWriteDeadline(t)
	}
}

// WriteObject writes a complete object.
func (w *SubgroupWriter) WriteObject(o Object, payload []byte) error {
	o.PayloadLength = uint64(len(payload))
	if len(payload) > smallObject {
		if err := w.BeginObject(o); err != nil {
			return err
		}
		_, err := w.Write(payload)
		return err
	}
	if err := w.encode(o); err != nil {
		return err
	}
	w.buf, w.left = append(w.buf, payload...), 0
	return w.flush(w.buf, w.str.Write)
}

// BeginObject writes an object's header; Write then takes PayloadLength bytes.
func (w *SubgroupWriter) BeginObject(o Object) error {
	if err := w.encode(o); err != nil {
		return err
	}
	return w.flush(w.buf, w.str.Write)
}

// encode encodes o's header into buf.
func (w *SubgroupWriter) encode(o Object) error {
	if w.left > 0 {
		return errors.New("moqt: the current object's payload is not complete")
	}
	b, err := w.enc.Append(w.buf[:0], o)
	if err != nil {
		return err
	}
	if !w.begun {
		w.begun, w.first = true, o.Properties
	}
	w.buf, w.left = b, o.PayloadLength
	return nil
}

// Write writes payload of the current object.
func (w *SubgroupWriter) Write(payload []byte) (int, error) {
	if uint64(len(payload)) > w.left {
		return 0, errors.New("moqt: payload exceeds the object's announced length")
	}
	if len(payload) == 0 {
		return 0, nil
	}
	w.left -= uint64(len(payload))
	if err := w.flush(payload, w.str.Write); err != nil {
		return 0, err
	}
	return len(payload), nil
}

// SetFirst sets the properties of the first object written with WriteRaw.
func (w *SubgroupWriter) SetFirst(p Properties) { w.begun, w.first = true, p }

// WriteRaw writes stream bytes that follow the header.
func (w *SubgroupWriter) WriteRaw(b []byte) error { return w.flush(b, w.str.Write) }

func (w *SubgroupWriter) flush(b []byte, write func([]byte) (int, error)) error {
	err := w.writeHeader()
	if err == nil && len(b) > 0 {
		_, err = write(b)
	}
	return w.writeError(err)
}

// writeError handles an error of the stream and returns the error for the writer.
func (w *SubgroupWriter) writeError(err error) error {
	if err == nil {
		return nil
	}
	if cause := context.Cause(w.p.ctx); cause != nil {
		w.forget()
		return cause
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.p.s.count.deliveryTimeouts.Add(1)
		w.Reset(wire.StreamDeliveryTimeout)
		return ErrDeliveryTimeout
	}
	w.forget()
	return streamError(err)
}

// writeHeader writes the stream header once and makes it survive a reset, because the subscriber
// counts streams by their headers (§11.4.3). The transport buffers a header without blocking.
func (w *SubgroupWriter) writeHeader() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.header == nil {
		return nil
	}
	_, err := w.str.Write(w.header)
	if err == nil {
		w.header = nil
		w.str.setReliable()
	}
	return err
}

// Close ends the subgroup. If a subgroup delivery timeout applies, the stream is reset unless the
// peer acknowledges it within that time (§8).
func (w *SubgroupWriter) Close() error {
	if w.left > 0 {
		w.Reset(wire.StreamInternalError)
		return errors.New("moqt: subgroup closed inside an object")
	}
	if err := w.flush(nil, nil); err != nil {
		return err
	}
	w.forget()
	if err := w.str.Close(); err != nil {
		return streamError(err)
	}
	if _, t := w.p.SubgroupTimeouts(w.first); t > 0 {
		w.resetAfter(t)
	}
	return nil
}

// sweepEvery is the interval at which acknowledged streams are forgotten.
const sweepEvery = time.Second

// resetAfter resets the finished stream if it is not acknowledged within t.
func (w *SubgroupWriter) resetAfter(t time.Duration) {
	s := w.p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	now := time.Now()
	s.unacked[w] = now.Add(t)
	s.sweepBy(now.Add(min(t, sweepEvery)))
}

// sweepBy schedules a sweep at the given time or earlier. s.mu is held.
func (s *Session) sweepBy(at time.Time) {
	if s.sweeper != nil {
		if !at.Before(s.sweepAt) {
			return
		}
		s.sweeper.Stop()
	}
	s.sweepAt = at
	s.sweeper = time.AfterFunc(time.Until(at), s.sweep)
}

// sweep forgets acknowledged streams and resets those past their deadline.
func (s *Session) sweep() {
	var late []*SubgroupWriter
	now := time.Now()
	s.mu.Lock()
	s.sweeper = nil
	next := now.Add(sweepEvery)
	for w, deadline := range s.unacked {
		switch {
		case w.str.delivered():
			delete(s.unacked, w)
		case !now.Before(deadline):
			delete(s.unacked, w)
			late = append(late, w)
		case deadline.Before(next):
			next = deadline
		}
	}
	if len(s.unacked) > 0 {
		s.sweepBy(next)
	}
	s.mu.Unlock()
	for _, w := range late {
		s.count.deliveryTimeouts.Add(1)
		w.str.reset(wire.StreamDeliveryTimeout)
	}
}

// Reset abandons the subgroup.
func (w *SubgroupWriter) Reset(code wire.StreamCode) {
	w.forget()
	w.reset(code)
}

// Abort is Reset for goroutines other than the writer's. The writer's next write fails.
func (w *SubgroupWriter) Abort(code wire.StreamCode) { w.Reset(code) }

func (w *SubgroupWriter) reset(code wire.StreamCode) {
	w.mu.Lock()
	w.aborted = true
	_ = w.str.SetWriteDeadline(time.Time{})
	w.mu.Unlock()
	_ = w.writeHeader() // so that the peer learns which subgroup was reset
	w.str.reset(code)
}

func (w *SubgroupWriter) forget() {
	w.p.mu.Lock()
	delete(w.p.open, w)
	w.p.mu.Unlock()
}
