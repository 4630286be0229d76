package moqt

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/webtransport-go"

	"holocast/internal/eyeballs"
	"holocast/internal/moqt/wire"
	"holocast/internal/multipath"
	"holocast/internal/quiccc"
	"holocast/internal/udpio"
)

// implementation is sent in SETUP (§10.3.1.5).
const implementation = "holocast"

// initialPacketSize is the UDP payload that every QUIC path carries (RFC 9000 §14), in bytes. Tunnels
// often limit IP packets to 1280 bytes, which quic-go's default exceeds. Path MTU discovery finds
// larger sizes.
const initialPacketSize = 1200

// quicConfig returns the settings common to clients and servers. A stream's receive window holds
// several point-cloud frames of a camera, so flow control does not delay them. The connection's
// window holds a full queue of such frames, so one subscription that is not read does not block the
// others (quic-go extends the window when a quarter of it is read). Reconnecting takes a round trip
// or two, so the idle timeout is shorter than for file transfers.
func quicConfig() *quic.Config {
	return &quic.Config{
		EnableDatagrams:                  true,
		EnableStreamResetPartialDelivery: true,
		MaxIncomingStreams:               1 << 10,
		MaxIncomingUniStreams:            1 << 10,
		InitialStreamReceiveWindow:       2 << 20,
		MaxStreamReceiveWindow:           16 << 20,
		InitialConnectionReceiveWindow:   48 << 20,
		MaxConnectionReceiveWindow:       64 << 20,
		MaxIdleTimeout:                   5 * time.Second,
		KeepAlivePeriod:                  1500 * time.Millisecond,
		InitialPacketSize:                initialPacketSize,
	}
}

// quic returns quicConfig with the settings of c.
func (c Config) quic() *quic.Config {
	q := quicConfig()
	q.Tracer = c.Trace
	if c.streams > 0 {
		q.MaxIncomingStreams, q.MaxIncomingUniStreams = c.streams, c.streams
	}
	return q
}

// Dial opens a session to rawURL: moqt://host:port/path for raw QUIC, https://host:port/path for
// WebTransport, wss://host:port/path for a WebSocket (ws:// without TLS). The draft lets one moqt URL
// offer raw QUIC and WebTransport (§3.1), but a server that selects HTTP/3 may lack features that
// WebTransport needs, so the caller chooses. tlsConfig may be nil; Dial sets its ALPN protocols.
func Dial(ctx context.Context, rawURL string, tlsConfig *tls.Config, h Handler, cfg Config) (*Session, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("URL %q: %w", rawURL, err)
	}
	var protocols []string
	switch u.Scheme {
	case "moqt":
		protocols = wire.ALPNs(cfg.versions())
	case "https":
		protocols = []string{http3.NextProtoH3}
	case "wss", "ws":
		return dialWebSocket(ctx, u, tlsConfig, h, cfg)
	default:
		return nil, fmt.Errorf(
			"URL %q: the scheme must be moqt (raw QUIC), https (WebTransport) or wss (WebSocket)", rawURL,
		)
	}
	if u.Hostname() == "" {
		return nil, fmt.Errorf("URL %q names no host", rawURL)
	}
	addr := u.Host
	if u.Port() == "" {
		addr = net.JoinHostPort(u.Hostname(), "443")
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS13}
	}
	tlsConfig = tlsConfig.Clone()
	several := len(cfg.Paths) > 1
	if several && u.Scheme != "moqt" {
		return nil, fmt.Errorf("URL %q: several paths need raw QUIC (moqt://)", rawURL)
	}
	if several {
		protocols = append(pathProtocols(cfg.versions()), protocols...)
	}
	tlsConfig.NextProtos = protocols
	if tlsConfig.ServerName == "" {
		tlsConfig.ServerName = u.Hostname()
	}
	if err := quiccc.Check(cfg.Congestion); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.wait().setup)
	defer cancel()
	controlled, err := quiccc.WithController(ctx, cfg.Congestion)
	if err != nil {
		return nil, err
	}
	if cfg.Resume != nil && u.Scheme == "moqt" && !several {
		tlsConfig.ClientSessionCache = cfg.Resume
	}
	resuming := cfg.Early && tlsConfig.ClientSessionCache != nil
	var last resumed
	if resuming {
		if last, resuming = cfg.Resume.known(addr); resuming {
			tlsConfig.NextProtos = []string{last.protocol} // early data need the same
		}
	}
	dial := func(ctx context.Context, p Path) (*quic.Conn, error) {
		if resuming {
			return p.dial(func(tr *quic.Transport) (*quic.Conn, error) {
				return tr.DialEarly(ctx, net.UDPAddrFromAddrPort(last.addr), tlsConfig, cfg.quic())
			})
		}
		return dialQUIC(ctx, addr, tlsConfig, cfg.quic(), p)
	}
	var b *multipath.Conn
	var qc *quic.Conn
	switch len(cfg.Paths) {
	case 0:
		qc, err = dial(controlled, Path{Packets: cfg.Packets})
	case 1:
		qc, err = dial(controlled, cfg.Paths[0])
	default:
		b, qc, err = cfg.dialPaths(controlled, dial)
	}
	if err != nil {
		return nil, dialError(rawURL, err)
	}
	var c conn
	if b != nil {
		qc, c = b.QUIC(), bundleConn{b: b}
	} else {
		c = newEarlyConn(qc)
		if several {
			cmp.Or(cfg.Log, slog.Default()).Info("the relay does not support several paths; using one",
				"local", qc.LocalAddr().String())
		}
	}
	local := &wire.Setup{Implementation: implementation}
	protocol := cmp.Or(qc.ConnectionState().TLS.NegotiatedProtocol, last.protocol)
	version, raw := wire.VersionOf(protocol)
	if v, path := pathVersion(protocol); path {
		version, raw = v, true
	}
	if raw {
		local.Path, local.HasPath = u.EscapedPath(), true
		if u.RawQuery != "" {
			local.Path += "?" + u.RawQuery
		}
		local.Authority, local.HasAuthority = u.Host, true
	} else if c, version, err = dialWebTransport(ctx, qc, u, cfg.versions()); err != nil {
		_ = qc.CloseWithError(0, "")
		if e := (*webtransport.RequirementsNotMetError)(nil); errors.As(err, &e) {
			err = fmt.Errorf("the server does not offer WebTransport: %w", err)
		}
		return nil, fmt.Errorf("connect to %s: %w", rawURL, err)
	}
	s, err := newSession(ctx, c, version, true, local, cfg)
	if err != nil {
		c.close(wire.NoError, "")
		return nil, fmt.Errorf("connect to %s: %w", rawURL, err)
	}
	if tlsConfig.ClientSessionCache != nil {
		go s.remember(cfg.Resume, addr, rawURL)
	}
	s.Serve(h)
	return s, nil
}

// dialWebTransport opens a session with one of the versions: the server's choice, or the first if
// the server selects none.
func dialWebTransport(
	ctx context.Context,
	qc *quic.Conn,
	u *url.URL,
	versions []wire.Version,
) (conn, wire.Version, error) {
	tr := &webtransport.Transport{ApplicationProtocols: wire.ALPNs(versions)}
	cc, err := tr.NewClientConn(qc)
	if err != nil {
		_ = tr.Close()
		return nil, 0, err
	}
	target := *u
	target.Scheme = "https"
	resp, sess, err := cc.Dial(ctx, target.String(), nil) //nolint:bodyclose // the body is the session
	if err != nil {
		_ = tr.Close()
		if resp != nil {
			return nil, 0, fmt.Errorf("the server answered the WebTransport request with %s: %w", resp.Status, err)
		}
		return nil, 0, err
	}
	version := versions[0]
	if p := sess.SessionState().ApplicationProtocol; p != "" {
		var known bool
		if version, known = wire.VersionOf(p); !known || !slices.Contains(versions, version) {
			_ = sess.CloseWithError(webtransport.WTALPNErrorCode, "")
			_ = tr.Close()
			return nil, 0, fmt.Errorf(
				"the server speaks %q; this client speaks %s",
				p,
				strings.Join(wire.ALPNs(versions), ", "),
			)
		}
	}
	context.AfterFunc(qc.Context(), func() { _ = tr.Close() })
	return wtConn{sess, qc}, version, nil
}

// dialError explains common connection failures.
func dialError(rawURL string, err error) error {
	err = mostTelling(err)
	var te *quic.TransportError
	var cert *tls.CertificateVerificationError
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsTimeout:
		return fmt.Errorf("connect to %s: the name server does not answer for %s", rawURL, dns.Name)
	case errors.As(err, &cert):
		return fmt.Errorf("connect to %s: the relay's certificate is not trusted: %w", rawURL, cert.Err)
	case errors.As(err, &te) && te.ErrorCode.IsCryptoError() && strings.Contains(te.Error(), "no application protocol"):
		if strings.HasPrefix(rawURL, "https:") {
			return fmt.Errorf("connect to %s: the server does not speak WebTransport (%s)", rawURL, http3.NextProtoH3)
		}
		return fmt.Errorf(
			"connect to %s: the server does not speak %s",
			rawURL,
			strings.Join(wire.ALPNs(wire.Versions()), " or "),
		)
	case errors.As(err, &te) && te.ErrorCode.IsCryptoError() && !te.Remote:
		for _, cause := range te.Unwrap() { // an error from our certificate verification
			if cause != nil && cause != net.ErrClosed {
				return fmt.Errorf("connect to %s: %w", rawURL, cause)
			}
		}
	case errors.As(err, &te) && te.ErrorCode == quic.InternalError && !te.Remote && te.ErrorMessage != "":
		// The host cannot send. The cause follows the socket's addresses; drop these, because the
		// port differs at each attempt.
		cause := te.ErrorMessage[strings.LastIndexByte(te.ErrorMessage, ':')+1:]
		return UnansweredError(fmt.Sprintf("connect to %s: %s", rawURL, strings.TrimSpace(cause)))
	case isTimeout(err):
		return UnansweredError(
			fmt.Sprintf("connect to %s: no answer (is the relay running, and does UDP reach it?)", rawURL))
	}
	return fmt.Errorf("connect to %s: %w", rawURL, err)
}

// UnansweredError means that no packet arrived from the server.
type UnansweredError string

// Error implements error.
func (e UnansweredError) Error() string { return string(e) }

// Unanswered reports whether err, from Dial, means that no packet of the server arrived, so that
// another transport may reach it.
func Unanswered(err error) bool {
	_, ok := errors.AsType[UnansweredError](err)
	return ok
}

// mostTelling returns the error of the address that came closest to a session: one that answered, or
// else one to which packets could be sent.
func mostTelling(err error) error {
	all, ok := errors.AsType[eyeballs.Errors](err)
	if !ok {
		return err
	}
	rank := func(err error) int {
		te, ok := errors.AsType[*quic.TransportError](err)
		switch {
		case ok && te.ErrorCode == quic.InternalError && !te.Remote:
			return 0
		case isTimeout(err):
			return 1
		}
		return 2
	}
	return slices.MaxFunc(all, func(a, b error) int { return rank(a) - rank(b) })
}

func isTimeout(err error) bool {
	return errors.As(err, new(*quic.IdleTimeoutError)) || errors.As(err, new(*quic.HandshakeTimeoutError)) ||
		errors.Is(err, context.DeadlineExceeded)
}

// dialQUIC dials the addresses of a host.
func dialQUIC(
	ctx context.Context,
	addr string,
	tlsConfig *tls.Config,
	config *quic.Config,
	path Path,
) (*quic.Conn, error) {
	return path.dial(func(tr *quic.Transport) (*quic.Conn, error) {
		return eyeballs.Dial(ctx, addr, func(ctx context.Context, to netip.AddrPort) (*quic.Conn, error) {
			return tr.Dial(ctx, net.UDPAddrFromAddrPort(to), tlsConfig, config)
		}, func(late *quic.Conn) { _ = late.CloseWithError(0, "") })
	})
}

// dial connects over p.Packets if set, otherwise over a UDP socket with batched I/O.
func (p Path) dial(connect func(*quic.Transport) (*quic.Conn, error)) (*quic.Conn, error) {
	packets, closing := p.Packets, func() {}
	if packets == nil {
		socket, err := p.listen()
		if err != nil {
			return nil, err
		}
		packets, closing = udpio.Wrap(socket), func() { _ = socket.Close() }
	}
	tr := &quic.Transport{Conn: packets}
	qc, err := connect(tr)
	if err != nil {
		_ = tr.Close()
		closing()
		return nil, err
	}
	context.AfterFunc(qc.Context(), func() {
		_ = tr.Close()
		closing()
	})
	return qc, nil
}
