package moqt

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/quic-go/quic-go"

	"holocast/internal/congestion"
	"holocast/internal/eyeballs"
	"holocast/internal/moqt/wire"
	"holocast/internal/qmux"
)

// tcpConn is a QMux connection over a WebSocket.
type tcpConn struct {
	c     *qmux.Conn
	chain []*x509.Certificate
	limit *admitted // nil if unlimited; held until the connection ends
}

func (t tcpConn) openStream(ctx context.Context) (stream, error) {
	s, err := t.c.OpenStream(ctx)
	if err != nil {
		return nil, sessionError(err)
	}
	return tcpStream{s}, nil
}

func (t tcpConn) acceptStream(ctx context.Context) (stream, error) {
	s, err := t.c.AcceptStream(ctx)
	if err != nil {
		return nil, sessionError(err)
	}
	return tcpStream{s}, nil
}

func (t tcpConn) openUni() (uniStream, error) {
	s, err := t.c.OpenUniStream()
	if err != nil {
		return nil, openError(err)
	}
	return tcpSend{s}, nil
}

func (t tcpConn) openUniSync(ctx context.Context) (sendStream, error) {
	s, err := t.c.OpenUniStreamSync(ctx)
	if err != nil {
		return nil, sessionError(err)
	}
	return tcpSend{s}, nil
}

func (t tcpConn) acceptUni(ctx context.Context) (receiveStream, error) {
	s, err := t.c.AcceptUniStream(ctx)
	if err != nil {
		return nil, sessionError(err)
	}
	return tcpReceive{s}, nil
}

func (t tcpConn) sendDatagram(b []byte) error { return datagramError(t.c.SendDatagram(b)) }

func (t tcpConn) receiveDatagram(ctx context.Context) ([]byte, error) {
	b, err := t.c.ReceiveDatagram(ctx)
	return b, sessionError(err)
}

func (t tcpConn) notifier() notifier { return t.c }

func (t tcpConn) close(code wire.SessionCode, reason string) {
	_ = t.c.CloseWithError(quic.ApplicationErrorCode(code), reason)
}

func (t tcpConn) context() context.Context          { return t.c.Context() }
func (t tcpConn) ended() error                      { return sessionError(context.Cause(t.c.Context())) }
func (t tcpConn) quic() *quic.Conn                  { return nil }
func (t tcpConn) transport() Transport              { return WebSocket }
func (t tcpConn) remoteAddr() net.Addr              { return t.c.RemoteAddr() }
func (t tcpConn) certificates() []*x509.Certificate { return t.chain }

func (t tcpConn) admission() Admission {
	if t.limit == nil {
		return nil
	}
	return t.limit.Admission
}

// measure implements conn. The round-trip time is that of pings, because TCP's ends at the nearest
// proxy.
func (t tcpConn) measure(st *Stats) {
	q := t.c.Stats()
	st.RTT, st.MinRTT = q.RTT, q.MinRTT
	st.BytesSent, st.BytesReceived = q.BytesSent, q.BytesReceived
	st.DatagramsRefused += q.DatagramsDropped
	if p, ok := t.c.Path(); ok {
		st.PacketsLost, st.CongestionWindow = p.Retransmitted, p.Window
		st.Path = congestion.Estimates{
			Controller: p.Controller, Bandwidth: p.Bandwidth, MinRTT: p.MinRTT, SmoothedRTT: p.RTT,
			Window: int64(p.Window), InFlight: int64(p.InFlight), Delivered: int64(p.Delivered), AppLimited: p.AppLimited,
		}
	}
}

type tcpSend struct{ *qmux.SendStream }

func (s tcpSend) reset(code wire.StreamCode) { s.CancelWrite(quic.StreamErrorCode(code)) }
func (s tcpSend) setPriority(p priority)     { s.SetPriority(p.urgency, p.order) }
func (s tcpSend) setReliable()               { s.SetReliableBoundary() }
func (s tcpSend) delivered() bool            { return s.Delivered() }
func (s tcpSend) sourced() sourceStream      { return nil }

type tcpReceive struct{ *qmux.ReceiveStream }

func (s tcpReceive) stop(code wire.StreamCode) { s.CancelRead(quic.StreamErrorCode(code)) }

func (s tcpReceive) whenReadable(f func()) bool {
	s.WhenReadable(f)
	return true
}

type tcpStream struct{ *qmux.Stream }

func (s tcpStream) reset(code wire.StreamCode) { s.CancelWrite(quic.StreamErrorCode(code)) }
func (s tcpStream) stop(code wire.StreamCode)  { s.CancelRead(quic.StreamErrorCode(code)) }
func (s tcpStream) setPriority(p priority)     { s.SetPriority(p.urgency, p.order) }

func (s tcpStream) whenReadable(f func()) bool {
	s.WhenReadable(f)
	return true
}

// ServeWebSocket answers a request for a WebSocket with a session over QMux, which Accept then
// returns. The URL is that of a WebTransport session, with the scheme wss.
func (l *Listener) ServeWebSocket(w http.ResponseWriter, r *http.Request) {
	alpns := wire.ALPNs(l.cfg.versions())
	if l.cfg.CheckOrigin != nil && !l.cfg.CheckOrigin(r) {
		http.Error(w, "pages of this origin may not open sessions", http.StatusForbidden)
		return
	}
	if !qmux.Offers(r, alpns) {
		http.Error(w, "this server speaks "+strings.Join(qmux.Subprotocols(alpns), ", "), http.StatusBadRequest)
		return
	}
	peer, err := net.ResolveTCPAddr("tcp", r.RemoteAddr) // numeric
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	cfg := qmux.Config{Streams: uint64(max(0, l.cfg.streams))}
	var limit *admitted
	if l.cfg.Admit != nil {
		a, err := l.cfg.Admit(peer)
		if err != nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		limit = &admitted{Admission: a, users: 1}
		cfg.Window, cfg.StreamWindow = firstWindow, firstStreamWindow
	}
	if l.cfg.Greedy != nil && l.cfg.Greedy(peer) {
		cfg.Window, cfg.StreamWindow = greedyWindow, greedyWindow
	}
	link, protocol, err := qmux.Upgrade(w, r, alpns)
	if err != nil {
		limit.release()
		l.log.Debug("websocket refused", "err", err)
		return
	}
	c := tcpConn{c: qmux.Server(link, cfg), limit: limit}
	context.AfterFunc(c.context(), limit.release)
	if r.TLS != nil {
		c.chain = r.TLS.PeerCertificates
	}
	v, _ := wire.VersionOf(protocol)
	if !l.startTCP(c, v, r.URL.RequestURI()) {
		_ = c.c.CloseWithError(0, "the server is closing")
	}
}

// startTCP starts a session over TCP. It returns false once the listener is closed.
func (l *Listener) startTCP(c tcpConn, v wire.Version, path string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		return false
	}
	l.tcp[c.c] = struct{}{}
	context.AfterFunc(c.context(), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.tcp, c.c)
	})
	l.wg.Go(func() { l.start(c, v, path) })
	return true
}

// dialWebSocket opens a session to a ws or wss URL.
func dialWebSocket(ctx context.Context, u *url.URL, conf *tls.Config, h Handler, cfg Config) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.wait().setup)
	defer cancel()
	target := *u
	target.User = nil
	d := qmux.Dialer{TLS: conf, Protocols: wire.ALPNs(cfg.versions()), Dial: eyeballs.DialTCP}
	link, protocol, err := d.Open(ctx, target.String())
	if err != nil {
		return nil, tcpError(u, err)
	}
	version, known := wire.VersionOf(protocol)
	if !known || !slices.Contains(cfg.versions(), version) {
		link.Abort()
		return nil, fmt.Errorf("connect to %s: the server speaks %q", u, protocol)
	}
	c := tcpConn{c: qmux.Client(link, qmux.Config{Streams: uint64(max(0, cfg.streams))})}
	s, err := newSession(ctx, c, version, true, &wire.Setup{Implementation: implementation}, cfg)
	if err != nil {
		c.close(wire.NoError, "")
		return nil, fmt.Errorf("connect to %s: %w", u, err)
	}
	s.Serve(h)
	return s, nil
}

// tcpError explains common failures.
func tcpError(u *url.URL, err error) error {
	var cert *tls.CertificateVerificationError
	var dns *net.DNSError
	switch {
	case errors.As(err, &cert):
		return fmt.Errorf("connect to %s: the relay's certificate is not trusted: %w", u, cert.Err)
	case errors.As(err, &dns) && dns.IsTimeout:
		return fmt.Errorf("connect to %s: the name server does not answer for %s", u, dns.Name)
	case errors.Is(err, context.DeadlineExceeded):
		return UnansweredError(fmt.Sprintf("connect to %s: no answer over TCP", u))
	case errors.As(err, new(*net.OpError)):
		return UnansweredError(fmt.Sprintf("connect to %s: %v", u, err))
	}
	return fmt.Errorf("connect to %s: %w", u, err)
}
