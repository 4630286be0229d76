package multipath

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"time"

	"github.com/quic-go/quic-go"
)

const unknownSize = ^uint64(0)

// maxPieces bounds the pieces of a stream that wait for earlier bytes.
const maxPieces = 16 << 10

// ReceiveStream is the receiving side of a stream. One goroutine may read at a time; the other methods
// may be called at any time.
type ReceiveStream struct {
	c    *Conn
	id   uint64
	wake chan struct{} // after a change for Read

	// Guarded by c.mu.
	pieces   []chunk // ascending, without overlaps
	offset   uint64  // of the next byte to read
	highest  uint64  // end of the bytes known of
	final    uint64  // size of the stream, or unknownSize
	limit    uint64  // granted to the peer
	window   uint64
	reset    *quic.StreamError // by the peer
	reliable uint64            // bytes that arrive despite the reset
	stopped  *quic.StreamError // by CancelRead
	deadline time.Time
	done     bool
}

func newReceiveStream(c *Conn, id uint64) *ReceiveStream {
	w := c.cfg.streamWindow()
	return &ReceiveStream{c: c, id: id, wake: make(chan struct{}, 1), final: unknownSize, limit: w, window: w}
}

// StreamID returns the stream's ID, as in QUIC.
func (s *ReceiveStream) StreamID() quic.StreamID { return quic.StreamID(s.id) }

// Read implements io.Reader. After the read deadline the error is os.ErrDeadlineExceeded.
func (s *ReceiveStream) Read(p []byte) (int, error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for {
		if s.stopped != nil {
			return 0, s.stopped
		}
		if n := s.take(p); n > 0 {
			return n, nil
		}
		switch {
		case s.offset == s.final && s.reset == nil:
			s.finish()
			return 0, io.EOF
		case s.reset != nil && s.offset >= s.reliable:
			s.finish()
			return 0, s.reset
		case s.c.ctx.Err() != nil:
			return 0, context.Cause(s.c.ctx)
		case expired(s.deadline):
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		}
		s.c.await(s.wake, s.deadline)
	}
}

// take copies the bytes available at the current offset to p.
func (s *ReceiveStream) take(p []byte) (n int) {
	for n < len(p) && len(s.pieces) > 0 && s.pieces[0].offset == s.offset {
		first := &s.pieces[0]
		k := copy(p[n:], first.data)
		n += k
		s.offset += uint64(k)
		first.offset += uint64(k)
		if first.data = first.data[k:]; len(first.data) == 0 {
			s.pieces[0] = chunk{}
			s.pieces = s.pieces[1:]
		}
	}
	if n == 0 {
		return 0
	}
	s.c.consumed(counted(s.offset) - counted(s.offset-uint64(n)))
	if left := s.limit - s.offset; s.final == unknownSize && left < s.window/2 {
		s.window = min(2*s.window, maxStreamWindow)
		s.limit = s.offset + s.window
		s.c.control(maxStreamData, s.id, s.limit)
	}
	return n
}

// SetReadDeadline sets the time after which Read fails; zero means never.
func (s *ReceiveStream) SetReadDeadline(t time.Time) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.deadline = t
	signal(s.wake)
	return nil
}

// CancelRead discards the rest of the stream and asks the peer to reset it.
func (s *ReceiveStream) CancelRead(code quic.StreamErrorCode) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.stopped != nil || s.done || s.c.ctx.Err() != nil {
		return
	}
	s.stopped = &quic.StreamError{StreamID: quic.StreamID(s.id), ErrorCode: code}
	missing := s.final == unknownSize || !s.complete()
	s.discard()
	if missing {
		s.c.control(stopSending, s.id, uint64(code))
	}
	if s.final != unknownSize {
		s.finish()
	}
	signal(s.wake)
}

// discard drops the unread bytes.
func (s *ReceiveStream) discard() {
	end := s.highest
	if s.reset != nil {
		end = s.reliable // the rest was dropped at the reset
	}
	s.c.consumed(counted(end) - counted(s.offset))
	s.offset, s.pieces = end, nil
}

// insert copies b to an offset in the stream and returns how many bytes it already had.
func (s *ReceiveStream) insert(offset uint64, b []byte) (known uint64, err error) {
	end := offset + uint64(len(b))
	if end > s.limit {
		return 0, violation("stream %d exceeds its limit", s.id)
	}
	if s.final != unknownSize && end > s.final {
		return 0, violation("stream %d exceeds its size", s.id)
	}
	if err := s.raise(end); err != nil || s.stopped != nil {
		return 0, err
	}
	if s.reset != nil && end > s.reliable {
		if offset >= s.reliable {
			return 0, nil
		}
		b = b[:s.reliable-offset]
	}
	if offset < s.offset {
		known = min(s.offset-offset, uint64(len(b)))
		b, offset = b[known:], s.offset
	}
	i, _ := slices.BinarySearchFunc(s.pieces, offset, func(c chunk, at uint64) int {
		if c.offset+uint64(len(c.data)) <= at {
			return -1
		}
		return 1
	})
	for len(b) > 0 {
		n := uint64(len(b))
		if i < len(s.pieces) {
			next := s.pieces[i]
			if next.offset <= offset { // known already
				skip := min(next.offset+uint64(len(next.data))-offset, n)
				b, offset, i = b[skip:], offset+skip, i+1
				known += skip
				continue
			}
			n = min(n, next.offset-offset)
		}
		s.pieces = slices.Insert(s.pieces, i, chunk{offset, bytes.Clone(b[:n])})
		b, offset, i = b[n:], offset+n, i+1
	}
	if len(s.pieces) > maxPieces && s.pieces[0].offset > s.offset {
		return 0, violation("stream %d arrives in too many pieces", s.id)
	}
	signal(s.wake)
	return known, nil
}

// raise records that the stream has at least this many bytes.
func (s *ReceiveStream) raise(end uint64) error {
	if end <= s.highest {
		return nil
	}
	n := counted(end) - counted(s.highest)
	s.highest = end
	if s.id == controlStream {
		return nil
	}
	s.c.received += n
	if s.c.received > s.c.recvLimit {
		return violation("the streams exceed their common limit")
	}
	if s.stopped != nil {
		s.offset = end
		s.c.consumed(n)
	}
	return nil
}

// end records the final size of the stream.
func (s *ReceiveStream) end(final uint64) error {
	if s.final != unknownSize && s.final != final || final < s.highest || final > s.limit {
		return violation("stream %d has two sizes, or exceeds its limit", s.id)
	}
	if err := s.raise(final); err != nil {
		return err
	}
	s.final = final
	if s.stopped != nil {
		s.finish()
	}
	signal(s.wake)
	return nil
}

// abort handles a reset by the peer.
func (s *ReceiveStream) abort(code, final, reliable uint64) error {
	if reliable > final {
		return violation("reset of stream %d", s.id)
	}
	complete := s.final != unknownSize && s.complete()
	if err := s.end(final); err != nil || s.done || s.reset != nil || complete {
		return err
	}
	s.reset = &quic.StreamError{StreamID: quic.StreamID(s.id), ErrorCode: quic.StreamErrorCode(code), Remote: true}
	s.reliable = max(reliable, s.offset)
	s.c.consumed(counted(final) - counted(s.reliable))
	for len(s.pieces) > 0 {
		last := &s.pieces[len(s.pieces)-1]
		if last.offset < s.reliable {
			last.data = last.data[:min(uint64(len(last.data)), s.reliable-last.offset)]
			break
		}
		s.pieces = s.pieces[:len(s.pieces)-1]
	}
	return nil
}

// complete reports whether all bytes up to the final size have arrived.
func (s *ReceiveStream) complete() bool {
	at := s.offset
	for _, p := range s.pieces {
		if p.offset != at {
			return false
		}
		at += uint64(len(p.data))
	}
	return at == s.final
}

// finish records that nothing is left to receive.
func (s *ReceiveStream) finish() {
	if !s.done {
		s.done = true
		s.c.release(s.id)
	}
}
