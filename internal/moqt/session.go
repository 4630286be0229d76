package moqt

import (
	"bufio"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlogwriter"

	"holocast/internal/congestion"
	"holocast/internal/gopool"
	"holocast/internal/moqt/wire"
)

// Limits of the state that a session keeps for its peer.
const (
	maxSubgroupQueue   = 64   // unaccepted subgroups per subscription
	maxDatagramQueue   = 1024 // unread datagrams per subscription
	maxOrphanStreams   = 256  // subgroups with an unknown alias
	maxOrphanDatagrams = 256  // datagrams with an unknown alias
	maxRetiredAliases  = 1024 // remembered aliases of ended subscriptions
	maxUpdates         = 64   // unanswered REQUEST_UPDATEs per request
	maxRequestGaps     = 4096 // ranges of unseen request IDs
	maxFills           = 16   // concurrent fills of one subscription
	maxText            = 256  // bytes of a close reason, which must fit a packet, or of a peer's text in the log
)

// waits holds a session's timeouts for its peer and its user.
type waits struct {
	setup   time.Duration // for the peer's SETUP
	header  time.Duration // for a stream's header after the stream was opened
	request time.Duration // for the response to a request
	send    time.Duration // for the peer to take a message
	orphan  time.Duration // for the alias of an early object
	done    time.Duration // for streams still in flight at PUBLISH_DONE
	cancel  time.Duration // for the cancellation of an earlier request that a new one replaces
	join    time.Duration // for the SUBSCRIBE of an early joining FETCH
	accept  time.Duration // for a subgroup to be accepted
	fetch   time.Duration // for the peer to receive a fetched object
}

func defaultWaits() waits {
	return waits{
		setup: 10 * time.Second, header: 10 * time.Second, request: 10 * time.Second, send: 10 * time.Second,
		orphan: 2 * time.Second, done: 2 * time.Second, cancel: 250 * time.Millisecond,
		join: 5 * time.Second, accept: 5 * time.Second, fetch: 30 * time.Second,
	}
}

// Config holds the settings common to clients and servers.
type Config struct {
	// Tokens are sent in SETUP to authorize the session (§10.3.1.4).
	Tokens []wire.Token
	// MaxAuthTokenCacheSize is the total size in bytes of the token aliases that the peer may
	// register. 0 forbids aliases (§10.3.1.3).
	MaxAuthTokenCacheSize uint64
	// Congestion names the congestion controller (quiccc.Controllers). "" means the default.
	Congestion string
	// Trace, if set, returns the qlog trace of a new connection.
	Trace func(ctx context.Context, client bool, id quic.ConnectionID) qlogwriter.Trace
	// Log receives session events at debug level and failures at warn level; nil means
	// slog.Default.
	Log *slog.Logger
	// Packets, if set, replaces the UDP socket, for example by an emulated network. The session
	// does not close it. Only one client or server may use it at a time.
	Packets net.PacketConn
	// Paths, if there are several, are the client's paths to the server, over raw QUIC. The session
	// lasts as long as one of them works. If the server does not support multipath sessions, the
	// first path that connects is used. A single path only selects the socket.
	Paths []Path

	// Versions are the supported drafts in order of preference. nil means wire.Versions. The
	// server's preference decides over raw QUIC, the client's over WebTransport.
	Versions []wire.Version
	// Resume, if set, lets a client resume its last session with this server over raw QUIC.
	Resume *Resumption
	// Early lets Dial return as soon as the session can carry early data, before the server answers. If
	// the server does not answer, the session ends with an UnansweredError. It needs Resume, an earlier
	// session and a server that allows early data; otherwise Dial waits as usual.
	Early bool
	// Opener, if set, decrypts the objects that subscriptions and fetches receive.
	Opener Opener

	waits   *waits // timeouts in tests
	streams int64  // limit of peer-initiated streams per kind; 0 is the default
}

func (c Config) versions() []wire.Version {
	if c.Versions != nil {
		return c.Versions
	}
	return wire.Versions()
}

func (c Config) wait() waits {
	if c.waits != nil {
		return *c.waits
	}
	return defaultWaits()
}

// Handler answers incoming requests. A request whose function is nil is rejected with NOT_SUPPORTED.
// Each call runs on its own goroutine and must accept or reject its request. If it returns without
// doing so, the request is rejected.
type Handler struct {
	Subscribe          func(*SubscribeRequest)
	TrackStatus        func(*TrackStatusRequest)
	Fetch              func(*FetchRequest)
	Publish            func(*PublishRequest)
	PublishNamespace   func(*NamespaceRequest)
	SubscribeNamespace func(*DiscoveryRequest)
	SubscribeTracks    func(*DiscoveryRequest)
	// Goaway is called when the peer sends GOAWAY (§3.6).
	Goaway func(newSessionURI string, timeout time.Duration)
}

// Stats are a session's counters. They include everything that the session drops or resets.
type Stats struct {
	SubgroupsUnknown uint64 // subgroups dropped because their alias stayed unknown
	SubgroupsRefused uint64 // subgroups refused because they were not accepted in time
	DatagramsUnknown uint64 // datagrams dropped because their alias stayed unknown
	DatagramsRefused uint64 // datagrams dropped because they were not read in time
	DatagramsUnsent  uint64 // datagrams dropped in the send queue
	DeliveryTimeouts uint64 // subgroups and fetches reset because they missed their deadline
	StreamsBlocked   uint64 // subgroups not sent at the peer's stream limit
	RTT, MinRTT      time.Duration
	BytesSent        uint64 // UDP payload of the connection; over TCP, QMux records
	BytesReceived    uint64
	PacketsLost      uint64 // over TCP, retransmitted
	CongestionWindow uint64 // bytes
	// Path holds the congestion controller's estimates. Where they are unknown, as with the published
	// quic-go, its Controller is "".
	Path congestion.Estimates
}

type counters struct {
	subgroupsUnknown, subgroupsRefused, datagramsUnknown, datagramsRefused,
	datagramsUnsent, deliveryTimeouts, streamsBlocked atomic.Uint64
}

// Session is one MOQT session. Its methods are safe for concurrent use.
type Session struct {
	conn    conn
	version wire.Version
	client  bool
	local   *wire.Setup
	log     *slog.Logger
	wait    waits
	opener  Opener // may be nil
	count   counters

	ctx       context.Context // cancelled when the session ends
	cancel    context.CancelCauseFunc
	closeOnce sync.Once

	path      string      // from the URL of a WebTransport session or WebSocket
	peer      *wire.Setup // the peer's SETUP, valid once setupDone is closed
	setupDone chan struct{}
	serving   chan struct{} // closed by Serve
	handler   Handler

	sendq    *datagramQueue
	sendOnce sync.Once     // starts sendDatagrams
	nextSlot atomic.Uint64 // next position in the order of object streams

	controlMu  sync.Mutex
	control    sendStream
	goawaySent bool

	mu               sync.Mutex
	changed          chan struct{}     // closed and replaced when an alias or request appears
	nextRequest      uint64            // our next request ID
	requests         requestIDs        // the peer's request IDs
	firstAlias       uint64            // first alias that takeAlias chooses
	nextAlias        uint64            // next alias that takeAlias chooses
	preferredAliases map[uint64]string // tracks of preferred aliases in use
	goawayReceived   bool
	tokens           tokenCache
	subscriptions    map[uint64]*Subscription // by alias
	retired          map[uint64]struct{}      // aliases of ended subscriptions
	retiredOrder     []uint64
	orphans          []orphanDatagram
	orphanStreams    int
	receiving        map[string]*role              // tracks that we subscribe to
	sending          map[string]*role              // tracks that we publish
	additionalRoles  uint64                        // numbers additional roles of one track
	joinable         map[uint64]*Publication       // by the peer's request ID; nil while pending
	fetches          map[uint64]func(*FetchReader) // take the streams of our fetches and fills, by request ID
	openRequests     int
	discoveries      []*DiscoveryRequest           // of the peer, with prefixes that must not overlap
	unacked          map[*SubgroupWriter]time.Time // finished but unacknowledged streams, with their deadlines
	sweeper          *time.Timer                   // for unacked; nil while it is empty
	sweepAt          time.Time                     // when sweeper fires
}

type orphanDatagram struct {
	d    *wire.Datagram
	seen time.Time
}

// role is our part in a subscription to a track: publisher or subscriber. There is one of each per
// track (§5.1), or from draft-19 on several publisher roles.
type role struct {
	track string
	// yield cancels our unanswered SUBSCRIBE in favour of the peer's PUBLISH (§5.1). It is nil once
	// the SUBSCRIBE was answered. Guarded by the session's mu.
	yield func()
}

// newSession exchanges SETUP over c. Incoming requests wait until Serve is called.
func newSession(
	ctx context.Context,
	c conn,
	v wire.Version,
	client bool,
	local *wire.Setup,
	cfg Config,
) (*Session, error) {
	s := &Session{
		conn: c, version: v, client: client, local: local, log: cmp.Or(cfg.Log, slog.Default()), wait: cfg.wait(),
		opener:    cfg.Opener,
		setupDone: make(chan struct{}), serving: make(chan struct{}), changed: make(chan struct{}),
		sendq:         newDatagramQueue(),
		subscriptions: map[uint64]*Subscription{}, retired: map[uint64]struct{}{},
		receiving: map[string]*role{}, sending: map[string]*role{}, preferredAliases: map[uint64]string{},
		joinable: map[uint64]*Publication{}, unacked: map[*SubgroupWriter]time.Time{},
		fetches: map[uint64]func(*FetchReader){},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	local.AuthorizationTokens = cfg.Tokens
	local.MaxAuthTokenCacheSize = cfg.MaxAuthTokenCacheSize
	s.tokens.limit = cfg.MaxAuthTokenCacheSize
	if !client {
		s.nextRequest = 1
		s.firstAlias, s.nextAlias = serverAliases, serverAliases
	}
	s.requests.parity = 1 - s.nextRequest
	s.requests.next = s.requests.parity

	context.AfterFunc(c.context(), func() { s.fail(c.ended()) })
	// Start goroutines only when needed, to save their stacks.
	on := s.conn.notifier()
	on.WhenUniStream(s.acceptFirstUniStream)
	on.WhenStream(s.acceptStreams)
	on.WhenDatagram(s.receiveDatagrams)

	if err := s.openControl(ctx); err != nil {
		s.fail(err)
		return nil, err
	}
	if _, early := c.(*earlyConn); early {
		return s, nil
	}
	select {
	case <-s.setupDone:
		return s, nil
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	case <-ctx.Done():
		err := ctx.Err()
		if errors.Is(err, context.DeadlineExceeded) {
			err = &wire.Error{Code: wire.ControlMessageTimeout, Msg: "no SETUP from the peer"}
		}
		s.fail(err)
		return nil, err
	}
}

func (s *Session) openControl(ctx context.Context) error {
	str, err := s.conn.openUniSync(ctx)
	if err != nil {
		return err
	}
	str.setPriority(controlPriority)
	s.controlMu.Lock()
	defer s.controlMu.Unlock()
	s.control = str
	b, err := s.version.AppendMessage(nil, s.local)
	if err != nil {
		return err
	}
	_, err = str.Write(b)
	return sessionError(err)
}

// Serve starts answering the peer's requests. Call it once. Do not call it on a session from Dial,
// which already serves.
func (s *Session) Serve(h Handler) {
	s.handler = h
	close(s.serving)
}

// Context returns a context that is cancelled when the session ends. Its cause is the session's
// error.
func (s *Session) Context() context.Context { return s.ctx }

// Err returns the reason the session ended, or nil while it is open.
func (s *Session) Err() error { return context.Cause(s.ctx) }

// Version returns the negotiated draft.
func (s *Session) Version() wire.Version { return s.version }

// Path returns the path and query that the client requested, or "".
func (s *Session) Path() string { return cmp.Or(s.path, s.peerSetup().Path) }

// Implementation returns the peer's name for its implementation, or "" if the session ended before
// SETUP.
func (s *Session) Implementation() string { return s.peerSetup().Implementation }

// peerSetup waits for the peer's SETUP, which early data precede. It returns an empty one if the session
// ends first.
func (s *Session) peerSetup() *wire.Setup {
	select {
	case <-s.setupDone:
		return s.peer
	default:
	}
	select {
	case <-s.setupDone:
		return s.peer
	case <-s.ctx.Done():
		return &wire.Setup{}
	}
}

// SetupTokens returns the tokens in the peer's SETUP.
func (s *Session) SetupTokens() []wire.Token { return s.peerSetup().AuthorizationTokens }

// PeerCertificates returns the client's certificate chain as sent, leaf first. The chain is empty
// if the client sent none. ListenConfig.TLS decides whether it is verified.
func (s *Session) PeerCertificates() []*x509.Certificate {
	return s.conn.certificates()
}

// RemoteAddr returns the peer's network address.
func (s *Session) RemoteAddr() net.Addr { return s.conn.remoteAddr() }

// Transport returns the session's transport.
func (s *Session) Transport() Transport { return s.conn.transport() }

// RTT returns the smoothed round-trip time of the connection.
func (s *Session) RTT() time.Duration {
	var st Stats
	s.conn.measure(&st)
	return st.RTT
}

// Publishing returns the number of the peer's subscriptions to our tracks, including pending ones.
func (s *Session) Publishing() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sending)
}

// Stats returns the session's current counters.
func (s *Session) Stats() Stats {
	st := Stats{
		SubgroupsUnknown: s.count.subgroupsUnknown.Load(),
		SubgroupsRefused: s.count.subgroupsRefused.Load(),
		DatagramsUnknown: s.count.datagramsUnknown.Load(),
		DatagramsRefused: s.count.datagramsRefused.Load(),
		DatagramsUnsent:  s.count.datagramsUnsent.Load(),
		DeliveryTimeouts: s.count.deliveryTimeouts.Load(),
		StreamsBlocked:   s.count.streamsBlocked.Load(),
	}
	s.conn.measure(&st)
	return st
}

// Close ends the session. Blocked calls return its error.
func (s *Session) Close(code wire.SessionCode, reason string) {
	s.shutdown(&SessionError{Code: code, Reason: reason}, code, reason)
}

// fail ends the session because of err, with the code of err.
func (s *Session) fail(err error) {
	if s.ctx.Err() != nil {
		return
	}
	var remote *SessionError
	if errors.As(err, &remote) && remote.Remote {
		s.shutdown(err, wire.NoError, "")
		return
	}
	code, reason := closeCode(err)
	var w *wire.Error
	if errors.As(err, &w) {
		s.log.Warn("moqt session closed", "code", code.String(), "reason", truncate(reason), "peer", s.RemoteAddr())
		err = &SessionError{Code: code, Reason: reason}
	}
	s.shutdown(err, code, reason)
}

func (s *Session) shutdown(err error, code wire.SessionCode, reason string) {
	s.closeOnce.Do(func() {
		s.cancel(err)
		s.mu.Lock()
		if s.sweeper != nil {
			s.sweeper.Stop()
		}
		clear(s.unacked)
		s.mu.Unlock()
		s.conn.close(code, truncate(reason))
	})
}

// truncate cuts s to at most maxText bytes, between runes.
func truncate(s string) string {
	n := maxText
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Goaway asks the peer to move to uri, or to reconnect if uri is empty. It closes the session after
// timeout or when ctx is done, unless the peer closes it first. It returns when the session is
// closed, or with an error if GOAWAY cannot be sent. Only a server may pass a URI.
func (s *Session) Goaway(ctx context.Context, uri string, timeout time.Duration) error {
	s.mu.Lock()
	next := s.requests.firstUnseen()
	s.mu.Unlock()
	s.controlMu.Lock()
	if !s.goawaySent {
		s.goawaySent = true
		g := &wire.Goaway{NewSessionURI: uri, Timeout: uint64(timeout.Milliseconds())}
		if s.version < wire.Draft19 {
			g.RequestID = &next
		}
		b, err := s.version.AppendMessage(nil, g)
		if err == nil {
			_ = s.control.SetWriteDeadline(time.Now().Add(s.wait.send))
			_, err = s.control.Write(b)
		}
		if err != nil {
			s.controlMu.Unlock()
			return sessionError(err)
		}
	}
	s.controlMu.Unlock()
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-s.ctx.Done():
		return nil
	case <-ctx.Done():
	case <-t.C:
	}
	s.mu.Lock()
	open := s.openRequests
	s.mu.Unlock()
	if open > 0 {
		s.Close(wire.GoawayTimeout, "the peer took too long to leave")
	} else {
		s.Close(wire.NoError, "going away")
	}
	return nil
}

// notify wakes all waitFor calls. s.mu is held.
func (s *Session) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// waitFor calls find under s.mu after every change until it returns true, the timeout expires, ctx
// is done or the session ends.
func (s *Session) waitFor(ctx context.Context, timeout time.Duration, find func() bool) bool {
	t := time.NewTimer(timeout)
	defer t.Stop()
	for {
		s.mu.Lock()
		ok, changed := find(), s.changed
		s.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-t.C:
			return false
		case <-ctx.Done():
			return false
		case <-s.ctx.Done():
			return false
		}
	}
}

// Incoming streams.

// acceptFirstUniStream accepts the first stream, usually the control stream, and starts accepting
// the others once one arrives. The first stream's reader needs a large stack, so its goroutine is
// not reused.
func (s *Session) acceptFirstUniStream() {
	if s.acceptUniStream(func(f func()) { go f() }) {
		s.conn.notifier().WhenUniStream(s.acceptUniStreams)
	}
}

func (s *Session) acceptUniStreams() {
	readers := gopool.New()
	defer readers.Close()
	for s.acceptUniStream(readers.Go) {
	}
}

// acceptUniStream accepts a stream and reads it in run. It returns false once the session has
// ended.
func (s *Session) acceptUniStream(run func(f func())) bool {
	str, err := s.conn.acceptUni(s.ctx)
	if err != nil {
		return false // the cause is in the transport's context
	}
	done, ok := s.takeStream()
	if ok {
		run(func() { s.handleUni(countedStream{str, done}) })
	} else {
		str.stop(wire.StreamExcessiveLoad)
	}
	s.paceStreams(false)
	return true
}

func (s *Session) handleUni(str receiveStream) {
	br := bufio.NewReaderSize(str, 512)
	_ = str.SetReadDeadline(time.Now().Add(s.wait.header))
	h, err := wire.ReadStreamHeader(br)
	if err != nil {
		s.badStream(err)
		str.stop(wire.StreamInternalError)
		return
	}
	_ = str.SetReadDeadline(time.Time{})
	if setup, ok := h.(*wire.Setup); ok {
		s.handleControl(setup, str, br)
		return
	}
	select {
	case <-s.setupDone:
	case <-s.ctx.Done():
		return
	}
	switch h := h.(type) {
	case wire.Padding:
		_, _ = io.Copy(io.Discard, br)
	case wire.SubgroupHeader:
		s.deliverSubgroup(h, str, br)
	case wire.FetchHeader:
		s.deliverFetch(h, str, br)
	}
}

// badStream closes the session if a stream violates the wire format. A stream that was reset or cut
// off does not affect the session.
func (s *Session) badStream(err error) {
	var w *wire.Error
	if errors.As(err, &w) {
		s.fail(err)
	}
}

func (s *Session) handleControl(setup *wire.Setup, str receiveStream, br *bufio.Reader) {
	if err := s.checkSetup(setup); err != nil {
		s.fail(err)
		return
	}
	close(s.setupDone)
	read := func() { s.readControl(bufio.NewReaderSize(str, 512)) }
	if br.Buffered() > 0 || !str.whenReadable(read) {
		s.readControl(br)
	}
}

// readControl reads the control stream. Most peers send nothing after SETUP, so it runs only once
// data arrives, if the transport supports that.
func (s *Session) readControl(br *bufio.Reader) {
	for {
		m, err := s.version.ReadMessage(br)
		switch {
		case s.ctx.Err() != nil:
			return
		case err != nil:
			var w *wire.Error
			if !errors.As(err, &w) {
				s.awaitClose()
				err = streamErrorAsViolation(err)
			}
			s.fail(err)
			return
		}
		g, ok := m.(*wire.Goaway)
		if !ok {
			s.fail(protocolViolation("%s on the control stream", m.Type()))
			return
		}
		if err := s.handleGoaway(g); err != nil {
			s.fail(err)
			return
		}
	}
}

// awaitClose gives a peer that ended its control stream time to close the connection. Many peers
// end their streams one by one when they leave. Closing immediately would lose their last data.
func (s *Session) awaitClose() {
	t := time.NewTimer(closeWait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ctx.Done():
	}
}

// streamErrorAsViolation converts the end of the control stream to a violation (§3.3).
func streamErrorAsViolation(err error) error {
	err = streamError(err)
	if e := (*StreamError)(nil); errors.As(err, &e) || err == io.EOF || err == io.ErrUnexpectedEOF {
		return protocolViolation("the peer closed its control stream")
	}
	return err
}

func (s *Session) checkSetup(m *wire.Setup) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peer != nil {
		return protocolViolation("a second SETUP")
	}
	s.peer = m
	notAllowed := s.client || s.Transport() != QUIC // the others have a URL
	switch {
	case m.HasPath && notAllowed:
		return &wire.Error{Code: wire.InvalidPath, Msg: "PATH is for clients over raw QUIC"}
	case m.HasAuthority && notAllowed:
		return &wire.Error{Code: wire.InvalidAuthority, Msg: "AUTHORITY is for clients over raw QUIC"}
	}
	if m.HasPath && m.Path != "" { // path-abempty
		if _, err := url.ParseRequestURI(m.Path); err != nil || m.Path[0] != '/' {
			return &wire.Error{Code: wire.MalformedPath, Msg: "PATH is not the path of a URI"}
		}
	}
	if m.HasAuthority {
		if u, err := url.Parse("moqt://" + m.Authority); err != nil || u.Host != m.Authority {
			return &wire.Error{Code: wire.MalformedAuthority, Msg: "AUTHORITY is not the authority of a URI"}
		}
	}
	return s.tokens.registerSetup(m)
}

func (s *Session) handleGoaway(g *wire.Goaway) error {
	s.mu.Lock()
	again := s.goawayReceived
	s.goawayReceived = true
	own := s.nextRequest & 1
	s.mu.Unlock()
	switch {
	case again:
		return protocolViolation("a second GOAWAY")
	case !s.client && g.NewSessionURI != "":
		return protocolViolation("GOAWAY from a client names a URI")
	case s.version >= wire.Draft19: // has no request ID
	case g.RequestID == nil:
		return protocolViolation("GOAWAY on the control stream without a request ID")
	case *g.RequestID&1 != own:
		return &wire.Error{Code: wire.InvalidRequestID, Msg: "GOAWAY names a request ID of the wrong parity"}
	}
	s.log.Debug("moqt goaway received", "uri", truncate(g.NewSessionURI), "timeout_ms", g.Timeout)
	go func() {
		select {
		case <-s.serving:
		case <-s.ctx.Done():
			return
		}
		if s.handler.Goaway != nil {
			s.handler.Goaway(g.NewSessionURI, time.Duration(g.Timeout)*time.Millisecond)
		}
	}()
	return nil
}

// Datagrams.

func (s *Session) receiveDatagrams() {
	for {
		b, err := s.conn.receiveDatagram(s.ctx)
		if err != nil {
			return
		}
		d, err := wire.ParseDatagram(b)
		switch {
		case errors.Is(err, wire.ErrMalformedTrack):
			s.mu.Lock()
			sub := s.subscriptions[d.TrackAlias]
			s.mu.Unlock()
			if sub != nil {
				sub.end(err)
			}
		case err != nil:
			s.fail(err)
			return
		case d != nil:
			s.deliverDatagram(d)
		}
	}
}

func (s *Session) deliverDatagram(d *wire.Datagram) {
	s.mu.Lock()
	sub, ok := s.subscriptions[d.TrackAlias]
	if !ok {
		_, gone := s.retired[d.TrackAlias]
		now := time.Now()
		for len(s.orphans) > 0 && now.Sub(s.orphans[0].seen) > s.wait.orphan {
			s.orphans = s.orphans[1:]
			s.count.datagramsUnknown.Add(1)
		}
		switch {
		case gone:
		case len(s.orphans) < maxOrphanDatagrams:
			s.orphans = append(s.orphans, orphanDatagram{d, now})
		default:
			s.count.datagramsUnknown.Add(1)
		}
	}
	s.mu.Unlock()
	if ok {
		sub.deliverDatagram(d)
	}
}

// DatagramsPending reports whether datagrams wait for the transport.
func (s *Session) DatagramsPending() bool { return s.sendq.pending() }

// sendDatagrams passes queued datagrams to the transport at the rate of its congestion control, and
// drops datagrams past their deadline.
func (s *Session) sendDatagrams() {
	for {
		d, group := s.sendq.pop()
		if group == nil {
			select {
			case <-s.sendq.ready:
				continue
			case <-s.ctx.Done():
				return
			}
		}
		if now := time.Now(); !d.deadline.IsZero() && now.After(d.deadline) {
			s.count.datagramsUnsent.Add(1 + uint64(s.sendq.late(group, now)))
			continue
		}
		if err := s.conn.sendDatagram(d.b); err != nil {
			s.count.datagramsUnsent.Add(1)
			if !errors.Is(err, ErrDatagramTooLarge) {
				return
			}
		}
	}
}

// Roles.

// acquireRole takes a role on a track. It returns nil if the role is taken.
func (s *Session) acquireRole(in map[string]*role, track TrackName) *role {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acquireRoleLocked(in, track)
}

func (s *Session) acquireRoleLocked(in map[string]*role, track TrackName) *role {
	r := &role{track: track.String()}
	if in[r.track] != nil {
		return nil
	}
	in[r.track] = r
	return r
}

// acquirePublisherRole takes the publisher role for an incoming SUBSCRIBE. From draft-19 on, the
// peer may have several subscriptions to a track (§5.1); sole reports whether this is the only one.
func (s *Session) acquirePublisherRole(track TrackName) (r *role, sole bool) {
	if s.version < wire.Draft19 {
		return s.waitForRole(s.sending, track), true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r = s.acquireRoleLocked(s.sending, track); r != nil {
		return r, true
	}
	s.additionalRoles++
	r = &role{track: fmt.Sprintf("%s %d", track.String(), s.additionalRoles)}
	s.sending[r.track] = r
	return r, false
}

// waitForRole waits briefly for a role. A request may arrive before the cancellation of the request
// it replaces, because they use different streams.
func (s *Session) waitForRole(in map[string]*role, track TrackName) (r *role) {
	s.waitFor(s.ctx, s.wait.cancel, func() bool {
		r = s.acquireRoleLocked(in, track)
		return r != nil
	})
	return r
}

// acquireSubscriberRole takes the subscriber role for an incoming PUBLISH. If our own SUBSCRIBE is
// unanswered, it returns that request's role as pending.
func (s *Session) acquireSubscriberRole(track TrackName) (r, pending *role) {
	s.waitFor(s.ctx, s.wait.cancel, func() bool {
		if r = s.acquireRoleLocked(s.receiving, track); r != nil {
			return true
		}
		if taken := s.receiving[track.String()]; taken.yield != nil {
			pending = taken
		}
		return pending != nil
	})
	return r, pending
}

// takeOver cancels our unanswered SUBSCRIBE, which holds pending, and returns the role for the
// PUBLISH. It returns nil if the SUBSCRIBE was answered meanwhile.
func (s *Session) takeOver(pending *role) *role {
	s.mu.Lock()
	taken := s.receiving[pending.track]
	if taken != nil && (taken != pending || pending.yield == nil) {
		s.mu.Unlock()
		return nil
	}
	r := &role{track: pending.track}
	s.receiving[r.track] = r
	yield := pending.yield
	pending.yield = nil
	s.mu.Unlock()
	if yield != nil {
		yield()
	}
	return r
}

// keepRole makes a role final. It returns false if a PUBLISH took it over.
func (s *Session) keepRole(r *role) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.yield = nil
	return s.receiving[r.track] == r
}

// releaseRole releases a role. It may be called repeatedly.
func (s *Session) releaseRole(in map[string]*role, r *role) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in[r.track] == r {
		delete(in, r.track)
		s.notify()
	}
}

// Aliases of received tracks.

// register adds sub under its alias and delivers the datagrams that arrived earlier.
func (s *Session) register(sub *Subscription) error {
	s.mu.Lock()
	if old, ok := s.subscriptions[sub.alias]; ok && !old.track.Equal(sub.track) {
		s.mu.Unlock()
		return &wire.Error{Code: wire.DuplicateTrackAlias, Msg: "track alias is in use by " + old.track.String()}
	}
	s.subscriptions[sub.alias] = sub
	delete(s.retired, sub.alias)
	var mine []*wire.Datagram
	rest := s.orphans[:0]
	for _, o := range s.orphans {
		if o.d.TrackAlias == sub.alias {
			mine = append(mine, o.d)
		} else {
			rest = append(rest, o)
		}
	}
	clear(s.orphans[len(rest):])
	s.orphans = rest
	s.notify()
	s.mu.Unlock()
	for _, d := range mine {
		sub.deliverDatagram(d)
	}
	return nil
}

// unregister removes sub. Objects in flight to it are discarded.
func (s *Session) unregister(sub *Subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.receiving[sub.role.track] == sub.role {
		delete(s.receiving, sub.role.track)
		s.notify()
	}
	if s.subscriptions[sub.alias] != sub {
		return
	}
	delete(s.subscriptions, sub.alias)
	s.retired[sub.alias] = struct{}{}
	s.retiredOrder = append(s.retiredOrder, sub.alias)
	for len(s.retiredOrder) > maxRetiredAliases {
		delete(s.retired, s.retiredOrder[0])
		s.retiredOrder = s.retiredOrder[1:]
	}
}

func (s *Session) deliverSubgroup(h wire.SubgroupHeader, str receiveStream, br *bufio.Reader) {
	var sub *Subscription
	find := func() bool {
		_, gone := s.retired[h.TrackAlias]
		sub = s.subscriptions[h.TrackAlias]
		return sub != nil || gone
	}
	s.mu.Lock()
	known := find()
	hold := !known && s.orphanStreams < maxOrphanStreams
	if hold {
		s.orphanStreams++
	}
	s.mu.Unlock()
	if hold {
		s.waitFor(s.ctx, s.wait.orphan, find)
		s.mu.Lock()
		s.orphanStreams--
		s.mu.Unlock()
	}
	if sub == nil {
		s.count.subgroupsUnknown.Add(1)
		str.stop(wire.StreamCancelled)
		return
	}
	sub.deliverSubgroup(newSubgroupReader(sub, h, str, br))
}
