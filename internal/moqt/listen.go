package moqt

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/webtransport-go"

	"holocast/internal/moqt/wire"
	"holocast/internal/multipath"
	"holocast/internal/qmux"
	"holocast/internal/quiccc"
	"holocast/internal/udpio"
)

// ListenConfig configures a Listener.
type ListenConfig struct {
	Config
	TLS *tls.Config // needs a certificate; Listen sets its ALPN protocols
	// ResetKey is the key of stateless resets (RFC 9000 §10.3). Peers of an earlier process with
	// the same key learn immediately that their sessions ended. nil means a random key, which works
	// only for peers of this process.
	ResetKey *[32]byte
	// HTTP answers HTTP/3 requests that are not WebTransport. nil answers all of them with status
	// 404.
	HTTP http.Handler
	// CheckOrigin decides which web pages may connect. nil allows all of them.
	CheckOrigin func(*http.Request) bool
	// MaxConnects is the number of connection attempts per second above which clients must validate
	// their address (Retry, RFC 9000 §8.1.2), which costs a round trip. 0 means unlimited.
	MaxConnects int
	// Suspect, if set, reports addresses that must always be validated with a Retry.
	Suspect func(net.Addr) bool
	// Admit, if set, is called before a connection's handshake. An error refuses the connection.
	Admit func(net.Addr) (Admission, error)
	// Greedy, if set, reports addresses whose connections start with a small receive window, which
	// grows as data is read.
	Greedy func(net.Addr) bool
	// NoGRO disables UDP GRO, for eBPF programs that inspect each datagram.
	NoGRO bool
	// Sockets, if set, are used in place of a new socket. They share one address. Close closes
	// them.
	Sockets []Socket
	// TokenKey is the key of Retry and address validation tokens (RFC 9000 §8.1), shared by servers
	// of one address. nil means a random key.
	TokenKey *[32]byte
	// SinglePath refuses sessions over several paths. Clients that offer several then use one.
	SinglePath bool
	// EarlyData accepts early data (0-RTT) over raw QUIC, which attackers can replay. Until the client's
	// handshake is complete, the session answers only requests that read. The caller must limit the
	// reuse of tickets in TLS.
	EarlyData bool
}

// Socket is a socket that shares its address with others.
type Socket struct {
	Conn *net.UDPConn
	// IDs generates connection IDs whose first byte steers packets to this socket.
	IDs quic.ConnectionIDGenerator
	// Tap, if set, receives each read from the socket: one or more datagrams of a peer.
	Tap func(from *net.UDPAddr, message []byte, datagrams int)
}

// Listener accepts sessions over raw QUIC and WebTransport on one UDP port, and over WebSockets from
// an HTTP server.
type Listener struct {
	cfg       ListenConfig
	log       *slog.Logger
	endpoints []endpoint
	wt        *webtransport.Server
	paths     *multipath.Server

	sessions chan *Session
	mu       sync.Mutex
	conns    map[*quic.Conn]struct{} // nil once closed
	tcp      map[*qmux.Conn]struct{}
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

// endpoint is the QUIC transport on one socket.
type endpoint struct {
	udp *net.UDPConn // nil if the caller owns the socket
	tr  *quic.Transport
	ln  quicListener
}

// quicListener is *quic.Listener or *quic.EarlyListener.
type quicListener interface {
	Accept(context.Context) (*quic.Conn, error)
	Close() error
}

func (e endpoint) close() error {
	_ = e.ln.Close()
	err := e.tr.Close()
	if e.udp != nil {
		_ = e.udp.Close()
	}
	return err
}

// Listen opens addr ("host:port") for sessions.
func Listen(addr string, cfg ListenConfig) (*Listener, error) {
	if cfg.TLS == nil {
		return nil, errors.New("listen: a TLS configuration with a certificate is needed")
	}
	if err := quiccc.Check(cfg.Congestion); err != nil {
		return nil, err
	}
	connContext, err := quiccc.ConnContext(cfg.Congestion)
	if err != nil {
		return nil, err
	}
	sockets := cfg.Sockets
	if cfg.Packets != nil {
		sockets = []Socket{{}}
	} else if len(sockets) == 0 {
		udp, err := udpio.Listen(addr, nil)
		if err != nil {
			return nil, err
		}
		sockets = []Socket{{Conn: udp}}
	}
	tlsConfig := cfg.TLS.Clone()
	tlsConfig.NextProtos = append(wire.ALPNs(cfg.versions()), http3.NextProtoH3)
	if !cfg.SinglePath {
		tlsConfig.NextProtos = append(pathProtocols(cfg.versions()), tlsConfig.NextProtos...)
	}
	tlsConfig.MinVersion = tls.VersionTLS13
	l := &Listener{
		cfg: cfg, log: cmp.Or(cfg.Log, slog.Default()),
		sessions: make(chan *Session), conns: map[*quic.Conn]struct{}{}, tcp: map[*qmux.Conn]struct{}{},
		paths: multipath.NewServer(),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	for _, key := range []**[32]byte{&cfg.TokenKey, &cfg.ResetKey} {
		if *key == nil {
			*key = new([32]byte)
			_, _ = rand.Read((*key)[:]) // never fails
		}
	}
	admit, verify := cfg.admit(connContext), cfg.verifySourceAddress()
	for i, socket := range sockets {
		e := endpoint{udp: socket.Conn, tr: &quic.Transport{
			Conn: cfg.Packets, ConnContext: admit, ConnectionIDGenerator: socket.IDs,
			StatelessResetKey: (*quic.StatelessResetKey)(
				cfg.ResetKey,
			), TokenGeneratorKey: (*quic.TokenGeneratorKey)(cfg.TokenKey),
			VerifySourceAddress: verify,
		}}
		if socket.Conn != nil {
			e.tr.Conn = udpio.Wrap(socket.Conn)
			udpio.Tap(e.tr.Conn, socket.Tap)
			if cfg.NoGRO {
				udpio.DisableGRO(socket.Conn)
			} else if socket.IDs != nil {
				udpio.DropStrays(e.tr.Conn)
			}
		}
		if cfg.EarlyData {
			e.ln, err = e.tr.ListenEarly(tlsConfig, cfg.serverQUIC())
		} else {
			e.ln, err = e.tr.Listen(tlsConfig, cfg.serverQUIC())
		}
		if err != nil {
			l.cancel()
			for _, e := range l.endpoints {
				_ = e.close()
			}
			for _, s := range sockets[i:] {
				_ = s.Conn.Close() // nil-safe
			}
			return nil, fmt.Errorf("listen on UDP %s: %w", addr, err)
		}
		l.endpoints = append(l.endpoints, e)
	}
	checkOrigin := cfg.CheckOrigin
	if checkOrigin == nil {
		checkOrigin = func(*http.Request) bool { return true }
	}
	l.wt = &webtransport.Server{
		H3: &http3.Server{
			Handler: http.HandlerFunc(l.serveHTTP),
			ConnContext: func(ctx context.Context, c *quic.Conn) context.Context {
				return context.WithValue(ctx, quicConnKey{}, c)
			},
			Logger:      slog.New(slog.DiscardHandler),
			IdleTimeout: httpIdleTimeout,
		},
		ApplicationProtocols: wire.ALPNs(cfg.versions()),
		CheckOrigin:          checkOrigin,
	}
	webtransport.ConfigureHTTP3Server(l.wt.H3)
	for _, e := range l.endpoints {
		l.wg.Go(func() { l.run(e.ln) })
	}
	return l, nil
}

// httpIdleTimeout closes HTTP/3 connections without a request; a WebTransport session is a request.
const httpIdleTimeout = 10 * time.Second

type quicConnKey struct{}

// Addr returns the UDP address on which the listener accepts sessions.
func (l *Listener) Addr() net.Addr { return l.endpoints[0].tr.Conn.LocalAddr() }

// Accept returns the next session after its SETUP exchange. The caller must call Serve.
func (l *Listener) Accept(ctx context.Context) (*Session, error) {
	select {
	case s := <-l.sessions:
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// StopAccepting refuses new connections. Sessions continue.
func (l *Listener) StopAccepting() {
	for _, e := range l.endpoints {
		_ = e.ln.Close()
	}
}

// Close ends all sessions and releases the port.
func (l *Listener) Close() error {
	l.cancel()
	l.StopAccepting()
	l.mu.Lock()
	conns, tcp := l.conns, maps.Clone(l.tcp)
	l.conns = nil
	l.mu.Unlock()
	for c := range tcp {
		_ = c.CloseWithError(0, "the server is closing")
	}
	for qc := range conns { // the transport would close them silently
		_ = qc.CloseWithError(0, "the server is closing")
	}
	_ = l.wt.Close()
	var errs []error
	for _, e := range l.endpoints {
		errs = append(errs, e.close())
	}
	l.wg.Wait()
	return errors.Join(errs...)
}

func (l *Listener) run(ln quicListener) {
	for {
		qc, err := ln.Accept(l.ctx)
		if err != nil {
			return
		}
		if !l.track(qc) {
			_ = qc.CloseWithError(0, "the server is closing")
			return
		}
		l.wg.Go(func() {
			state := qc.ConnectionState()
			protocol := state.TLS.NegotiatedProtocol
			v, raw := wire.VersionOf(protocol)
			if !raw || !state.Used0RTT {
				select {
				case <-qc.HandshakeComplete():
				case <-qc.Context().Done():
					return
				}
			}
			if raw {
				l.start(quicConn{qc}, v, "")
				return
			}
			if v, path := pathVersion(protocol); path {
				l.servePath(qc, v)
				return
			}
			if err := l.serveHTTP3(qc); err != nil && !errors.Is(err, http.ErrServerClosed) {
				l.log.Debug("http/3 connection ended", "err", err, "peer", qc.RemoteAddr())
			}
		})
	}
}

// serveHTTP3 serves a connection. With the patched webtransport-go it returns immediately, so idle
// connections need no goroutine.
func (l *Listener) serveHTTP3(qc *quic.Conn) error {
	if wt, ok := any(l.wt).(interface{ StartQUICConn(*quic.Conn) error }); ok {
		return wt.StartQUICConn(qc)
	}
	return l.wt.ServeQUICConn(qc)
}

// track registers qc until it ends. It returns false once the listener is closed.
func (l *Listener) track(qc *quic.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		return false
	}
	l.conns[qc] = struct{}{}
	context.AfterFunc(qc.Context(), func() {
		l.mu.Lock()
		delete(l.conns, qc)
		l.mu.Unlock()
	})
	return true
}

// start exchanges SETUP and passes the session to Accept.
func (l *Listener) start(c conn, v wire.Version, path string) {
	ctx, cancel := context.WithTimeout(l.ctx, l.cfg.wait().setup)
	defer cancel()
	s, err := newSession(ctx, c, v, false, &wire.Setup{Implementation: implementation}, l.cfg.Config)
	if err != nil {
		l.log.Debug("moqt session refused", "err", err, "peer", c.remoteAddr())
		return
	}
	s.path = path
	select {
	case l.sessions <- s:
	case <-s.ctx.Done(): // the client gave up
	case <-l.ctx.Done():
		s.Close(wire.NoError, "the server is closing")
	}
}

func (l *Listener) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		if l.cfg.HTTP != nil {
			l.cfg.HTTP.ServeHTTP(w, r)
		} else {
			http.NotFound(w, r)
		}
		return
	}
	qc, _ := r.Context().Value(quicConnKey{}).(*quic.Conn)
	if !l.offersProtocol(r.Header) {
		http.Error(w, "this server speaks "+strings.Join(wire.ALPNs(l.cfg.versions()), " and "), http.StatusBadRequest)
		return
	}
	sess, err := l.wt.Upgrade(w, r)
	if err != nil {
		l.log.Debug("webtransport refused", "err", err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	v, named := wire.VersionOf(sess.SessionState().ApplicationProtocol)
	if !named {
		v = l.cfg.versions()[0]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns != nil { // after Close, the session has ended and wg must not grow
		l.wg.Go(func() { l.start(wtConn{sess, qc}, v, r.URL.RequestURI()) })
	}
}

// offersProtocol reports whether the client offers a protocol of ours (draft-ietf-webtrans-http3,
// §3.3). A client that lists no protocols counts as offering one.
func (l *Listener) offersProtocol(h http.Header) bool {
	offered := h.Values("WT-Available-Protocols")
	return len(offered) == 0 || slices.ContainsFunc(offered, func(list string) bool {
		return slices.ContainsFunc(
			l.cfg.versions(),
			func(v wire.Version) bool { return strings.Contains(list, `"`+v.ALPN()+`"`) },
		)
	})
}
