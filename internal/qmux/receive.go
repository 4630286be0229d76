package qmux

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/quic-go/quic-go"
)

// ReceiveStream is the receiving direction of a stream.
type ReceiveStream struct {
	c  *Conn
	id uint64

	// Guarded by c.mu.
	changed  signal
	readable func() // see WhenReadable
	queued   bool   // in c.controls
	buf      []byte // unread
	received uint64 // bytes
	read     uint64
	window   uint64
	max      uint64 // as announced
	growing  bool   // MAX_STREAM_DATA is due
	fin      bool   // all was received
	reset    *uint64
	over     bool // completed
	stop     *uint64
	stopSent bool
	deadline time.Time
}

// SetReadDeadline sets the time after which Read fails with os.ErrDeadlineExceeded; zero means never.
func (s *ReceiveStream) SetReadDeadline(t time.Time) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.deadline = t
	s.wake()
	return nil
}

// WhenReadable calls f on a new goroutine once Read would not block.
func (s *ReceiveStream) WhenReadable(f func()) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.c.ended || len(s.buf) > 0 || s.err() != nil {
		go f()
		return
	}
	s.readable = f
}

// wake wakes readers. The caller holds c.mu.
func (s *ReceiveStream) wake() {
	s.changed.broadcast()
	if s.readable != nil {
		go s.readable()
		s.readable = nil
	}
}

// Read returns received bytes. Bytes that arrived before a reset are returned before its error.
func (s *ReceiveStream) Read(p []byte) (int, error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if len(s.buf) > 0 && s.stop == nil && !c.ended {
			n := copy(p, s.buf)
			if s.buf = s.buf[n:]; len(s.buf) == 0 {
				s.buf = nil
			}
			s.consume(uint64(n))
			return n, nil
		}
		if c.ended {
			return 0, c.err()
		}
		if err := s.err(); err != nil {
			return 0, err
		}
		if len(p) == 0 {
			return 0, nil
		}
		c.await(s.changed.wait(), s.deadline)
	}
}

// err returns the error of a stream without unread bytes. The caller holds c.mu.
func (s *ReceiveStream) err() error {
	id := quic.StreamID(s.id)
	switch {
	case s.stop != nil:
		return &quic.StreamError{StreamID: id, ErrorCode: quic.StreamErrorCode(*s.stop)}
	case s.reset != nil:
		s.complete()
		return &quic.StreamError{StreamID: id, ErrorCode: quic.StreamErrorCode(*s.reset), Remote: true}
	case s.fin:
		s.complete()
		return io.EOF
	case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
		return os.ErrDeadlineExceeded
	}
	return nil
}

// CancelRead asks the peer to stop sending, and discards data received.
func (s *ReceiveStream) CancelRead(code quic.StreamErrorCode) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || s.over || s.stop != nil {
		return
	}
	v := uint64(code)
	s.stop = &v
	s.discard()
	s.wake()
	if s.fin || s.reset != nil {
		s.complete()
		return
	}
	c.control(s)
}

// discard drops the unread bytes. The caller holds c.mu.
func (s *ReceiveStream) discard() {
	s.consume(uint64(len(s.buf)))
	s.buf = nil
}

// consume extends the windows after n bytes were read. The caller holds c.mu.
func (s *ReceiveStream) consume(n uint64) {
	c := s.c
	s.read += n
	c.read += n
	if c.read+c.local.data-c.maxReceive >= c.local.data/4 && n > 0 && !c.growing {
		c.growing = true
		c.work.broadcast()
	}
	if s.read+s.window-s.max >= s.window/4 && !s.growing && !s.fin && s.reset == nil && s.stop == nil {
		s.growing = true
		c.control(s)
	}
}

// control queues a frame about a received stream. The caller holds c.mu.
func (c *Conn) control(s *ReceiveStream) {
	if !s.queued {
		s.queued = true
		c.controls = append(c.controls, s)
	}
	c.work.broadcast()
}

// complete forgets a stream that has ended. The caller holds c.mu.
func (s *ReceiveStream) complete() {
	if s.over {
		return
	}
	s.over = true
	delete(s.c.receives, s.id)
	s.c.halfDone(s.id)
}

// halfDone records the end of one direction of a stream, and lets the peer open another stream once
// one of its own has ended.
func (c *Conn) halfDone(id uint64) {
	if c.own(id) {
		return
	}
	kind := id >> 1 & 1
	if kind == bidi {
		if c.halves[id]--; c.halves[id] > 0 {
			return
		}
		delete(c.halves, id)
	}
	c.finished[kind]++
	limit := [2]uint64{c.local.streamsBidi, c.local.streamsUni}[kind]
	if c.finished[kind]+limit-c.maxAccept[kind] >= max(1, limit/4) {
		c.allowing[kind] = true
		c.work.broadcast()
	}
}

// own reports whether we opened a stream.
func (c *Conn) own(id uint64) bool { return id&1 == 1 == c.server }

// receiveAll handles records until the connection ends.
func (c *Conn) receiveAll() {
	for {
		b, err := c.link.Receive()
		if err == nil {
			err = c.receive(b)
		} else if errors.Is(err, io.EOF) {
			err = errClosed
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// receive handles a record.
func (c *Conn) receive(b []byte) error {
	if len(b) > MaxRecord {
		return transportError(quic.FrameEncodingError, "record larger than max_record_size")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return c.err()
	}
	c.heard = time.Now()
	c.stats.BytesReceived += uint64(len(b))
	for len(b) > 0 {
		f, rest, err := parseFrame(b)
		if err != nil {
			return err
		}
		if c.waitsFirst != (f.typ == typeParameters) {
			return transportError(quic.ProtocolViolation, "transport parameters are not the first frame")
		}
		c.waitsFirst = false
		if err := c.handle(f); err != nil {
			return err
		}
		b = rest
	}
	return nil
}

// handle handles a frame. The caller holds c.mu.
func (c *Conn) handle(f frame) error {
	switch f.typ {
	case typeParameters:
		p, err := parseParameters(f.data)
		if err != nil {
			return err
		}
		c.peer, c.maxOffset = &p, p.data
		c.maxOpen = [2]uint64{p.streamsBidi, p.streamsUni}
		c.pingDue = true
		c.changed.broadcast()
		c.work.broadcast()
	case typeStream:
		s, err := c.receiver(f.id)
		if err != nil {
			return err
		}
		return c.handleStream(s, f)
	case typeReset, typeResetAt:
		s, err := c.receiver(f.id)
		if err != nil {
			return err
		}
		return c.handleReset(s, f)
	case typeStopSending:
		s, err := c.sender(f.id)
		if err != nil || s == nil || s.stopped != nil {
			return err
		}
		s.stopped = &f.code
		s.reset(f.code)
		s.changed.broadcast()
	case typeMaxData:
		if f.value > c.maxOffset {
			c.maxOffset = f.value
			c.work.broadcast()
		}
	case typeMaxStreamData:
		s, err := c.sender(f.id)
		if err != nil {
			return err
		}
		if s != nil && f.value > s.max {
			s.max = f.value
			c.work.broadcast()
		}
	case typeMaxStreamsBidi, typeMaxStreamsUni:
		kind := f.typ - typeMaxStreamsBidi
		if f.value > c.maxOpen[kind] {
			c.maxOpen[kind] = f.value
			c.changed.broadcast()
		}
	case typePing:
		if c.heardPing > 0 && f.value <= c.heardPing {
			return transportError(quic.ProtocolViolation, "ping out of order")
		}
		c.heardPing, c.pongDue = f.value, true
		c.work.broadcast()
	case typePong:
		return c.handlePong(f.value)
	case typeDatagram:
		if len(c.incoming) >= maxDatagramsIn || c.incomingBytes+len(f.data) > maxDatagramsInBytes {
			c.stats.DatagramsDropped++
			return nil
		}
		c.incoming = append(c.incoming, append([]byte(nil), f.data...))
		c.incomingBytes += len(f.data)
		c.trigger(whenDatagram)
		c.changed.broadcast()
	case typeCloseApplication:
		return &quic.ApplicationError{
			Remote: true, ErrorCode: quic.ApplicationErrorCode(f.code), ErrorMessage: reason(f.data),
		}
	case typeClose:
		return &quic.TransportError{
			Remote: true, ErrorCode: quic.TransportErrorCode(f.code), ErrorMessage: reason(f.data),
		}
	}
	return nil
}

func reason(b []byte) string { return string(b[:min(len(b), maxReason)]) }

func (c *Conn) handlePong(sequence uint64) error {
	if sequence > c.ping {
		return transportError(quic.ProtocolViolation, "answer to a ping that was not sent")
	}
	if sequence < c.ping || c.pinged.IsZero() {
		return nil
	}
	sample := max(time.Since(c.pinged), time.Nanosecond)
	c.pinged = time.Time{}
	if c.rtt == 0 {
		c.rtt, c.minRTT = sample, sample
		return nil
	}
	c.rtt += (sample - c.rtt) / 8
	c.minRTT = min(c.minRTT, sample)
	return nil
}

// receiver returns a stream that the peer sends. It opens the stream, and those before it, if they are
// new.
func (c *Conn) receiver(id uint64) (*ReceiveStream, error) {
	if s := c.receives[id]; s != nil {
		return s, nil
	}
	kind, number := id>>1&1, id>>2
	switch {
	case c.own(id) && kind == uni:
		return nil, transportError(quic.StreamStateError, "data on a stream that the peer only receives")
	case c.own(id) && number >= c.opened[kind], !c.own(id) && number < c.accepted[kind], c.own(id):
		return nil, transportError(quic.StreamStateError, fmt.Sprintf("stream %d is not open", id))
	case number >= c.maxAccept[kind]:
		return nil, transportError(quic.StreamLimitError, fmt.Sprintf("stream %d exceeds the limit", id))
	}
	for ; c.accepted[kind] <= number; c.accepted[kind]++ {
		next := c.accepted[kind]<<2 | id&3
		if kind == uni {
			c.newUni = append(c.newUni, c.addReceive(next, c.local.uni))
			continue
		}
		c.halves[next] = 2
		c.newBidi = append(c.newBidi, &Stream{
			c.addSend(next, c.peer.bidiLocal), c.addReceive(next, c.local.bidiRemote),
		})
	}
	c.trigger(whenStream + int(kind))
	c.changed.broadcast()
	return c.receives[id], nil
}

// sender returns a stream that we send, or nil if it has ended.
func (c *Conn) sender(id uint64) (*SendStream, error) {
	if s := c.sends[id]; s != nil {
		return s, nil
	}
	kind, number := id>>1&1, id>>2
	switch {
	case c.own(id) && number < c.opened[kind], !c.own(id) && kind == bidi && number < c.accepted[kind]:
		return nil, nil
	case !c.own(id) && kind == bidi:
		if _, err := c.receiver(id); err != nil { // opens it
			return nil, err
		}
		return c.sends[id], nil
	}
	return nil, transportError(quic.StreamStateError, fmt.Sprintf("stream %d is not ours", id))
}

// advance checks and counts the bytes of a stream up to end.
func (c *Conn) advance(s *ReceiveStream, end uint64) error {
	if end > s.max {
		return transportError(quic.FlowControlError, fmt.Sprintf("stream %d exceeds its window", s.id))
	}
	c.received += end - s.received
	s.received = end
	if c.received > c.maxReceive {
		return transportError(quic.FlowControlError, "data exceeds the connection's window")
	}
	return nil
}

func (c *Conn) handleStream(s *ReceiveStream, f frame) error {
	if s.fin || s.reset != nil {
		return transportError(quic.FinalSizeError, fmt.Sprintf("data after the end of stream %d", s.id))
	}
	if f.value != s.received {
		return transportError(quic.ProtocolViolation, fmt.Sprintf("stream %d is not in order", s.id))
	}
	if err := c.advance(s, f.value+uint64(len(f.data))); err != nil {
		return err
	}
	s.fin = f.fin
	if s.stop != nil {
		s.consume(uint64(len(f.data)))
		if f.fin {
			s.complete()
		}
		return nil
	}
	s.buf = append(s.buf, f.data...)
	if len(f.data) > 0 || f.fin {
		s.wake()
	}
	return nil
}

func (c *Conn) handleReset(s *ReceiveStream, f frame) error {
	if s.fin || s.reset != nil {
		return transportError(quic.FinalSizeError, fmt.Sprintf("reset after the end of stream %d", s.id))
	}
	if f.value < s.received {
		return transportError(quic.FinalSizeError, fmt.Sprintf("reset of stream %d below its size", s.id))
	}
	missing := f.value - s.received // never sent, but counted by the peer
	if err := c.advance(s, f.value); err != nil {
		return err
	}
	s.reset = &f.code
	s.consume(missing)
	if s.stop != nil {
		s.complete()
		return nil
	}
	s.wake()
	return nil
}
