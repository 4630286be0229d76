package moqt

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"holocast/internal/moqt/wire"
)

// SubgroupWriter writes one subgroup stream, either object by object or as raw
// bytes that a subgroup reader delivered. It is for one goroutine at a time, unless a
// method says otherwise.
type SubgroupWriter struct {
	p        *Publication
	str      uniStream
	group    uint64
	subgroup uint64
	priority uint8  // publisher's
	slot     uint64 // among those of equal priorities; under p.mu
	enc      wire.ObjectEncoder
	buf      []byte        // of an object's header
	left     uint64        // of the current object's payload
	begun    bool          // an object was written
	first    Properties    // of the first object
	pull     sourced       // str, for Send; nil: it takes no source
	grown    chan struct{} // without pull: Send's source has more

	mu       sync.Mutex // the publication's end may write the header, too
	src      Source     // Send's
	header   []byte     // of the stream, until it was written
	deadline time.Time
	over     bool // reset
}

// smallObject is up to where a payload is copied to go out with its header.
const smallObject = 512

// SetDeadline makes writes fail with ErrDeliveryTimeout, and the stream be reset,
// when they cannot be done by t. The zero time means never. It may be called from
// another goroutine than the writer's.
func (w *SubgroupWriter) SetDeadline(t time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over && !t.Equal(w.deadline) {
		w.deadline = t
		_ = w.str.SetWriteDeadline(t)
	}
}

// WriteObject writes one object whole.
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

// encode puts o's header into buf.
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

// SetFirst says what properties the first object of WriteRaw's bytes has.
func (w *SubgroupWriter) SetFirst(p Properties) { w.begun, w.first = true, p }

// WriteRaw writes bytes of the stream after its header.
func (w *SubgroupWriter) WriteRaw(b []byte) error { return w.flush(b, w.str.Write) }

func (w *SubgroupWriter) flush(b []byte, write func([]byte) (int, error)) error {
	err := w.writeHeader()
	if err == nil && len(b) > 0 {
		_, err = write(b)
	}
	return w.failed(err)
}

// failed is what an error of the stream, or none, means to the writer.
func (w *SubgroupWriter) failed(err error) error {
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

// writeHeader writes the stream's header once, and so that it survives a reset:
// the subscriber counts streams by it (§11.4.3). The transport takes so few bytes
// without waiting.
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

// Close ends the subgroup. With a subgroup delivery timeout in
// force the stream is reset if it has not arrived by then (§8).
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

// sweepEvery is how often finished streams are looked at for having arrived.
const sweepEvery = time.Second

// resetAfter resets the finished stream if it has not arrived by t from now.
func (w *SubgroupWriter) resetAfter(t time.Duration) {
	s := w.p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	now := time.Now()
	s.lingering[w] = now.Add(t)
	s.sweepBy(now.Add(min(t, sweepEvery)))
}

// sweepBy has lingering streams looked at by a time. s.mu is held.
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

// sweep forgets the finished streams that have arrived, however long their timeouts,
// and resets those that are late.
func (s *Session) sweep() {
	var late []*SubgroupWriter
	now := time.Now()
	s.mu.Lock()
	s.sweeper = nil
	next := now.Add(sweepEvery)
	for w, deadline := range s.lingering {
		switch {
		case w.str.delivered():
			delete(s.lingering, w)
		case !now.Before(deadline):
			delete(s.lingering, w)
			late = append(late, w)
		case deadline.Before(next):
			next = deadline
		}
	}
	if len(s.lingering) > 0 {
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

// Abort is Reset for another goroutine than the writer's, whose write then fails.
func (w *SubgroupWriter) Abort(code wire.StreamCode) { w.Reset(code) }

func (w *SubgroupWriter) reset(code wire.StreamCode) {
	w.mu.Lock()
	w.over = true
	_ = w.str.SetWriteDeadline(time.Time{})
	w.mu.Unlock()
	_ = w.writeHeader() // tells the peer which subgroup it was
	w.str.reset(code)
}

func (w *SubgroupWriter) forget() {
	w.p.mu.Lock()
	delete(w.p.open, w)
	w.p.mu.Unlock()
}
