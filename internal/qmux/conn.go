package qmux

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// Link carries records, without their size, in both directions. Send and Receive are called from one
// goroutine each.
type Link interface {
	// Send sends a record. It blocks until the socket has taken it.
	Send(record []byte) error
	// Receive returns the next record, which is valid until the next call. It refuses records of more
	// than MaxRecord bytes.
	Receive() ([]byte, error)
	// Close ends the link after its sent records, Abort immediately. Both unblock the other calls.
	Close()
	Abort()
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
}

// MaxRecord is the largest record that a Conn sends and accepts, in bytes.
const MaxRecord = defaultRecord

// Config configures a Conn. 0 means the default.
type Config struct {
	Streams      uint64 // streams that the peer may have open, of each kind; 1024
	Window       uint64 // unread bytes of all streams; 48 MiB
	StreamWindow uint64 // unread bytes of a stream; 2 MiB
	Idle         time.Duration
}

// Defaults of Config.
const (
	defaultStreams      = 1 << 10
	defaultWindow       = 48 << 20
	defaultStreamWindow = 2 << 20
	defaultIdle         = 10 * time.Second
)

const (
	// pingEvery is the interval between pings, which measure the round-trip time and keep the
	// connection alive.
	pingEvery = 1500 * time.Millisecond
	// closeWait bounds how long the last records may take.
	closeWait = 500 * time.Millisecond
	// smallWrite is the number of bytes that a stream buffers without blocking its writer.
	smallWrite = 1200
	// maxReason bounds a close reason, in bytes.
	maxReason = 1024
	// Bounds of the datagrams that wait to be sent and to be read.
	maxDatagramsOut     = 16 << 10 // bytes
	maxDatagramsIn      = 1024
	maxDatagramsInBytes = 2 << 20
	// datagramShare is the share of a record that datagrams may take while streams wait.
	datagramShare = MaxRecord / 2
)

// Conn is a connection. Its methods are safe for concurrent use, like those of quic.Conn, which it
// resembles.
type Conn struct {
	link   Link
	server bool
	local  parameters
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	changed signal // streams or datagrams to accept, space for them at the peer
	work    signal // there is something to send
	peer    *parameters
	closing *frame // CONNECTION_CLOSE to send
	ended   bool   // nothing more is sent or received

	// Sending.
	introduced        bool // the parameters were sent
	offset, maxOffset uint64
	opened            [2]uint64 // streams that we opened, by kind
	maxOpen           [2]uint64
	sending           []*SendStream // with something to send
	sends             map[uint64]*SendStream
	controls          []*ReceiveStream // with STOP_SENDING or MAX_STREAM_DATA to send
	datagrams         [][]byte
	datagramBytes     int

	// Receiving.
	received, read uint64 // bytes of streams
	maxReceive     uint64
	growing        bool      // MAX_DATA is due
	accepted       [2]uint64 // streams that the peer has opened
	maxAccept      [2]uint64 // as announced
	finished       [2]uint64 // of those, completed
	allowing       [2]bool   // MAX_STREAMS is due
	receives       map[uint64]*ReceiveStream
	halves         map[uint64]int // open directions of the peer's bidirectional streams
	newUni         []*ReceiveStream
	newBidi        []*Stream
	when           [3]func() // see WhenStream
	incoming       [][]byte  // datagrams
	incomingBytes  int

	// Pings.
	ticker     *time.Timer
	heard      time.Time
	pinged     time.Time // zero: no ping is unanswered
	ping       uint64    // last sequence number sent
	pingDue    bool
	heardPing  uint64
	pongDue    bool
	rtt        time.Duration
	minRTT     time.Duration
	stats      Stats
	waitsFirst bool // no record was received yet
}

// Stats are a connection's counters.
type Stats struct {
	BytesSent, BytesReceived uint64 // of records
	// RTT is the smoothed round-trip time of pings, including the peer's queues in front of the
	// socket. 0 means unknown.
	RTT, MinRTT time.Duration
	// DatagramsDropped counts received datagrams that were not read in time.
	DatagramsDropped uint64
}

// Kinds of streams, as in the second bit of their IDs.
const (
	bidi = 0
	uni  = 1
)

// Client returns the client's end of a connection over link.
func Client(link Link, cfg Config) *Conn { return newConn(link, cfg, false) }

// Server returns the server's end of a connection over link.
func Server(link Link, cfg Config) *Conn { return newConn(link, cfg, true) }

func newConn(link Link, cfg Config, server bool) *Conn {
	pick := func(v, otherwise uint64) uint64 {
		if v == 0 {
			return otherwise
		}
		return v
	}
	window := pick(cfg.StreamWindow, defaultStreamWindow)
	streams := pick(cfg.Streams, defaultStreams)
	c := &Conn{
		link: link, server: server,
		local: parameters{
			idle: time.Duration(pick(uint64(cfg.Idle), uint64(defaultIdle))), data: pick(cfg.Window, defaultWindow),
			bidiLocal: window, bidiRemote: window, uni: window, streamsBidi: streams, streamsUni: streams,
			datagram: MaxRecord, record: MaxRecord, resetAt: true,
		},
		maxAccept: [2]uint64{streams, streams},
		sends:     map[uint64]*SendStream{}, receives: map[uint64]*ReceiveStream{}, halves: map[uint64]int{},
		heard: time.Now(), waitsFirst: true,
	}
	c.maxReceive = c.local.data
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.mu.Lock()
	c.ticker = time.AfterFunc(pingEvery, c.tick)
	c.mu.Unlock()
	go c.receiveAll()
	go c.sendAll()
	return c
}

// Context returns a context that ends with the connection. Its cause is the connection's error: one
// of quic-go's types, or the link's.
func (c *Conn) Context() context.Context { return c.ctx }

// LocalAddr returns the link's local address.
func (c *Conn) LocalAddr() net.Addr { return c.link.LocalAddr() }

// RemoteAddr returns the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.link.RemoteAddr() }

// Stats returns the current counters.
func (c *Conn) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.stats
	st.RTT, st.MinRTT = c.rtt, c.minRTT
	return st
}

// CloseWithError ends the connection with a code and reason of the application.
func (c *Conn) CloseWithError(code quic.ApplicationErrorCode, reason string) error {
	c.end(&quic.ApplicationError{ErrorCode: code, ErrorMessage: reason}, &frame{
		typ: typeCloseApplication, code: uint64(code), data: []byte(reason[:min(len(reason), maxReason)]),
	})
	return nil
}

// await releases c.mu until changed is closed or the deadline, if not zero, has passed.
func (c *Conn) await(changed <-chan struct{}, deadline time.Time) {
	var late <-chan time.Time
	if !deadline.IsZero() {
		t := time.NewTimer(time.Until(deadline))
		defer t.Stop()
		late = t.C
	}
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-changed:
	case <-late:
	}
}

// fail ends the connection with an error, and reports it to the peer if the peer caused it.
func (c *Conn) fail(err error) {
	var last *frame
	if te := (*quic.TransportError)(nil); errors.As(err, &te) && !te.Remote {
		last = &frame{typ: typeClose, code: uint64(te.ErrorCode), data: []byte(te.ErrorMessage)}
	}
	c.end(err, last)
}

// end ends the connection. last, if not nil, is sent as its last frame.
func (c *Conn) end(err error, last *frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended, c.closing = true, last
	c.ticker.Stop()
	c.cancel(err)
	for _, s := range c.sends {
		s.changed.broadcast()
		s.cancel()
	}
	for _, s := range c.receives {
		s.wake()
	}
	c.sending, c.controls, c.datagrams, c.incoming = nil, nil, nil, nil
	for i := range c.when {
		c.trigger(i)
	}
	c.changed.broadcast()
	c.work.broadcast()
	time.AfterFunc(closeWait, c.link.Abort)
}

// err returns the connection's error. The caller holds c.mu.
func (c *Conn) err() error { return context.Cause(c.ctx) }

// wait waits for a change of s. It returns an error once ctx or the connection has ended. The caller
// holds c.mu.
func (c *Conn) wait(ctx context.Context, s *signal) error {
	if c.ended {
		return c.err()
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	changed := s.wait()
	c.mu.Unlock()
	select {
	case <-changed:
	case <-ctx.Done():
	}
	c.mu.Lock()
	if c.ended {
		return c.err()
	}
	return context.Cause(ctx)
}

// OpenStream opens a bidirectional stream. It waits while the peer allows none.
func (c *Conn) OpenStream(ctx context.Context) (*Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, err := c.openSync(ctx, bidi)
	if err != nil {
		return nil, err
	}
	return &Stream{c.addSend(id, c.peer.bidiRemote), c.addReceive(id, c.local.bidiLocal)}, nil
}

// OpenUniStream opens a unidirectional stream. It returns quic.StreamLimitReachedError while the peer
// allows none.
func (c *Conn) OpenUniStream() (*SendStream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil, c.err()
	}
	id, ok := c.open(uni)
	if !ok {
		return nil, &quic.StreamLimitReachedError{}
	}
	return c.addSend(id, c.peer.uni), nil
}

// OpenUniStreamSync opens a unidirectional stream. It waits while the peer allows none.
func (c *Conn) OpenUniStreamSync(ctx context.Context) (*SendStream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, err := c.openSync(ctx, uni)
	if err != nil {
		return nil, err
	}
	return c.addSend(id, c.peer.uni), nil
}

func (c *Conn) openSync(ctx context.Context, kind uint64) (uint64, error) {
	for {
		if c.ended {
			return 0, c.err()
		}
		if id, ok := c.open(kind); ok {
			return id, nil
		}
		if err := c.wait(ctx, &c.changed); err != nil {
			return 0, err
		}
	}
}

func (c *Conn) open(kind uint64) (id uint64, ok bool) {
	if c.peer == nil || c.opened[kind] >= c.maxOpen[kind] {
		return 0, false
	}
	id = c.opened[kind]<<2 | kind<<1
	if c.server {
		id |= 1
	}
	c.opened[kind]++
	return id, true
}

func (c *Conn) addSend(id, window uint64) *SendStream {
	s := &SendStream{c: c, id: id, max: window, urgency: defaultUrgency}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	c.sends[id] = s
	return s
}

func (c *Conn) addReceive(id, window uint64) *ReceiveStream {
	s := &ReceiveStream{c: c, id: id, window: window, max: window}
	c.receives[id] = s
	return s
}

// AcceptStream returns the peer's next bidirectional stream.
func (c *Conn) AcceptStream(ctx context.Context) (*Stream, error) {
	return accept(ctx, c, &c.newBidi)
}

// AcceptUniStream returns the peer's next unidirectional stream.
func (c *Conn) AcceptUniStream(ctx context.Context) (*ReceiveStream, error) {
	return accept(ctx, c, &c.newUni)
}

func accept[S any](ctx context.Context, c *Conn, queue *[]S) (s S, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(*queue) == 0 {
		if err := c.wait(ctx, &c.changed); err != nil {
			return s, err
		}
	}
	s = (*queue)[0]
	*queue = slices.Delete(*queue, 0, 1)
	return s, nil
}

// SendDatagram queues a datagram. It blocks while the queue is full.
func (c *Conn) SendDatagram(b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.peer == nil || c.datagramBytes >= maxDatagramsOut {
		if err := c.wait(context.Background(), &c.changed); err != nil {
			return err
		}
	}
	if c.ended {
		return c.err()
	}
	// The frame has a type and a length of at most four bytes.
	if most := int64(min(c.peer.datagram, c.peer.record, MaxRecord)) - 5; int64(len(b)) > most {
		return &quic.DatagramTooLargeError{MaxDatagramPayloadSize: max(0, most)}
	}
	c.datagrams = append(c.datagrams, slices.Clone(b))
	c.datagramBytes += len(b)
	c.work.broadcast()
	return nil
}

// ReceiveDatagram returns the next datagram.
func (c *Conn) ReceiveDatagram(ctx context.Context) ([]byte, error) {
	b, err := accept(ctx, c, &c.incoming)
	if err == nil {
		c.mu.Lock()
		c.incomingBytes -= len(b)
		c.mu.Unlock()
	}
	return b, err
}

// Indexes of Conn.when.
const (
	whenStream = iota
	whenUniStream
	whenDatagram
)

// WhenStream calls f on a new goroutine once AcceptStream would not block.
func (c *Conn) WhenStream(f func()) {
	c.notify(whenStream, f, func() bool { return len(c.newBidi) > 0 })
}

// WhenUniStream calls f on a new goroutine once AcceptUniStream would not block.
func (c *Conn) WhenUniStream(f func()) {
	c.notify(whenUniStream, f, func() bool { return len(c.newUni) > 0 })
}

// WhenDatagram calls f on a new goroutine once ReceiveDatagram would not block.
func (c *Conn) WhenDatagram(f func()) {
	c.notify(whenDatagram, f, func() bool { return len(c.incoming) > 0 })
}

func (c *Conn) notify(i int, f func(), now func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.when[i] = f
	if c.ended || now() {
		c.trigger(i)
	}
}

// trigger calls a function of when. The caller holds c.mu.
func (c *Conn) trigger(i int) {
	if f := c.when[i]; f != nil {
		c.when[i] = nil
		go f()
	}
}

// tick pings the peer, and ends the connection if it is silent for too long.
func (c *Conn) tick() {
	c.mu.Lock()
	idle := c.local.idle
	if c.peer != nil && c.peer.idle > 0 {
		idle = min(idle, c.peer.idle)
	}
	silent := time.Since(c.heard)
	if c.ended || silent < idle {
		if !c.ended {
			c.ticker.Reset(min(pingEvery, idle-silent))
			if c.peer != nil && c.pinged.IsZero() {
				c.pingDue = true
				c.work.broadcast()
			}
		}
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.end(&quic.IdleTimeoutError{}, nil)
}

// signal wakes all its waiters. It is guarded by the connection's mu.
type signal struct{ c chan struct{} }

// wait returns a channel that is closed at the next broadcast.
func (s *signal) wait() <-chan struct{} {
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

func (s *signal) broadcast() {
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}
