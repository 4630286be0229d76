// Package multipath provides the streams and datagrams of a QUIC connection over a bundle of QUIC
// connections, each over its own network path (docs/spec/multipath.md). Paths join and leave while data
// flows. Package fbdt decides which bytes each path sends.
package multipath

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"

	"holocast/internal/fbdt"
)

// Limits of a bundle.
const (
	maxWindow       = 64 << 20 // unread bytes
	maxStreamWindow = 16 << 20 // unread bytes of a stream
	usualWindow     = 48 << 20 // at first
	usualStream     = 2 << 20
	firstWindow     = 2 << 20 // of a bundle whose window grows by permission
	firstStream     = 512 << 10
	uncounted       = 256     // bytes of each stream that need no credit, for headers
	maxOpenStreams  = 1 << 10 // of each kind, opened by the peer
	maxPaths        = 8
	maxUnacked      = 1 << 20 // bytes of control messages
	maxQueue        = 2048    // unread datagrams, of several frames
	maxRanges       = 4096    // of received segments
)

// Config holds the settings of a bundle.
type Config struct {
	// Streams limits the streams of each kind that the peer may have open; 0 = 1024.
	Streams uint64
	// Grow, if set, decides whether the window for unread data may grow by this many bytes. The
	// window then starts at 2 MiB and grows to at most 64 MiB; otherwise it is 48 MiB.
	Grow func(bytes uint64) bool
	// Log receives path events; nil = slog.Default.
	Log *slog.Logger
	// Scheduler creates the bundle's scheduler; nil = fbdt.New.
	Scheduler func() fbdt.Scheduler
}

func (c Config) window() uint64 {
	if c.Grow != nil {
		return firstWindow
	}
	return usualWindow
}

func (c Config) streamWindow() uint64 {
	if c.Grow != nil {
		return firstStream
	}
	return usualStream
}

func (c Config) grants() grants {
	return grants{c.window(), c.streamWindow(), cmp.Or(c.Streams, maxOpenStreams)}
}

var (
	errClosed = errors.New("multipath: write on a closed stream")
	errNoPath = errors.New("multipath: no path is left")
)

// violationError is a violation of the protocol by the peer.
type violationError string

func (e violationError) Error() string { return "multipath: " + string(e) }

func violation(format string, args ...any) error {
	return violationError(fmt.Sprintf(format, args...))
}

// Conn is a bundle. Its methods are safe for concurrent use.
type Conn struct {
	cfg    Config
	client bool
	log    *slog.Logger
	began  time.Time
	ctx    context.Context // ends with the bundle; its cause is the error
	cancel context.CancelCauseFunc
	server *Server // nil at the client

	datagrams chan []byte
	ackDue    chan struct{}
	accepted  [2]chan struct{} // a stream of the kind waits, or the bundle ended
	joined    chan struct{}    // a token arrived

	mu         sync.Mutex
	sched      fbdt.Scheduler
	paths      []*path              // live ones
	lastPath   *path                // that was removed
	gone       Totals               // of paths that have left
	former     map[string]PathStats // of names without a connection, and the earlier connections of others
	nextPath   int
	linger     *time.Timer
	streams    map[uint64]streamSides
	incoming   [2][]streamSides // streams to accept, by kind
	opened     [2]uint64        // streams that we opened, by kind
	openLimit  [2]uint64        // of the peer
	theirs     [2]uint64        // streams that the peer opened
	theirLimit [2]uint64        // on theirs
	closed     [2]uint64        // streams of the peer that are done
	mayOpen    chan struct{}    // closed and replaced when openLimit grows
	outbox     *SendStream      // of control messages
	inbox      *ReceiveStream   // of control messages
	peer       grants
	written    uint64 // bytes of all streams
	sendLimit  uint64
	ready      int64 // bytes that wait for a path
	blocked    map[*SendStream]struct{}
	received   uint64 // bytes of all streams
	read       uint64 // of them read or dropped
	recvLimit  uint64
	window     uint64
	grown      uint64          // value of read when the window could last grow
	segments   []*segment      // under way, by number
	highest    uint64          // one above the largest number of a segment
	numbers    spans           // of received segments
	floor      uint64          // numbers below are of no interest to the peer
	unacked    int             // segments received since the last acknowledgement
	active     time.Time       // a segment was sent or received
	tokens     []receivedToken // for further paths
	seen       map[token]bool  // tokens that arrived over some path
	refreshed  time.Time       // when the client was given a fresh token
	issued     []token         // that the client may use; guarded by server.mu
}

// streamSides holds the sides of a stream. One of them is nil if the stream is unidirectional.
type streamSides struct {
	send *SendStream
	recv *ReceiveStream
}

// Stream is a bidirectional stream.
type Stream struct {
	*SendStream
	*ReceiveStream
}

// StreamID returns the stream's ID, as in QUIC.
func (s *Stream) StreamID() quic.StreamID { return s.SendStream.StreamID() }

// Kinds of streams, in bit 1 of the stream ID.
const (
	bidirectional = iota
	unidirectional
)

func newConn(client bool, cfg Config) *Conn {
	c := &Conn{
		cfg: cfg, client: client, log: cmp.Or(cfg.Log, slog.Default()), began: time.Now(),
		datagrams: make(chan []byte, maxQueue), ackDue: make(chan struct{}, 1),
		accepted: [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)},
		joined:   make(chan struct{}, 1), mayOpen: make(chan struct{}),
		streams: map[uint64]streamSides{}, blocked: map[*SendStream]struct{}{}, seen: map[token]bool{}, refreshed: time.Now(),
		former:    map[string]PathStats{},
		recvLimit: cfg.window(), window: cfg.window(),
	}
	n := cmp.Or(cfg.Streams, maxOpenStreams)
	c.theirLimit = [2]uint64{n, n}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	if cfg.Scheduler != nil {
		c.sched = cfg.Scheduler()
	} else {
		c.sched = fbdt.New(fbdt.Options{})
	}
	c.outbox = newSendStream(c, controlStream, maxOffset)
	c.outbox.priority = fbdt.Priority{Urgency: -1}
	c.inbox = newReceiveStream(c, controlStream)
	c.inbox.limit = maxUnacked
	go c.sendAcks()
	go c.watch()
	return c
}

// begin applies the peer's initial limits.
func (c *Conn) begin(g grants) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peer = g
	c.sendLimit = min(g.data, maxOffset)
	c.openLimit = [2]uint64{min(g.streams, maxOffset), min(g.streams, maxOffset)}
}

// Context returns a context that is cancelled when the bundle ends. Its cause is the bundle's
// error.
func (c *Conn) Context() context.Context { return c.ctx }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// await releases c.mu while it waits for wake, the deadline or the end of the bundle.
func (c *Conn) await(wake chan struct{}, deadline time.Time) {
	c.mu.Unlock()
	defer c.mu.Lock()
	var late <-chan time.Time
	if !deadline.IsZero() {
		t := time.NewTimer(time.Until(deadline))
		defer t.Stop()
		late = t.C
	}
	select {
	case <-wake:
	case <-late:
	case <-c.ctx.Done():
	}
}

// kick makes every path ask the scheduler for segments again.
func (c *Conn) kick() {
	for _, p := range c.paths {
		signal(p.kick)
	}
}

// unblock wakes the writers that wait for credit or room.
func (c *Conn) unblock() {
	if c.ready < maxReady {
		for s := range c.blocked {
			s.flush()
			signal(s.wake)
		}
	}
}

// CloseWithError ends the bundle and sends the code and reason to the peer.
func (c *Conn) CloseWithError(code quic.ApplicationErrorCode, reason string) error {
	c.close(&quic.ApplicationError{ErrorCode: code, ErrorMessage: reason}, code, reason)
	return nil
}

// fail ends the bundle with err, which it reports to the peer as a protocol violation.
func (c *Conn) fail(err error) {
	c.close(err, codeViolation, err.Error())
}

func (c *Conn) close(err error, code quic.ApplicationErrorCode, reason string) {
	c.mu.Lock()
	if c.ctx.Err() != nil {
		c.mu.Unlock()
		return
	}
	c.cancel(err)
	paths := c.paths
	if c.linger != nil {
		c.linger.Stop()
	}
	c.mu.Unlock()
	for _, p := range paths {
		_ = p.qc.CloseWithError(code, reason)
	}
}

// Streams.

func (c *Conn) id(kind int, n uint64, ours bool) uint64 {
	id := n<<2 | uint64(kind)<<1
	if ours != c.client {
		id |= 1
	}
	return id
}

func (c *Conn) ours(id uint64) bool { return id&1 == 0 == c.client }

// open opens a stream. At the peer's limit ok is false, and changed is closed when the limit grows.
func (c *Conn) open(kind int) (sides streamSides, ok bool, changed <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return sides, false, nil, context.Cause(c.ctx)
	}
	if c.opened[kind] >= c.openLimit[kind] {
		return sides, false, c.mayOpen, nil
	}
	id := c.id(kind, c.opened[kind], true)
	c.opened[kind]++
	sides.send = newSendStream(c, id, c.peer.streamData)
	if kind == bidirectional {
		sides.recv = newReceiveStream(c, id)
	}
	c.streams[id] = sides
	return sides, true, nil, nil
}

func (c *Conn) openSync(ctx context.Context, kind int) (streamSides, error) {
	for {
		sides, ok, changed, err := c.open(kind)
		if ok || err != nil {
			return sides, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return sides, ctx.Err()
		case <-c.ctx.Done():
			return sides, context.Cause(c.ctx)
		}
	}
}

// OpenStreamSync opens a bidirectional stream. At the peer's limit it waits.
func (c *Conn) OpenStreamSync(ctx context.Context) (*Stream, error) {
	s, err := c.openSync(ctx, bidirectional)
	if err != nil {
		return nil, err
	}
	return &Stream{s.send, s.recv}, nil
}

// OpenUniStreamSync opens a unidirectional stream. At the peer's limit it waits.
func (c *Conn) OpenUniStreamSync(ctx context.Context) (*SendStream, error) {
	s, err := c.openSync(ctx, unidirectional)
	return s.send, err
}

// OpenUniStream opens a unidirectional stream. At the peer's limit the error is a
// *quic.StreamLimitReachedError.
func (c *Conn) OpenUniStream() (*SendStream, error) {
	s, ok, _, err := c.open(unidirectional)
	if err == nil && !ok {
		err = &quic.StreamLimitReachedError{}
	}
	return s.send, err
}

// AcceptStream returns the next bidirectional stream opened by the peer.
func (c *Conn) AcceptStream(ctx context.Context) (*Stream, error) {
	s, err := c.accept(ctx, bidirectional)
	if err != nil {
		return nil, err
	}
	return &Stream{s.send, s.recv}, nil
}

// AcceptUniStream returns the next unidirectional stream opened by the peer.
func (c *Conn) AcceptUniStream(ctx context.Context) (*ReceiveStream, error) {
	s, err := c.accept(ctx, unidirectional)
	return s.recv, err
}

func (c *Conn) accept(ctx context.Context, kind int) (sides streamSides, err error) {
	for {
		c.mu.Lock()
		if list := c.incoming[kind]; len(list) > 0 && c.ctx.Err() == nil {
			sides, c.incoming[kind] = list[0], list[1:]
			if len(list) > 1 {
				signal(c.accepted[kind])
			}
			c.mu.Unlock()
			return sides, nil
		}
		c.mu.Unlock()
		select {
		case <-c.accepted[kind]:
		case <-ctx.Done():
			return sides, ctx.Err()
		case <-c.ctx.Done():
			return sides, context.Cause(c.ctx)
		}
	}
}

// lookup returns the sides of a stream that the peer refers to, and opens the stream if it is new.
// Both sides are nil if the stream has ended.
func (c *Conn) lookup(id uint64) (streamSides, error) {
	if id == controlStream {
		return streamSides{recv: c.inbox}, nil
	}
	if sides, ok := c.streams[id]; ok {
		return sides, nil
	}
	kind, n := int(id>>1&1), id>>2
	if c.ours(id) {
		if n >= c.opened[kind] {
			return streamSides{}, violation("stream %d was not opened", id)
		}
		return streamSides{}, nil
	}
	if n >= c.theirLimit[kind] {
		return streamSides{}, violation("too many streams")
	}
	for ; c.theirs[kind] <= n; c.theirs[kind]++ {
		id := c.id(kind, c.theirs[kind], false)
		sides := streamSides{recv: newReceiveStream(c, id)}
		if kind == bidirectional {
			sides.send = newSendStream(c, id, c.peer.streamData)
		}
		c.streams[id] = sides
		c.incoming[kind] = append(c.incoming[kind], sides)
		signal(c.accepted[kind])
	}
	return c.streams[id], nil
}

// release forgets a stream if both sides are done.
func (c *Conn) release(id uint64) {
	sides, ok := c.streams[id]
	if !ok || sides.send != nil && !sides.send.done || sides.recv != nil && !sides.recv.done {
		return
	}
	delete(c.streams, id)
	if c.ours(id) {
		return
	}
	kind := id >> 1 & 1
	c.closed[kind]++
	most := cmp.Or(c.cfg.Streams, maxOpenStreams)
	if next := c.closed[kind] + most; next-c.theirLimit[kind] >= max(1, most/8) {
		c.theirLimit[kind] = next
		c.control(maxStreams, kind, next)
	}
}

// counted returns how many of a stream's first n bytes count towards the limit shared by all
// streams.
func counted(n uint64) uint64 { return n - min(n, uncounted) }

// consumed counts n bytes as read or dropped, and grants the peer more credit once an eighth of the window is
// used. With a larger share, streams that nobody reads would sooner block the others. The window may grow after
// half of it is used.
func (c *Conn) consumed(n uint64) {
	c.read += n
	if n == 0 || c.read+c.window-c.recvLimit < c.window/8 {
		return
	}
	if c.read-c.grown >= c.window/2 {
		c.grown = c.read
		if c.window < maxWindow && c.cfg.Grow != nil && c.cfg.Grow(c.window) {
			c.window = min(2*c.window, maxWindow)
		}
	}
	c.recvLimit = c.read + c.window
	c.control(maxData, c.recvLimit)
}

// Control messages.

// control sends a control message.
func (c *Conn) control(kind int, fields ...uint64) {
	if c.ctx.Err() != nil {
		return
	}
	if c.outbox.end-c.outbox.acked.prefix() > maxUnacked-maxControl {
		go c.fail(violation("the peer does not acknowledge control messages"))
		return
	}
	c.outbox.append(appendNumbers(quicvarint.Append(nil, uint64(kind)), fields...))
}

// readControl handles the control messages that have arrived completely.
func (c *Conn) readControl() error {
	s := c.inbox
	var b []byte
	for len(s.pieces) > 0 && s.pieces[0].offset == s.offset+uint64(len(b)) {
		b = append(b, s.pieces[0].data...)
		s.pieces = s.pieces[1:]
	}
	for len(b) > 0 {
		m, n, err := parseControl(b)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		if err := c.handle(m); err != nil {
			return err
		}
		b = b[n:]
		s.offset += uint64(n)
	}
	if len(b) > 0 {
		s.pieces = slices.Insert(s.pieces, 0, chunk{s.offset, b})
	}
	s.limit = s.offset + maxUnacked
	return nil
}

func (c *Conn) handle(m control) error {
	f := m.fields
	switch m.kind {
	case resetStream:
		sides, err := c.lookup(f[0])
		if err != nil || f[0] == controlStream || sides.recv == nil {
			return err
		}
		return sides.recv.abort(f[1], f[2], f[3])
	case stopSending:
		sides, err := c.lookup(f[0])
		if err != nil || f[0] == controlStream || sides.send == nil {
			return err
		}
		sides.send.reset(quic.StreamErrorCode(f[1]), true)
	case maxData:
		c.sendLimit = max(c.sendLimit, min(f[0], maxOffset))
		c.unblock()
	case maxStreamData:
		sides, err := c.lookup(f[0])
		if err != nil || f[0] == controlStream || sides.send == nil {
			return err
		}
		sides.send.limit = max(sides.send.limit, min(f[1], maxOffset))
		sides.send.flush()
		signal(sides.send.wake)
	case maxStreams:
		if f[0] > unidirectional {
			return violation("kind %d of streams", f[0])
		}
		if n := min(f[1], maxOffset); n > c.openLimit[f[0]] {
			c.openLimit[f[0]] = n
			close(c.mayOpen)
			c.mayOpen = make(chan struct{})
		}
	}
	return nil
}

// Segments.

// segment is a segment in flight: assigned to a path but not yet acknowledged.
type segment struct {
	fbdt.Segment
	path    *path
	urgency int8
	stream  *quic.SendStream // nil until it is opened
	data    [][]byte
	last    bool
	stale   bool
}

// next returns the next segment for a path. Without one, wait reports whether to ask again: after
// the given time, or only after a kick if again is 0.
func (c *Conn) next(p *path) (seg *segment, again time.Duration, wait bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.removed || c.ctx.Err() != nil {
		return nil, 0, false
	}
	now := time.Since(c.began)
	for {
		s, ok := c.sched.Next(p.number, now)
		if !ok {
			break
		}
		if seg := c.fill(p, s); seg != nil {
			return seg, 0, false
		}
	}
	if at, ok := c.sched.Wake(p.number, now); ok {
		return nil, max(at-now, time.Millisecond), true
	}
	return nil, 0, true
}

// fill adds the data to a segment from the scheduler. It returns nil if the data need not be sent
// any more.
func (c *Conn) fill(p *path, s fbdt.Segment) *segment {
	send := c.outbox
	if s.Stream != controlStream {
		send = c.streams[s.Stream].send
	}
	from, to := uint64(s.Offset), uint64(s.Offset+s.Length)
	c.highest = max(c.highest, s.Number+1)
	if send == nil || send.done {
		c.sched.Acked(s.Number, time.Since(c.began))
		return nil
	}
	seg := &segment{Segment: s, path: p, urgency: send.priority.Urgency, last: send.fin && to > send.end}
	if from < min(to, send.end) {
		if seg.data = send.slice(from, min(to, send.end)-from); seg.data == nil {
			c.sched.Acked(s.Number, time.Since(c.began)) // acknowledged in the meantime
			return nil
		}
	}
	send.assign(from, to)
	c.segments = append(c.segments, seg)
	c.active = time.Now()
	p.underWay++
	if s.Copy {
		p.copied += uint64(s.Length)
	}
	return seg
}

// least returns the lowest number whose acknowledgement is awaited, or the next number if none is.
func (c *Conn) least() uint64 {
	if len(c.segments) > 0 {
		return c.segments[0].Number
	}
	return c.highest
}

// stale cancels segments that are no longer needed.
func (c *Conn) stale(numbers []uint64) {
	for _, n := range numbers {
		i, ok := c.segment(n)
		if !ok {
			continue
		}
		s := c.segments[i]
		c.segments = slices.Delete(c.segments, i, i+1)
		s.path.underWay--
		s.stale = true
		if s.stream != nil {
			s.stream.CancelWrite(0)
		}
	}
}

func (c *Conn) segment(number uint64) (int, bool) {
	return slices.BinarySearchFunc(c.segments, number, func(s *segment, n uint64) int { return cmp.Compare(s.Number, n) })
}

// acked handles an acknowledgement.
func (c *Conn) acked(numbers spans) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil || len(numbers) == 0 {
		return nil
	}
	if numbers[len(numbers)-1].to > c.highest {
		return violation("acknowledgement of segment %d, which was never sent", numbers[len(numbers)-1].to-1)
	}
	var arrived []*segment
	left := c.segments[:0]
	for _, s := range c.segments {
		for len(numbers) > 0 && numbers[0].to <= s.Number {
			numbers = numbers[1:]
		}
		if len(numbers) > 0 && numbers[0].from <= s.Number {
			arrived = append(arrived, s)
		} else {
			left = append(left, s)
		}
	}
	clear(c.segments[len(left):])
	c.segments = left
	now := time.Since(c.began)
	for _, s := range arrived {
		s.path.underWay--
		s.path.acked += uint64(s.Length)
		c.stale(c.sched.Acked(s.Number, now))
		send := c.outbox
		if s.Stream != controlStream {
			send = c.streams[s.Stream].send
		}
		if send != nil {
			send.ack(uint64(s.Offset), uint64(s.Offset+s.Length))
		}
	}
	if len(arrived) > 0 {
		c.kick()
	}
	return nil
}

// receive handles bytes of a segment, which start at the given offset in the stream. It returns how many were
// redundant.
func (c *Conn) receive(h header, offset uint64, b []byte) (repeated uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.active = time.Now()
	sides, err := c.lookup(h.stream)
	if err != nil || len(b) == 0 {
		return 0, err
	}
	if sides.recv == nil || sides.recv.done {
		if sides.send != nil && sides.recv == nil {
			return 0, violation("data on stream %d, which only we send on", h.stream)
		}
		return uint64(len(b)), nil
	}
	repeated, err = sides.recv.insert(offset, b)
	if err == nil && h.stream == controlStream {
		err = c.readControl()
	}
	return repeated, err
}

// arrived handles the end of a segment. end is the offset after its last byte.
func (c *Conn) arrived(h header, end uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.last {
		sides, err := c.lookup(h.stream)
		switch {
		case err != nil:
			return err
		case h.stream == controlStream:
			return violation("the control stream ended")
		case sides.recv != nil && !sides.recv.done:
			if err := sides.recv.end(end); err != nil {
				return err
			}
		}
	}
	if h.floor > c.floor {
		c.floor = h.floor
		c.numbers.cut(h.floor)
	}
	if h.number >= c.floor {
		c.numbers.add(h.number, h.number+1)
	}
	if len(c.numbers) > maxRanges {
		c.numbers = slices.Delete(c.numbers, 0, 1)
	}
	c.unacked++
	signal(c.ackDue)
	return nil
}
