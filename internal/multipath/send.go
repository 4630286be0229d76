package multipath

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"slices"
	"time"

	"github.com/quic-go/quic-go"

	"holocast/internal/fbdt"
)

const (
	// smallWrite is the maximum number of a stream's bytes that may still wait for a path or for credit when
	// Write returns. Like quic-go's buffer of one packet, it lets Close and CancelWrite follow without waiting.
	smallWrite = 1200
	// maxReady is the number of bytes, over all streams, that may wait for a path before writes
	// block.
	maxReady = 8 << 20
	// minReady is the number of bytes that each stream may have waiting in any case.
	minReady = 64 << 10
)

// SendStream is the sending side of a stream. One goroutine may write at a time; the other methods may
// be called at any time.
type SendStream struct {
	c      *Conn
	id     uint64
	ctx    context.Context
	cancel context.CancelCauseFunc
	wake   chan struct{} // after a change for Write

	// Guarded by c.mu.
	priority fbdt.Priority
	chunks   []chunk // bytes that a segment may need
	end      uint64  // bytes written, without tail
	tail     []byte  // bytes written that wait for credit or room, at most smallWrite
	limit    uint64  // of the peer
	assigned spans   // to a segment, once at least
	known    uint64  // size of assigned
	acked    spans
	closed   bool // by Close
	fin      bool // closed without a tail: takes one byte at end in the scheduler
	boundary uint64
	err      error                // of Write, after a reset
	code     quic.StreamErrorCode // of the reset
	deadline time.Time
	done     bool // nothing more to send
}

// chunk is a piece of a stream.
type chunk struct {
	offset uint64
	data   []byte
}

func newSendStream(c *Conn, id, limit uint64) *SendStream {
	s := &SendStream{c: c, id: id, limit: limit, wake: make(chan struct{}, 1), priority: fbdt.Priority{Urgency: 3}}
	s.ctx, s.cancel = context.WithCancelCause(c.ctx)
	return s
}

// StreamID returns the stream's ID, as in QUIC.
func (s *SendStream) StreamID() quic.StreamID { return quic.StreamID(s.id) }

// Context returns a context that is cancelled when the stream is closed or reset, or when the peer
// stops reading.
func (s *SendStream) Context() context.Context { return s.ctx }

// SetPriority sets the stream's priority: lower urgency goes first, then lower order.
func (s *SendStream) SetPriority(urgency int8, order uint64) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.priority = fbdt.Priority{Urgency: urgency, Order: order}
	if s.end > 0 && !s.done {
		s.c.sched.Reprioritize(s.id, s.priority)
	}
}

// Write writes p. It returns when all but smallWrite bytes are assigned to paths; the rest needs no credit yet. After
// the write deadline the error is os.ErrDeadlineExceeded, and the stream can only be reset.
func (s *SendStream) Write(p []byte) (n int, err error) {
	data := bytes.Clone(p)
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for {
		if err := s.failure(); err != nil {
			return n, err
		}
		if k := s.room(uint64(len(data))); k > 0 && len(s.tail) == 0 {
			s.append(data[:k])
			data = data[k:]
			n += int(k)
		}
		if len(data) > 0 {
			s.c.blocked[s] = struct{}{}
		}
		if s.end-s.known+uint64(len(s.tail)+len(data)) <= smallWrite {
			s.tail = append(s.tail, data...)
			return n + len(data), nil
		}
		s.c.await(s.wake, s.deadline)
		if len(s.tail) == 0 {
			delete(s.c.blocked, s)
		}
	}
}

// flush appends as much of the tail to the stream as credit and room permit. When the tail is empty, it ends a
// stream that was closed or reset.
func (s *SendStream) flush() {
	if len(s.tail) == 0 {
		return
	}
	if n := s.room(uint64(len(s.tail))); n > 0 {
		s.append(s.tail[:n])
		s.tail = s.tail[n:]
	}
	if len(s.tail) > 0 {
		return
	}
	s.tail = nil
	delete(s.c.blocked, s)
	if s.err != nil {
		s.sendReset()
	} else if s.closed {
		s.sendFin()
	}
}

// failure returns the error with which Write must fail now, if any.
func (s *SendStream) failure() error {
	switch {
	case s.err != nil:
		return s.err
	case s.c.ctx.Err() != nil:
		return context.Cause(s.c.ctx)
	case s.closed:
		return errClosed
	case expired(s.deadline):
		return os.ErrDeadlineExceeded
	}
	return nil
}

func expired(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// room returns how many of n bytes fit into the stream now.
func (s *SendStream) room(n uint64) uint64 {
	c := s.c
	ready := uint64(max(0, maxReady-c.ready))
	if own := s.end - s.known; own < minReady {
		ready = max(ready, minReady-own)
	}
	return min(n, s.limit-s.end, c.sendLimit-c.written+uncounted-min(s.end, uncounted), ready)
}

// append adds data to the stream. It keeps data, which must not change afterwards.
func (s *SendStream) append(data []byte) {
	last := len(s.chunks) - 1
	switch {
	case last >= 0 && cap(s.chunks[last].data)-len(s.chunks[last].data) >= len(data):
		s.chunks[last].data = append(s.chunks[last].data, data...)
	case len(data) < smallWrite:
		s.chunks = append(s.chunks, chunk{s.end, append(make([]byte, 0, 2*smallWrite), data...)})
	default:
		s.chunks = append(s.chunks, chunk{s.end, slices.Clip(data)})
	}
	n := uint64(len(data))
	s.end += n
	if s.id != controlStream {
		s.c.written += counted(s.end) - counted(s.end-n)
	}
	if s.err != nil {
		s.known = s.end
	} else if s.id != controlStream {
		s.c.ready += int64(n)
	}
	s.c.sched.Add(s.id, s.priority, int64(n))
	s.c.kick()
}

// slice returns the n bytes from offset on, or nil if some of them were acknowledged and freed.
func (s *SendStream) slice(offset, n uint64) [][]byte {
	i, found := slices.BinarySearchFunc(s.chunks, offset, func(c chunk, at uint64) int {
		return cmp.Compare(c.offset, at)
	})
	if !found {
		i--
	}
	var list [][]byte
	for ; n > 0 && i >= 0 && i < len(s.chunks); i++ {
		c := s.chunks[i]
		if offset >= c.offset+uint64(len(c.data)) {
			return nil
		}
		part := c.data[offset-c.offset:]
		part = part[:min(n, uint64(len(part)))]
		list = append(list, part)
		n -= uint64(len(part))
		offset += uint64(len(part))
	}
	if n > 0 {
		return nil
	}
	return list
}

// Close ends the stream after the bytes written so far.
func (s *SendStream) Close() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	switch {
	case s.closed || s.done:
		return nil
	case s.err != nil:
		return s.err
	}
	s.closed = true
	s.cancel(nil)
	if len(s.tail) == 0 {
		s.sendFin()
	}
	return nil
}

func (s *SendStream) sendFin() {
	s.fin = true
	if s.c.ctx.Err() == nil {
		s.c.sched.Add(s.id, s.priority, 1)
		s.c.kick()
	}
}

// SetWriteDeadline sets the time after which Write fails; zero means never.
func (s *SendStream) SetWriteDeadline(t time.Time) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.deadline = t
	signal(s.wake)
	return nil
}

// SetReliableBoundary makes the bytes written so far arrive even after CancelWrite.
func (s *SendStream) SetReliableBoundary() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.err == nil {
		s.boundary = s.end + uint64(len(s.tail))
	}
}

// Delivered reports whether the peer has acknowledged the whole stream.
func (s *SendStream) Delivered() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.fin && s.acked.prefix() > s.end
}

// CancelWrite resets the stream: only bytes before the reliable boundary arrive.
func (s *SendStream) CancelWrite(code quic.StreamErrorCode) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.reset(code, false)
}

// reset resets the stream. remote reports whether the peer asked for it.
func (s *SendStream) reset(code quic.StreamErrorCode, remote bool) {
	if s.done || s.err != nil || s.c.ctx.Err() != nil {
		return
	}
	if remote {
		s.boundary = 0
	}
	s.err = &quic.StreamError{StreamID: quic.StreamID(s.id), ErrorCode: code, Remote: remote}
	s.cancel(s.err)
	s.c.ready -= int64(s.end - s.known)
	s.known = s.end
	s.c.stale(s.c.sched.Truncate(s.id, int64(s.boundary)))
	for i, c := range s.chunks {
		if c.offset >= s.boundary {
			s.chunks = slices.Delete(s.chunks, i, len(s.chunks))
			break
		}
	}
	s.code = code
	if s.tail = s.tail[:min(uint64(len(s.tail)), s.boundary-min(s.boundary, s.end))]; len(s.tail) == 0 {
		delete(s.c.blocked, s)
		s.sendReset()
	}
	signal(s.wake)
	s.c.kick()
}

func (s *SendStream) sendReset() {
	s.c.control(resetStream, s.id, uint64(s.code), s.end, s.boundary)
	s.finish()
}

// assign records that bytes were assigned to a path.
func (s *SendStream) assign(from, to uint64) {
	n := s.assigned.add(from, min(to, s.end))
	if s.err != nil || s.id == controlStream {
		return
	}
	s.known += n
	s.c.ready -= int64(n)
	if n > 0 {
		s.flush()
		signal(s.wake)
		s.c.unblock()
	}
}

// ack records that the peer has received bytes.
func (s *SendStream) ack(from, to uint64) {
	if s.done {
		return
	}
	s.acked.add(from, to)
	have := s.acked.prefix()
	i := 0
	for i < len(s.chunks) && s.chunks[i].offset+uint64(len(s.chunks[i].data)) <= have {
		i++
	}
	s.chunks = slices.Delete(s.chunks, 0, i)
	s.finish()
}

// finish ends the sending side once the peer has received everything it must.
func (s *SendStream) finish() {
	have := s.acked.prefix()
	all := s.fin && have > s.end
	if s.err != nil {
		all = have >= s.boundary
	}
	if s.done || !all {
		return
	}
	s.done, s.chunks = true, nil
	if s.err == nil {
		s.c.stale(s.c.sched.Truncate(s.id, int64(s.end)+1))
	}
	s.c.release(s.id)
}
