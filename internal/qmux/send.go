package qmux

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"
)

// defaultUrgency is a stream's urgency unless SetPriority changes it (RFC 9218).
const defaultUrgency = 3

// SendStream is the sending direction of a stream.
type SendStream struct {
	c      *Conn
	id     uint64
	ctx    context.Context
	cancel context.CancelFunc

	// Guarded by c.mu.
	changed  signal
	queued   bool   // in c.sending
	buf      []byte // small writes
	data     []byte // of the blocked Write, after buf
	offset   uint64 // sent
	max      uint64 // the peer's limit on offset
	reliable uint64 // bytes that arrive even after a reset
	fin      bool
	over     bool    // FIN or a reset was sent
	code     *uint64 // of a reset
	stopped  *uint64 // the code of STOP_SENDING
	deadline time.Time
	urgency  int8
	order    uint64
}

// Stream is a bidirectional stream.
type Stream struct {
	*SendStream
	*ReceiveStream
}

// Context returns a context that ends when the stream is closed, reset or refused.
func (s *SendStream) Context() context.Context { return s.ctx }

// SetPriority orders the connection's streams: lower urgency first, then lower order, then the stream
// that was opened first.
func (s *SendStream) SetPriority(urgency int8, order uint64) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.urgency, s.order = urgency, order
}

// SetReliableBoundary makes the bytes written so far arrive even if the stream is reset.
func (s *SendStream) SetReliableBoundary() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.reliable = s.offset + uint64(len(s.buf)+len(s.data))
}

// Delivered reports whether the socket has taken the whole stream or its reset.
func (s *SendStream) Delivered() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.over
}

// SetWriteDeadline sets the time after which Write fails with os.ErrDeadlineExceeded; zero means never.
func (s *SendStream) SetWriteDeadline(t time.Time) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.deadline = t
	s.changed.broadcast()
	return nil
}

// Write returns once the socket has taken p except for a small rest, which is buffered.
func (s *SendStream) Write(p []byte) (int, error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := s.err(); err != nil {
		return 0, err
	}
	if len(s.buf)+len(p) <= smallWrite {
		s.buf = append(s.buf, p...)
		c.enqueue(s)
		return len(p), nil
	}
	s.data = p
	c.enqueue(s)
	for len(s.data) > 0 {
		c.await(s.changed.wait(), s.deadline)
		if len(s.data) == 0 {
			break
		}
		if err := s.err(); err != nil {
			n := len(p) - len(s.data)
			s.data = nil
			return n, err
		}
	}
	s.data = nil
	return len(p), nil
}

// err returns the reason why the stream takes no data. The caller holds c.mu.
func (s *SendStream) err() error {
	switch {
	case s.c.ended:
		return s.c.err()
	case s.stopped != nil:
		return &quic.StreamError{StreamID: quic.StreamID(s.id), ErrorCode: quic.StreamErrorCode(*s.stopped), Remote: true}
	case s.code != nil:
		return &quic.StreamError{StreamID: quic.StreamID(s.id), ErrorCode: quic.StreamErrorCode(*s.code)}
	case s.fin:
		return errors.New("qmux: write on a closed stream")
	case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
		return os.ErrDeadlineExceeded
	}
	return nil
}

// Close ends the stream after the data written.
func (s *SendStream) Close() error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return c.err()
	}
	if s.code != nil {
		return &quic.StreamError{StreamID: quic.StreamID(s.id), ErrorCode: quic.StreamErrorCode(*s.code)}
	}
	if !s.fin {
		s.fin = true
		s.cancel()
		c.enqueue(s)
	}
	return nil
}

// CancelWrite resets the stream. Data not yet in the socket is dropped, except the bytes up to the
// reliable boundary.
func (s *SendStream) CancelWrite(code quic.StreamErrorCode) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.reset(uint64(code))
}

// reset implements CancelWrite. The caller holds c.mu.
func (s *SendStream) reset(code uint64) {
	if s.c.ended || s.over || s.code != nil {
		return
	}
	s.code = &code
	s.cancel()
	keep := s.reliable - min(s.reliable, s.offset)
	if n := uint64(len(s.buf)); keep > n { // the boundary lies in the data of a blocked Write
		s.buf = append(s.buf, s.data[:min(keep-n, uint64(len(s.data)))]...)
	} else {
		s.buf = s.buf[:keep]
	}
	s.changed.broadcast() // Write takes s.data back
	s.c.enqueue(s)
}

// enqueue adds a stream to those with something to send. The caller holds c.mu.
func (c *Conn) enqueue(s *SendStream) {
	if !s.queued && !s.over {
		s.queued = true
		c.sending = append(c.sending, s)
	}
	c.work.broadcast()
}

// pending returns the number of bytes to send.
func (s *SendStream) pending() int {
	if s.code != nil {
		return len(s.buf)
	}
	return len(s.buf) + len(s.data)
}

// before reports whether s is sent before t.
func (s *SendStream) before(t *SendStream) bool {
	switch {
	case s.urgency != t.urgency:
		return s.urgency < t.urgency
	case s.order != t.order:
		return s.order < t.order
	}
	return s.id < t.id
}

// records holds buffers of MaxRecord bytes.
var records = sync.Pool{New: func() any { return new([MaxRecord]byte) }}

// sendAll sends records until the connection ends.
func (c *Conn) sendAll() {
	for c.sendRecord() {
	}
	c.link.Close()
}

// sendRecord waits until there is something to send, and sends one record. It returns false after the
// last one.
func (c *Conn) sendRecord() bool {
	c.mu.Lock()
	buf := records.Get().(*[MaxRecord]byte)
	b := c.fill(buf[:0])
	for len(b) == 0 {
		records.Put(buf) // idle connections hold none
		if c.ended {
			c.mu.Unlock()
			return false
		}
		work := c.work.wait()
		c.mu.Unlock()
		<-work
		c.mu.Lock()
		buf = records.Get().(*[MaxRecord]byte)
		b = c.fill(buf[:0])
	}
	c.stats.BytesSent += uint64(len(b))
	c.mu.Unlock()
	err := c.link.Send(b)
	records.Put(buf)
	if err != nil {
		// If the peer has closed the connection, its reason may still be unread.
		select {
		case <-c.ctx.Done():
		case <-time.After(closeWait):
			c.fail(err)
		}
		return false
	}
	return true
}

// fill appends frames to an empty record until it is full or the queue is empty. The caller holds
// c.mu.
func (c *Conn) fill(b []byte) []byte {
	if !c.introduced {
		c.introduced = true
		b = frame{typ: typeParameters, data: c.local.encode()}.append(b)
	}
	if c.ended {
		if c.closing == nil {
			return b[:0]
		}
		b = c.closing.append(b)
		c.closing = nil
		return b
	}
	if c.peer == nil {
		return b
	}
	limit := int(min(MaxRecord, c.peer.record))
	b = c.fillControl(b, limit)
	b = c.fillStreams(b, limit, true)
	share := limit
	if len(c.sending) > 0 {
		share = min(limit, len(b)+datagramShare)
	}
	for len(c.datagrams) > 0 && (len(b)+5+len(c.datagrams[0]) <= share || len(b) == 0) {
		d := c.datagrams[0]
		c.datagrams[0] = nil
		c.datagrams = c.datagrams[1:]
		c.datagramBytes -= len(d)
		b = frame{typ: typeDatagram, data: d}.append(b)
		c.changed.broadcast()
	}
	return c.fillStreams(b, limit, false)
}

// fillControl appends the frames about the connection, and about streams that are received.
func (c *Conn) fillControl(b []byte, limit int) []byte {
	if c.pongDue {
		c.pongDue = false
		b = frame{typ: typePong, value: c.heardPing}.append(b)
	}
	if c.pingDue {
		c.pingDue = false
		c.ping++
		c.pinged = time.Now()
		b = frame{typ: typePing, value: c.ping}.append(b)
	}
	if c.growing {
		c.growing = false
		c.maxReceive = c.read + c.local.data
		b = frame{typ: typeMaxData, value: c.maxReceive}.append(b)
	}
	for kind, due := range c.allowing {
		if due {
			c.allowing[kind] = false
			limits := [2]uint64{c.local.streamsBidi, c.local.streamsUni}
			c.maxAccept[kind] = c.finished[kind] + limits[kind]
			b = frame{typ: typeMaxStreamsBidi + uint64(kind), value: c.maxAccept[kind]}.append(b)
		}
	}
	for len(c.controls) > 0 && len(b)+2*resetSize <= limit {
		s := c.controls[0]
		c.controls[0] = nil
		c.controls = c.controls[1:]
		s.queued = false
		if s.stop != nil && !s.stopSent {
			s.stopSent = true
			b = frame{typ: typeStopSending, id: s.id, code: *s.stop}.append(b)
		}
		if s.growing {
			s.growing = false
			s.max = s.read + s.window
			b = frame{typ: typeMaxStreamData, id: s.id, value: s.max}.append(b)
		}
	}
	return b
}

// fillStreams appends STREAM and RESET_STREAM frames, the most urgent first: those of urgency 0 if
// urgent is set.
func (c *Conn) fillStreams(b []byte, limit int, urgent bool) []byte {
	for len(c.sending) > 0 && len(b)+max(resetSize, streamOverhead+1) <= limit {
		best := -1
		for i, s := range c.sending {
			if (best < 0 || s.before(c.sending[best])) && c.sendable(s) {
				best = i
			}
		}
		if best < 0 || urgent && c.sending[best].urgency > 0 {
			break
		}
		s := c.sending[best]
		b = c.fillStream(b, limit, s)
		if s.over || s.pending() == 0 && !s.fin {
			s.queued = false
			c.sending = slices.Delete(c.sending, best, best+1)
		}
	}
	return b
}

// sendable reports whether a stream may send something now.
func (c *Conn) sendable(s *SendStream) bool {
	if s.pending() > 0 {
		return s.offset < s.max && c.offset < c.maxOffset
	}
	return true // FIN, a reset, or nothing
}

// fillStream appends one frame of a stream.
func (c *Conn) fillStream(b []byte, limit int, s *SendStream) []byte {
	if n := s.pending(); n > 0 {
		take := int(min(uint64(n), uint64(limit-len(b)-streamOverhead), s.max-s.offset, c.maxOffset-c.offset))
		f := frame{id: s.id, value: s.offset, fin: take == n && s.fin && s.code == nil}
		b = f.appendStream(b, take)
		from := min(take, len(s.buf))
		b = append(b, s.buf[:from]...)
		s.buf = s.buf[from:]
		if rest := take - from; rest > 0 {
			b = append(b, s.data[:rest]...)
			s.data = s.data[rest:]
		}
		s.offset += uint64(take)
		c.offset += uint64(take)
		if len(s.data) <= smallWrite && len(s.buf) == 0 { // Write need not wait for the rest
			s.buf, s.data = append([]byte(nil), s.data...), nil
			s.changed.broadcast()
		}
		if f.fin {
			c.sent(s)
		}
		if s.code == nil || s.pending() > 0 || limit-len(b) < resetSize {
			return b
		}
	}
	switch {
	case s.code != nil && s.reliable > 0 && c.peer.resetAt:
		b = frame{
			typ: typeResetAt, id: s.id, code: *s.code, value: s.offset, at: min(s.reliable, s.offset),
		}.append(b)
		c.sent(s)
	case s.code != nil:
		b = frame{typ: typeReset, id: s.id, code: *s.code, value: s.offset}.append(b)
		c.sent(s)
	case s.fin:
		b = frame{typ: typeStream, id: s.id, value: s.offset, fin: true}.append(b)
		c.sent(s)
	}
	return b
}

// appendStream encodes the header of a STREAM frame with n bytes of payload.
func (f frame) appendStream(b []byte, n int) []byte {
	t := byte(typeStream | bitOffset | bitLength)
	if f.fin {
		t |= bitFin
	}
	b = appendVarints(append(b, t), f.id, f.value)
	return quicvarint.Append(b, uint64(n))
}

// sent forgets a stream whose last frame was encoded.
func (c *Conn) sent(s *SendStream) {
	s.over = true
	delete(c.sends, s.id)
	c.halfDone(s.id)
}
