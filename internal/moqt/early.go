package moqt

import (
	"context"
	"crypto/tls"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"holocast/internal/moqt/wire"
)

// Early data (0-RTT, RFC 9001 §4.6): a client that resumes a session sends SETUP and requests along with
// its first packet. An attacker can replay these packets, so Session.Publish and PublishNamespace wait
// for the handshake at both ends, while requests that only read do not.

// Resumption holds a client's state for resuming a session with one server. Programs must not share it
// between servers, trust settings or client certificates. The zero value is ready to use.
type Resumption struct {
	mu     sync.Mutex
	ticket *tls.ClientSessionState
	host   string // "host:port"
	last   resumed
}

// resumed describes the last session with a host.
type resumed struct {
	addr     netip.AddrPort // that answered
	protocol string         // ALPN
}

// Get implements tls.ClientSessionCache. It hands out a ticket once (RFC 8446 §C.4).
func (r *Resumption) Get(string) (*tls.ClientSessionState, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ticket := r.ticket
	r.ticket = nil
	return ticket, ticket != nil
}

// Put implements tls.ClientSessionCache.
func (r *Resumption) Put(_ string, ticket *tls.ClientSessionState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ticket = ticket
}

// known returns the last session with host, if it can be resumed.
func (r *Resumption) known(host string) (resumed, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last, r.ticket != nil && r.host == host
}

// remember waits for the server's answer and stores which address and protocol of host answered. Without
// an answer in time, it ends the session, which then carried early data.
func (s *Session) remember(r *Resumption, host, rawURL string) {
	qc := s.conn.quic()
	t := time.NewTimer(earlyWait)
	defer t.Stop()
	select {
	case <-qc.HandshakeComplete():
	case <-s.ctx.Done():
		return
	case <-t.C:
		s.fail(UnansweredError("connect to " + rawURL + ": no answer to early data"))
		return
	}
	if addr, err := netip.ParseAddrPort(qc.RemoteAddr().String()); err == nil {
		r.mu.Lock()
		r.host, r.last = host, resumed{addr, qc.ConnectionState().TLS.NegotiatedProtocol}
		r.mu.Unlock()
	}
	t.Reset(s.wait.setup)
	select {
	case <-s.setupDone:
	case <-s.ctx.Done():
	case <-t.C:
		s.fail(&wire.Error{Code: wire.ControlMessageTimeout, Msg: "no SETUP from the peer"})
	}
}

// earlyWait bounds how long a session with early data may last without an answer from the server.
const earlyWait = 2 * time.Second

// earlyConn is a client's connection before its handshake completes. If the server rejects the early
// data, it sends them again after the handshake.
type earlyConn struct {
	quicConn
	ready chan struct{} // closed when the connection is as usual

	mu      sync.Mutex
	streams []*earlyStream // in order of opening
	over    bool           // no longer early
}

// newEarlyConn returns the connection, or a quicConn if its handshake is complete.
func newEarlyConn(qc *quic.Conn) conn {
	select {
	case <-qc.HandshakeComplete():
		return quicConn{qc}
	default:
	}
	c := &earlyConn{quicConn: quicConn{qc}, ready: make(chan struct{})}
	go c.settle()
	return c
}

// settle waits for the handshake, after which the connection is as usual.
func (c *earlyConn) settle() {
	defer close(c.ready)
	select {
	case <-c.c.HandshakeComplete():
	case <-c.c.Context().Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	rejected := c.c.Context().Err() == nil && !c.c.ConnectionState().Used0RTT
	if rejected {
		_, _ = c.c.NextConnection(c.c.Context()) // the handshake is complete
	}
	for _, s := range c.streams {
		s.settle(rejected)
	}
	c.streams = nil
}

// early opens a stream that may carry early data, or returns nil if only the usual way is left.
func (c *earlyConn) early(open func() (halves, error)) *earlyStream {
	c.mu.Lock()
	if !c.over {
		if h, err := open(); err == nil {
			s := &earlyStream{c: c, open: open, halves: h, early: true}
			c.streams = append(c.streams, s)
			c.mu.Unlock()
			return s
		}
	}
	c.mu.Unlock()
	<-c.ready
	return nil
}

func (c *earlyConn) openStream(ctx context.Context) (stream, error) {
	s := c.early(func() (h halves, err error) {
		s, err := c.c.OpenStream()
		return halves{quicStream{s}, quicStream{s}}, err
	})
	if s != nil {
		return s, nil
	}
	return c.quicConn.openStream(ctx)
}

func (c *earlyConn) openUniSync(ctx context.Context) (sendStream, error) {
	s := c.early(func() (h halves, err error) {
		s, err := c.c.OpenUniStream()
		return halves{send: quicSend{s}}, err
	})
	if s != nil {
		return s, nil
	}
	return c.quicConn.openUniSync(ctx)
}

func (c *earlyConn) openUni() (uniStream, error) {
	<-c.ready
	return c.quicConn.openUni()
}

func (c *earlyConn) acceptStream(ctx context.Context) (stream, error) {
	<-c.ready
	return c.quicConn.acceptStream(ctx)
}

func (c *earlyConn) acceptUni(ctx context.Context) (receiveStream, error) {
	<-c.ready
	return c.quicConn.acceptUni(ctx)
}

func (c *earlyConn) sendDatagram(b []byte) error {
	<-c.ready
	return c.quicConn.sendDatagram(b)
}

func (c *earlyConn) notifier() notifier { return earlyNotifier{c} }

// earlyNotifier registers functions once the connection is as usual, because a rejection replaces the
// queues that it would watch.
type earlyNotifier struct{ c *earlyConn }

func (n earlyNotifier) when(register func(notifier)) {
	go func() {
		<-n.c.ready
		register(n.c.quicConn.notifier())
	}()
}

func (n earlyNotifier) WhenStream(f func())    { n.when(func(to notifier) { to.WhenStream(f) }) }
func (n earlyNotifier) WhenUniStream(f func()) { n.when(func(to notifier) { to.WhenUniStream(f) }) }
func (n earlyNotifier) WhenDatagram(f func())  { n.when(func(to notifier) { to.WhenDatagram(f) }) }

// halves are the directions of a stream; receive is nil in a unidirectional one.
type halves struct {
	send    sendStream
	receive receiveStream
}

// earlyStream is a stream opened before the handshake completes. It keeps written data until the server
// has accepted them.
type earlyStream struct {
	c    *earlyConn
	open func() (halves, error)

	mu sync.Mutex
	halves
	early    bool
	written  []byte
	priority *priority
	closed   bool
	stopped  bool // reset or stopped: not worth sending again
}

// settle ends the early phase. If the early data were rejected, it opens the stream again.
func (s *earlyStream) settle(rejected bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.early = false
	if !rejected || s.stopped {
		s.written = nil
		return
	}
	next, err := s.open()
	if err != nil {
		return // reads and writes fail
	}
	s.halves = next
	if s.priority != nil {
		s.send.setPriority(*s.priority)
	}
	_, _ = s.send.Write(s.written) // later writes report errors
	s.written = nil
	if s.closed {
		_ = s.send.Close()
	}
}

// Write implements io.Writer.
func (s *earlyStream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.send.Write(p)
	if !s.early {
		return n, err
	}
	if err == nil || errors.Is(err, quic.Err0RTTRejected) { // settle sends it again
		s.written = slices.Concat(s.written, p)
		return len(p), nil
	}
	return n, err
}

// Read implements io.Reader.
func (s *earlyStream) Read(p []byte) (int, error) { return s.settled().receive.Read(p) }

// settled returns the stream as it is after the handshake.
func (s *earlyStream) settled() halves {
	<-s.c.ready
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.halves
}

func (s *earlyStream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.send.Close()
}

func (s *earlyStream) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.send.SetWriteDeadline(t)
}

func (s *earlyStream) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.receive.SetReadDeadline(t)
}

// Context returns the context of the stream that is used after the handshake.
func (s *earlyStream) Context() context.Context { return s.settled().send.Context() }

func (s *earlyStream) reset(code wire.StreamCode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.send.reset(code)
}

func (s *earlyStream) stop(code wire.StreamCode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.receive.stop(code)
}

func (s *earlyStream) setPriority(p priority) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.priority = &p
	s.send.setPriority(p)
}

func (s *earlyStream) whenReadable(f func()) bool {
	go func() {
		if !s.settled().receive.whenReadable(f) {
			f()
		}
	}()
	return true
}

// established waits until the handshake is complete, which rules out a replay.
func (s *Session) established(ctx context.Context) error {
	qc := s.conn.quic()
	if qc == nil {
		return nil
	}
	select {
	case <-qc.HandshakeComplete():
		return nil
	default:
	}
	select {
	case <-qc.HandshakeComplete():
		return nil
	case <-s.ctx.Done():
		return s.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// UsedEarlyData reports whether the session carried early data that the server accepted. On the client it
// is false until the handshake is complete.
func (s *Session) UsedEarlyData() bool {
	qc := s.conn.quic()
	return qc != nil && qc.ConnectionState().Used0RTT
}

// replayable reports whether a request may be answered before the handshake completes: it changes
// nothing at the receiver that outlasts the session.
func replayable(m wire.Message) bool {
	switch m.(type) {
	case *wire.Subscribe, *wire.Fetch, *wire.TrackStatus, *wire.SubscribeNamespace, *wire.SubscribeTracks:
		return true
	}
	return false
}
