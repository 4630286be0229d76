package moqt

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/webtransport-go"

	"holocast/internal/moqt/wire"
	"holocast/internal/quiccc"
	"holocast/internal/udpio"
)

// ListenConfig is how a server listens.
type ListenConfig struct {
	Config
	TLS *tls.Config // with a certificate; its protocols are set here
	// ResetKey lets peers of this server's former life know at once that their
	// sessions are gone (RFC 9000 §10.3); it must be the same after a restart. nil =
	// they find out when the connection has been idle for too long.
	ResetKey *[32]byte
	// HTTP answers HTTP/3 requests that are not WebTransport; nil = 404.
	HTTP http.Handler
	// CheckOrigin decides which web pages may connect; nil = all of them.
	CheckOrigin func(*http.Request) bool
	// MaxConnects is how many connections a second may be attempted before clients have to
	// prove that they receive at the address they send from (Retry, RFC 9000 §8.1.2),
	// which costs them a round trip; 0 = any number.
	MaxConnects int
	// Suspect, if set, says of which addresses clients have to prove that, however few
	// connect.
	Suspect func(net.Addr) bool
	// Admit, if set, decides on a connection before its handshake: an error refuses it.
	Admit func(net.Addr) (Admission, error)
	// NoGRO has the kernel not join datagrams that it receives, for eBPF programs that look
	// at each.
	NoGRO bool
}

// Listener accepts sessions over raw QUIC and WebTransport on one UDP port.
type Listener struct {
	cfg ListenConfig
	log *slog.Logger
	udp *net.UDPConn
	tr  *quic.Transport
	ln  *quic.Listener
	wt  *webtransport.Server

	sessions chan *Session
	mu       sync.Mutex
	conns    map[*quic.Conn]struct{} // nil once closed
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
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
	ua, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen address %q: %w", addr, err)
	}
	udp, err := net.ListenUDP("udp", ua)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("UDP port %d is in use by another program", ua.Port)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on UDP %s: %w", addr, err)
	}
	tlsConfig := cfg.TLS.Clone()
	tlsConfig.NextProtos = append(wire.ALPNs(cfg.versions()), http3.NextProtoH3)
	tlsConfig.MinVersion = tls.VersionTLS13
	l := &Listener{
		cfg: cfg, log: cmp.Or(cfg.Log, slog.Default()), udp: udp,
		tr: &quic.Transport{
			Conn: udpio.Wrap(udp), ConnContext: cfg.admit(connContext), StatelessResetKey: (*quic.StatelessResetKey)(cfg.ResetKey),
			VerifySourceAddress: cfg.doubtful(),
		},
		sessions: make(chan *Session), conns: map[*quic.Conn]struct{}{},
	}
	if cfg.NoGRO {
		udpio.DisableGRO(udp)
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if l.ln, err = l.tr.Listen(tlsConfig, cfg.admittedQUIC()); err != nil {
		l.cancel()
		_ = udp.Close()
		return nil, fmt.Errorf("listen on UDP %s: %w", addr, err)
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
	l.wg.Go(l.run)
	return l, nil
}

// httpIdleTimeout is how long an HTTP/3 connection may do without a request; a
// WebTransport session is one.
const httpIdleTimeout = 10 * time.Second

type quicConnKey struct{}

// Addr is the UDP address listened on.
func (l *Listener) Addr() net.Addr { return l.udp.LocalAddr() }

// Accept returns the next session, its SETUP exchanged. The caller calls its
// Serve.
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

// StopAccepting refuses new connections; sessions go on.
func (l *Listener) StopAccepting() { _ = l.ln.Close() }

// Close ends all sessions and releases the port.
func (l *Listener) Close() error {
	l.cancel()
	_ = l.ln.Close()
	l.mu.Lock()
	conns := l.conns
	l.conns = nil
	l.mu.Unlock()
	for qc := range conns { // the transport would drop them without a word
		_ = qc.CloseWithError(0, "the server is closing")
	}
	_ = l.wt.Close()
	err := l.tr.Close()
	_ = l.udp.Close()
	l.wg.Wait()
	return err
}

func (l *Listener) run() {
	for {
		qc, err := l.ln.Accept(l.ctx)
		if err != nil {
			return
		}
		if !l.track(qc) {
			_ = qc.CloseWithError(0, "the server is closing")
			return
		}
		l.wg.Go(func() {
			if v, raw := wire.VersionOf(qc.ConnectionState().TLS.NegotiatedProtocol); raw {
				l.start(quicConn{qc}, v, "")
				return
			}
			if err := l.wt.ServeQUICConn(qc); err != nil && !errors.Is(err, http.ErrServerClosed) {
				l.log.Debug("http/3 connection ended", "err", err, "peer", qc.RemoteAddr())
			}
		})
	}
}

// track notes qc while it lasts; false once the listener is closed.
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

// start exchanges SETUP and offers the session to Accept.
func (l *Listener) start(c conn, v wire.Version, path string) {
	ctx, cancel := context.WithTimeout(l.ctx, l.cfg.wait().setup)
	defer cancel()
	s, err := newSession(ctx, c, v, false, &wire.Setup{Implementation: implementation}, l.cfg.Config)
	if err != nil {
		l.log.Debug("moqt session refused", "err", err, "peer", c.quic().RemoteAddr())
		return
	}
	s.path = path
	select {
	case l.sessions <- s:
	case <-s.ctx.Done(): // the client did not wait
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
	l.wg.Go(func() { l.start(wtConn{sess, qc}, v, r.URL.RequestURI()) })
}

// offersProtocol reports whether a client that names the protocols it speaks
// (draft-ietf-webtrans-http3, §3.3) names one of ours. One that names none is taken to.
func (l *Listener) offersProtocol(h http.Header) bool {
	offered := h.Values("WT-Available-Protocols")
	return len(offered) == 0 || slices.ContainsFunc(offered, func(list string) bool {
		return slices.ContainsFunc(l.cfg.versions(), func(v wire.Version) bool { return strings.Contains(list, `"`+v.ALPN()+`"`) })
	})
}
