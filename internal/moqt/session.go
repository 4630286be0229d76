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
	"holocast/internal/crew"
	"holocast/internal/moqt/wire"
	"holocast/internal/quiccc"
)

// Bounds of what a session holds for its peer.
const (
	maxSubgroupQueue   = 64   // subgroups of one subscription not yet accepted
	maxDatagramQueue   = 1024 // datagrams of one subscription not yet read
	maxOrphanStreams   = 256  // subgroups whose alias is not known yet
	maxOrphanDatagrams = 256  // datagrams whose alias is not known yet
	maxRetiredAliases  = 1024 // aliases remembered after a subscription ended
	maxUpdates         = 64   // REQUEST_UPDATEs of one subscription not yet answered
	maxRequestGaps     = 4096 // of request IDs that were not seen
	maxText            = 256  // bytes of a reason to close (a packet has to hold it), or of a peer's text in the log
)

// waits bound how long a session waits for its peer or its user.
type waits struct {
	setup   time.Duration // for the peer's SETUP
	header  time.Duration // for the beginning of a stream, once it was opened
	request time.Duration // for the answer to a request
	send    time.Duration // for the peer to take a message
	orphan  time.Duration // for the alias of an early object
	done    time.Duration // for streams that PUBLISH_DONE overtook
	cancel  time.Duration // for the cancellation that a request overtook
	join    time.Duration // for the SUBSCRIBE that a joining FETCH overtook
	accept  time.Duration // for a subgroup to be accepted
	fetch   time.Duration // for a subscriber to take an object it fetched
}

func defaultWaits() waits {
	return waits{
		setup: 10 * time.Second, header: 10 * time.Second, request: 10 * time.Second, send: 10 * time.Second,
		orphan: 2 * time.Second, done: 2 * time.Second, cancel: 250 * time.Millisecond,
		join: 5 * time.Second, accept: 5 * time.Second, fetch: 30 * time.Second,
	}
}

// Config is what both ends of a session may set.
type Config struct {
	// Tokens are sent in SETUP to authorize the session (§10.3.1.4).
	Tokens []wire.Token
	// MaxAuthTokenCacheSize lets the peer register token aliases of this many
	// bytes in all; 0 forbids aliases (§10.3.1.3).
	MaxAuthTokenCacheSize uint64
	// Congestion names the connection's congestion controller (quiccc.Controllers);
	// "" is the default.
	Congestion string
	// Trace, if set, returns what records the events of a new connection (qlog).
	Trace func(ctx context.Context, client bool, id quic.ConnectionID) qlogwriter.Trace
	// Log receives what the session does at debug level, what goes wrong at warn;
	// nil means slog.Default.
	Log *slog.Logger
	// Packets, if set, carries the packets in the place of a UDP socket, as an emulated network
	// does. It stays open; one end at a time may use it.
	Packets net.PacketConn

	// Versions are the drafts to speak, the preferred one first; nil means wire.Versions.
	// Where both ends speak several, the server's preference decides, over WebTransport the
	// client's.
	Versions []wire.Version

	waits   *waits // other than the default, in tests
	streams int64  // of each kind that the peer may open; 0 is the default
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

// Handler answers what the peer asks. A nil function refuses its request with
// NOT_SUPPORTED. Each call has a goroutine of its own and must accept or reject
// its request; one that returns without doing so rejects it.
type Handler struct {
	Subscribe          func(*SubscribeRequest)
	TrackStatus        func(*TrackStatusRequest)
	Fetch              func(*FetchRequest)
	Publish            func(*PublishRequest)
	PublishNamespace   func(*NamespaceRequest)
	SubscribeNamespace func(*DiscoveryRequest)
	SubscribeTracks    func(*DiscoveryRequest)
	// Goaway is called when the peer wants to end the session (§3.6).
	Goaway func(newSessionURI string, timeout time.Duration)
}

// Stats are a session's counters. Whatever it drops or resets is in one of them.
type Stats struct {
	SubgroupsUnknown uint64 // subgroups for an alias that never came
	SubgroupsRefused uint64 // subgroups refused because nobody accepted them in time
	DatagramsUnknown uint64 // datagrams for an alias that never came
	DatagramsRefused uint64 // datagrams dropped because nobody read them in time
	DatagramsUnsent  uint64 // datagrams dropped because the transport was behind
	DeliveryTimeouts uint64 // subgroups reset because they were late
	StreamsBlocked   uint64 // subgroups not sent at the peer's limit of streams
	RTT, MinRTT      time.Duration
	BytesSent        uint64 // on the connection, UDP payload
	BytesReceived    uint64
	PacketsLost      uint64
	CongestionWindow uint64 // bytes
	// Path is what congestion control knows of the path to the peer; its Controller is
	// "" with the published quic-go, which does not expose it.
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
	count   counters

	ctx       context.Context // ends with the session
	cancel    context.CancelCauseFunc
	closeOnce sync.Once

	path    string      // of a WebTransport session's URL
	peer    *wire.Setup // the peer's SETUP, valid once set is closed
	set     chan struct{}
	serving chan struct{} // closed by Serve
	handler Handler

	sendq    *datagramQueue
	sendOnce sync.Once     // starts what empties it
	nextSlot atomic.Uint64 // of a stream of objects

	controlMu  sync.Mutex
	control    sendStream
	goawaySent bool

	mu            sync.Mutex
	changed       chan struct{}     // closed and replaced when an alias or request appears
	nextRequest   uint64            // ours
	requests      requestIDs        // the peer's
	firstAlias    uint64            // of ours that nobody wished for
	nextAlias     uint64            // after the last of these
	wished        map[uint64]string // tracks of the others of ours
	goawayTold    bool
	tokens        tokenCache
	subscriptions map[uint64]*Subscription // receiving, by alias
	retired       map[uint64]struct{}      // aliases of ended subscriptions
	retiredOrder  []uint64
	orphans       []orphanDatagram
	orphanStreams int
	receiving     map[string]*role        // tracks we are the subscriber of
	sending       map[string]*role        // tracks we are the publisher of
	further       uint64                  // that made up names for those of one track
	joinable      map[uint64]*Publication // by the peer's request ID; nil while pending
	fetches       map[uint64]chan *FetchReader
	openRequests  int
	discoveries   []*DiscoveryRequest           // the peer's, with prefixes that must not overlap
	lingering     map[*SubgroupWriter]time.Time // finished, with their delivery deadlines
	sweeper       *time.Timer                   // of lingering; nil while there are none
	sweepAt       time.Time                     // when it fires
}

type orphanDatagram struct {
	d    *wire.Datagram
	seen time.Time
}

// role is this endpoint's part, publisher or subscriber, in the subscription of a
// track. There is one of each at a time (§5.1).
type role struct {
	track string
	// give ends our SUBSCRIBE that the peer has not answered yet, so that its own PUBLISH takes
	// the place (§5.1); nil = there is none. Under the session's mu.
	give func()
}

// newSession exchanges SETUP over c. Incoming requests wait for Serve.
func newSession(ctx context.Context, c conn, v wire.Version, client bool, local *wire.Setup, cfg Config) (*Session, error) {
	s := &Session{
		conn: c, version: v, client: client, local: local, log: cmp.Or(cfg.Log, slog.Default()), wait: cfg.wait(),
		set: make(chan struct{}), serving: make(chan struct{}), changed: make(chan struct{}),
		sendq:         newDatagramQueue(),
		subscriptions: map[uint64]*Subscription{}, retired: map[uint64]struct{}{},
		receiving: map[string]*role{}, sending: map[string]*role{}, wished: map[uint64]string{},
		joinable: map[uint64]*Publication{}, lingering: map[*SubgroupWriter]time.Time{}, fetches: map[uint64]chan *FetchReader{},
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
	// Goroutines, whose stacks take memory, begin when there is something for them to do.
	when := s.conn.when()
	when.WhenUniStream(s.acceptFirstUniStream)
	when.WhenStream(s.acceptStreams)
	when.WhenDatagram(s.receiveDatagrams)

	if err := s.openControl(ctx); err != nil {
		s.fail(err)
		return nil, err
	}
	select {
	case <-s.set:
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

// Serve begins to answer the peer's requests. It is called once; a session that
// Dial returned serves already.
func (s *Session) Serve(h Handler) {
	s.handler = h
	close(s.serving)
}

// Context ends when the session does; its cause is the session's error.
func (s *Session) Context() context.Context { return s.ctx }

// Err waits for nothing: it is nil while the session lasts, then why it ended.
func (s *Session) Err() error { return context.Cause(s.ctx) }

// Version is the draft that the session speaks.
func (s *Session) Version() wire.Version { return s.version }

// Path is the path and query the client asked for, "" when it named none.
func (s *Session) Path() string { return cmp.Or(s.path, s.peer.Path) }

// Implementation is what the peer says it is.
func (s *Session) Implementation() string { return s.peer.Implementation }

// SetupTokens are the tokens of the peer's SETUP.
func (s *Session) SetupTokens() []wire.Token { return s.peer.AuthorizationTokens }

// PeerCertificates are those of a client that showed one, its own first, as it sent
// them: ListenConfig.TLS says whether they are verified.
func (s *Session) PeerCertificates() []*x509.Certificate {
	return s.conn.quic().ConnectionState().TLS.PeerCertificates
}

// RemoteAddr is the peer's network address.
func (s *Session) RemoteAddr() net.Addr { return s.conn.quic().RemoteAddr() }

// WebTransport reports whether the session runs over WebTransport.
func (s *Session) WebTransport() bool { return s.conn.webTransport() }

// RTT is the smoothed round-trip time of the connection.
func (s *Session) RTT() time.Duration { return s.conn.quic().ConnectionStats().SmoothedRTT }

// Publishing is how many tracks the peer is subscribed to.
func (s *Session) Publishing() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sending)
}

// Stats returns the session's counters now.
func (s *Session) Stats() Stats {
	q := s.conn.quic().ConnectionStats()
	path, _ := quiccc.Estimates(s.conn.quic())
	return Stats{
		Path:             path,
		SubgroupsUnknown: s.count.subgroupsUnknown.Load(),
		SubgroupsRefused: s.count.subgroupsRefused.Load(),
		DatagramsUnknown: s.count.datagramsUnknown.Load(),
		DatagramsRefused: s.count.datagramsRefused.Load(),
		DatagramsUnsent:  s.count.datagramsUnsent.Load(),
		DeliveryTimeouts: s.count.deliveryTimeouts.Load(),
		StreamsBlocked:   s.count.streamsBlocked.Load(),
		RTT:              q.SmoothedRTT, MinRTT: q.MinRTT,
		BytesSent: q.BytesSent, BytesReceived: q.BytesReceived,
		PacketsLost: q.PacketsLost, CongestionWindow: q.CongestionWindow,
	}
}

// Close ends the session. Everything waiting on it returns its error.
func (s *Session) Close(code wire.SessionCode, reason string) {
	s.shutdown(&SessionError{Code: code, Reason: reason}, code, reason)
}

// fail ends the session because of err, with the code that err names.
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
		clear(s.lingering)
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

// Goaway asks the peer to move to uri (empty: to reconnect) and closes the
// session after timeout, or when ctx ends, unless the peer was quicker. It
// returns when the session is closed. Only a server may name a URI.
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

// notify wakes everyone who waits for an alias or a request to appear. s.mu is
// held.
func (s *Session) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// waitFor calls find under s.mu, again after every change, until it reports true,
// the time is over, or ctx or the session ends.
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

// Streams from the peer.

// acceptFirstUniStream accepts a stream, which mostly is the control stream, and has the others
// accepted once there are some. What reads it has a large stack and is not kept.
func (s *Session) acceptFirstUniStream() {
	if s.acceptUniStream(func(f func()) { go f() }) {
		s.conn.when().WhenUniStream(s.acceptUniStreams)
	}
}

func (s *Session) acceptUniStreams() {
	readers := crew.New()
	defer readers.Close()
	for s.acceptUniStream(readers.Go) {
	}
}

// acceptUniStream accepts a stream and has it read by run; false once the session has ended.
func (s *Session) acceptUniStream(run func(f func())) bool {
	str, err := s.conn.acceptUni(s.ctx)
	if err != nil {
		return false // the end of the transport's context says why
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
	case <-s.set:
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

// badStream closes the session when a stream broke the wire format; a stream that
// was merely reset or cut off ends alone.
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
	close(s.set)
	read := func() { s.readControl(bufio.NewReaderSize(str, 512)) }
	if br.Buffered() > 0 || !str.whenReadable(read) {
		s.readControl(br)
	}
}

// readControl reads the control stream. Most peers send nothing there after SETUP, and no goroutine
// waits for it.
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

// awaitClose gives a peer that ended its control stream the time to close the
// connection too: many end their streams one by one when they leave, and closing
// on them at once would lose what they sent before.
func (s *Session) awaitClose() {
	t := time.NewTimer(closeWait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ctx.Done():
	}
}

// streamErrorAsViolation: ending the control stream is a violation (§3.3).
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
	notAllowed := s.client || s.WebTransport()
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
	told := s.goawayTold
	s.goawayTold = true
	own := s.nextRequest & 1
	s.mu.Unlock()
	switch {
	case told:
		return protocolViolation("a second GOAWAY")
	case !s.client && g.NewSessionURI != "":
		return protocolViolation("GOAWAY from a client names a URI")
	case s.version >= wire.Draft19: // names no request
	case g.RequestID == nil:
		return protocolViolation("GOAWAY on the control stream without a request ID")
	case *g.RequestID&1 != own:
		return &wire.Error{Code: wire.InvalidRequestID, Msg: "GOAWAY names a request of the wrong side"}
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

// DatagramsWait tells whether datagrams wait for the transport to take them.
func (s *Session) DatagramsWait() bool { return s.sendq.waits() }

// sendDatagrams hands datagrams to the transport, which takes them at the pace of its
// congestion control. One that has missed its deadline by then is dropped.
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

// claimTrack takes a role on a track, nil when it is taken.
func (s *Session) claimTrack(in map[string]*role, track TrackName) *role {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claimLocked(in, track)
}

func (s *Session) claimLocked(in map[string]*role, track TrackName) *role {
	r := &role{track: track.String()}
	if in[r.track] != nil {
		return nil
	}
	in[r.track] = r
	return r
}

// claimPublishing is claimSoon for a track that the peer asks for, or is offered. From draft-19
// on there may be several subscriptions of it at a time (§5.1); alone says that this is the
// only one.
func (s *Session) claimPublishing(track TrackName) (r *role, alone bool) {
	if s.version < wire.Draft19 {
		return s.claimSoon(s.sending, track), true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r = s.claimLocked(s.sending, track); r != nil {
		return r, true
	}
	s.further++
	r = &role{track: fmt.Sprintf("%s %d", track.String(), s.further)}
	s.sending[r.track] = r
	return r, false
}

// claimSoon is claimTrack for the peer's requests. A request may overtake the
// cancellation of the one it replaces, which is on another stream, so a role that
// is taken has a moment to become free.
func (s *Session) claimSoon(in map[string]*role, track TrackName) (r *role) {
	s.waitFor(s.ctx, s.wait.cancel, func() bool {
		r = s.claimLocked(in, track)
		return r != nil
	})
	return r
}

// claimOffered is claimSoon for a track that the peer PUBLISHes. Where our own SUBSCRIBE has
// not been answered yet, it returns that one's role as pending instead.
func (s *Session) claimOffered(track TrackName) (r, pending *role) {
	s.waitFor(s.ctx, s.wait.cancel, func() bool {
		if r = s.claimLocked(s.receiving, track); r != nil {
			return true
		}
		if taken := s.receiving[track.String()]; taken.give != nil {
			pending = taken
		}
		return pending != nil
	})
	return r, pending
}

// takeOver gives up our SUBSCRIBE, which has the role pending, for the PUBLISH of the same
// track; nil when it was answered meanwhile.
func (s *Session) takeOver(pending *role) *role {
	s.mu.Lock()
	taken := s.receiving[pending.track]
	if taken != nil && (taken != pending || pending.give == nil) {
		s.mu.Unlock()
		return nil
	}
	r := &role{track: pending.track}
	s.receiving[r.track] = r
	give := pending.give
	pending.give = nil
	s.mu.Unlock()
	if give != nil {
		give()
	}
	return r
}

// keepRole ends the time in which a role may be taken over; false when it was.
func (s *Session) keepRole(r *role) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.give = nil
	return s.receiving[r.track] == r
}

// release gives a role back, as often as it likes.
func (s *Session) release(in map[string]*role, r *role) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in[r.track] == r {
		delete(in, r.track)
		s.notify()
	}
}

// Aliases of tracks we receive.

// register makes sub known by its alias and hands it what arrived before.
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

// unregister forgets sub; objects still in flight to it are discarded.
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
