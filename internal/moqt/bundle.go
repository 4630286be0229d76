package moqt

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/quic-go/quic-go"

	"holocast/internal/moqt/wire"
	"holocast/internal/multipath"
)

// Path is one of a client's network paths to its server.
type Path struct {
	Name    string         // for logs and statistics, at most multipath.MaxName bytes
	Local   netip.Addr     // source address, if valid
	Device  string         // network interface, if not ""
	Packets net.PacketConn // replaces the UDP socket, as in Config
}

// pathProtocol returns the ALPN protocol of a version's paths.
func pathProtocol(v wire.Version) string {
	return multipath.ProtocolPrefix + strings.TrimPrefix(v.ALPN(), "moqt-")
}

func pathProtocols(versions []wire.Version) (list []string) {
	for _, v := range versions {
		list = append(list, pathProtocol(v))
	}
	return list
}

// pathVersion returns the version that a path's ALPN protocol stands for, or false if alpn is not a
// path's.
func pathVersion(alpn string) (wire.Version, bool) {
	number, ok := strings.CutPrefix(alpn, multipath.ProtocolPrefix)
	if !ok {
		return 0, false
	}
	return wire.VersionOf("moqt-" + number)
}

// bundleConn is a bundle of QUIC connections.
type bundleConn struct {
	b      *multipath.Conn
	limits Admission // set by the server; held until the bundle ends
}

func (c bundleConn) openStream(ctx context.Context) (stream, error) {
	s, err := c.b.OpenStreamSync(ctx)
	if err != nil {
		return nil, sessionError(err)
	}
	return bundleStream{s}, nil
}

func (c bundleConn) acceptStream(ctx context.Context) (stream, error) {
	s, err := c.b.AcceptStream(ctx)
	if err != nil {
		return nil, sessionError(err)
	}
	return bundleStream{s}, nil
}

func (c bundleConn) openUni() (uniStream, error) {
	s, err := c.b.OpenUniStream()
	if err != nil {
		return nil, openError(err)
	}
	return bundleSend{s}, nil
}

func (c bundleConn) openUniSync(ctx context.Context) (sendStream, error) {
	s, err := c.b.OpenUniStreamSync(ctx)
	if err != nil {
		return nil, sessionError(err)
	}
	return bundleSend{s}, nil
}

func (c bundleConn) acceptUni(ctx context.Context) (receiveStream, error) {
	s, err := c.b.AcceptUniStream(ctx)
	if err != nil {
		return nil, sessionError(err)
	}
	return bundleReceive{s}, nil
}

func (c bundleConn) sendDatagram(b []byte) error { return datagramError(c.b.SendDatagram(b)) }

func (c bundleConn) receiveDatagram(ctx context.Context) ([]byte, error) {
	b, err := c.b.ReceiveDatagram(ctx)
	return b, sessionError(err)
}

func (c bundleConn) notifier() notifier { return immediate{} }

func (c bundleConn) close(code wire.SessionCode, reason string) {
	_ = c.b.CloseWithError(quic.ApplicationErrorCode(code), reason)
}

func (c bundleConn) context() context.Context { return c.b.Context() }
func (c bundleConn) ended() error             { return sessionError(context.Cause(c.b.Context())) }
func (c bundleConn) quic() *quic.Conn         { return c.b.QUIC() }
func (c bundleConn) admission() Admission     { return c.limits }
func (c bundleConn) webTransport() bool       { return false }

type bundleSend struct{ *multipath.SendStream }

func (s bundleSend) reset(code wire.StreamCode) { s.CancelWrite(quic.StreamErrorCode(code)) }
func (s bundleSend) setPriority(p priority)     { s.SetPriority(p.urgency, p.order) }
func (s bundleSend) setReliable()               { s.SetReliableBoundary() }
func (s bundleSend) delivered() bool            { return s.Delivered() }
func (s bundleSend) sourced() sourceStream      { return nil }

type bundleReceive struct{ *multipath.ReceiveStream }

func (s bundleReceive) stop(code wire.StreamCode) { s.CancelRead(quic.StreamErrorCode(code)) }
func (s bundleReceive) whenReadable(func()) bool  { return false }

type bundleStream struct{ *multipath.Stream }

func (s bundleStream) reset(code wire.StreamCode) { s.CancelWrite(quic.StreamErrorCode(code)) }
func (s bundleStream) stop(code wire.StreamCode)  { s.CancelRead(quic.StreamErrorCode(code)) }
func (s bundleStream) setPriority(p priority)     { s.SetPriority(p.urgency, p.order) }
func (s bundleStream) whenReadable(func()) bool   { return false }

// bundle returns the bundle that carries the session, or nil if a single connection does.
func (s *Session) bundle() *multipath.Conn {
	c, _ := s.conn.(bundleConn)
	return c.b
}

// Paths describes the paths of a multipath session. It returns nil for other sessions.
func (s *Session) Paths() []multipath.PathStats {
	if b := s.bundle(); b != nil {
		return b.Paths()
	}
	return nil
}

// Received returns the number of bytes received, counted as UDP payload.
func (s *Session) Received() uint64 {
	if b := s.bundle(); b != nil {
		return b.Totals().BytesReceived
	}
	return s.conn.quic().ConnectionStats().BytesReceived
}

// addPaths replaces the connection's statistics with totals over all paths.
func (st *Stats) addPaths(b *multipath.Conn) {
	t := b.Totals()
	st.BytesSent, st.BytesReceived, st.PacketsLost = t.BytesSent, t.BytesReceived, t.PacketsLost
	st.CongestionWindow, st.Path.Bandwidth = t.CongestionWindow, t.Rate
	st.Path.Delivered = 0 // known of single paths only
}

// RefusedPaths returns the number of connections refused when joining a multipath session, by reason.
func (l *Listener) RefusedPaths() map[string]uint64 { return l.paths.Refused() }

// servePath adds a connection to its bundle as a path. A new bundle starts a session.
func (l *Listener) servePath(qc *quic.Conn, v wire.Version) {
	cfg := multipath.Config{Streams: uint64(max(0, l.cfg.streams)), Log: l.log}
	limits := admission(qc)
	if limits != nil {
		cfg.Grow = limits.GrowWindow
	}
	hold := holdAdmission(qc)
	b, err := l.paths.Accept(l.ctx, qc, cfg)
	if err != nil {
		l.log.Info("path refused", "peer", qc.RemoteAddr().String(), "reason", err)
	}
	if b == nil {
		hold.release()
		return
	}
	context.AfterFunc(b.Context(), hold.release)
	l.start(bundleConn{b, limits}, v, "")
}

// admitted is a connection's Admission with a reference count. It is closed when the connection and
// everything else that holds it have ended.
type admitted struct {
	Admission
	mu    sync.Mutex
	users int
}

// release ends one use.
func (a *admitted) release() {
	if a == nil {
		return
	}
	a.mu.Lock()
	a.users--
	last := a.users == 0
	a.mu.Unlock()
	if last {
		a.Close()
	}
}

// holdAdmission keeps a connection's admission open until release, even if the connection ends first.
// It returns nil if there is none.
func holdAdmission(qc *quic.Conn) *admitted {
	a, _ := qc.Context().Value(admissionKey{}).(*admitted)
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.users++
	return a
}

// dialPaths dials a server over several paths. It returns a bundle, or a single connection if the
// server does not support bundles.
func (c Config) dialPaths(
	ctx context.Context, dial func(context.Context, Path) (*quic.Conn, error),
) (*multipath.Conn, *quic.Conn, error) {
	var paths []multipath.Path
	for _, p := range c.Paths {
		paths = append(paths, multipath.Path{Name: p.Name, Dial: func(ctx context.Context) (*quic.Conn, error) {
			qc, err := dial(ctx, p)
			if err != nil {
				return nil, fmt.Errorf("path %s: %w", p.Name, err)
			}
			return qc, nil
		}})
	}
	return multipath.Dial(ctx, paths, multipath.Config{Streams: uint64(max(0, c.streams)), Log: c.Log})
}
