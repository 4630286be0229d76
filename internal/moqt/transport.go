package moqt

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"reflect"
	"sync"
	"time"
	"unsafe"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/webtransport-go"

	"holocast/internal/moqt/wire"
	"holocast/internal/quiccc"
)

// Transport is a session's transport, as named in metrics.
type Transport string

// Transports of sessions.
const (
	QUIC         Transport = "quic" // over one path or several
	WebTransport Transport = "webtransport"
	WebSocket    Transport = "websocket" // QMux over TCP
	Memory       Transport = "memory"    // within the process (Pipe)
)

// Transports lists the transports between processes.
func Transports() []Transport { return []Transport{QUIC, WebTransport, WebSocket} }

// conn is a session's transport: raw QUIC, WebTransport, a bundle of QUIC connections or a WebSocket.
type conn interface {
	openStream(ctx context.Context) (stream, error)
	acceptStream(ctx context.Context) (stream, error)
	openUni() (uniStream, error) // ErrStreamsBlocked at the peer's limit
	openUniSync(ctx context.Context) (sendStream, error)
	acceptUni(ctx context.Context) (receiveStream, error)
	sendDatagram(b []byte) error // may block while the transport's queue is full
	receiveDatagram(ctx context.Context) ([]byte, error)
	notifier() notifier
	close(code wire.SessionCode, reason string)
	context() context.Context
	ended() error     // the cause, once context is done
	quic() *quic.Conn // the connection, or a bundle's first live path; nil over TCP
	admission() Admission
	transport() Transport
	remoteAddr() net.Addr
	certificates() []*x509.Certificate // the peer's
	// measure sets the transport's counters.
	measure(*Stats)
}

type sendStream interface {
	io.Writer
	Close() error
	SetWriteDeadline(time.Time) error
	Context() context.Context
	reset(wire.StreamCode)
	setPriority(priority)
}

// uniStream carries a subgroup.
type uniStream interface {
	sendStream
	// setReliable makes the bytes written so far arrive even after a reset, if the peer supports
	// RESET_STREAM_AT.
	setReliable()
	// delivered reports whether the peer has acknowledged the whole stream.
	delivered() bool
	// sourced returns the stream as a sourceStream, or nil if the transport does not support
	// sources.
	sourced() sourceStream
}

type receiveStream interface {
	io.Reader
	SetReadDeadline(time.Time) error
	stop(wire.StreamCode)
	// whenReadable runs f on a new goroutine once Read would not block. It returns false if the
	// transport does not support that. Do not read before f runs.
	whenReadable(f func()) bool
}

type stream interface {
	sendStream
	receiveStream
}

// Raw QUIC.

type quicConn struct{ c *quic.Conn }

func (q quicConn) openStream(ctx context.Context) (stream, error) {
	s, err := q.c.OpenStreamSync(ctx)
	if err != nil {
		return nil, sessionError(err)
	}
	return quicStream{s}, nil
}

func (q quicConn) acceptStream(ctx context.Context) (stream, error) {
	s, err := q.c.AcceptStream(ctx)
	if err != nil {
		return nil, sessionError(err)
	}
	return quicStream{s}, nil
}

func (q quicConn) openUni() (uniStream, error) {
	s, err := q.c.OpenUniStream()
	if err != nil {
		return nil, openError(err)
	}
	return quicSend{s}, nil
}

func (q quicConn) openUniSync(ctx context.Context) (sendStream, error) {
	s, err := q.c.OpenUniStreamSync(ctx)
	if err != nil {
		return nil, sessionError(err)
	}
	return quicSend{s}, nil
}

func (q quicConn) acceptUni(ctx context.Context) (receiveStream, error) {
	s, err := q.c.AcceptUniStream(ctx)
	if err != nil {
		return nil, sessionError(err)
	}
	return quicReceive{s}, nil
}

func (q quicConn) sendDatagram(b []byte) error { return datagramError(q.c.SendDatagram(b)) }

func (q quicConn) receiveDatagram(ctx context.Context) ([]byte, error) {
	b, err := q.c.ReceiveDatagram(ctx)
	return b, sessionError(err)
}

func (q quicConn) notifier() notifier { return notifierOf(q.c) }

func (q quicConn) close(code wire.SessionCode, reason string) {
	_ = q.c.CloseWithError(quic.ApplicationErrorCode(code), reason)
}

func (q quicConn) context() context.Context { return q.c.Context() }
func (q quicConn) ended() error             { return sessionError(context.Cause(q.c.Context())) }
func (q quicConn) quic() *quic.Conn         { return q.c }
func (q quicConn) admission() Admission     { return admission(q.c) }
func (q quicConn) transport() Transport     { return QUIC }
func (q quicConn) remoteAddr() net.Addr     { return q.c.RemoteAddr() }
func (q quicConn) measure(st *Stats)        { st.measure(q.c) }

func (q quicConn) certificates() []*x509.Certificate {
	return q.c.ConnectionState().TLS.PeerCertificates
}

// measure sets the counters of a QUIC connection.
func (st *Stats) measure(c *quic.Conn) {
	q := c.ConnectionStats()
	st.Path, _ = quiccc.Estimates(c)
	st.RTT, st.MinRTT = q.SmoothedRTT, q.MinRTT
	st.BytesSent, st.BytesReceived = q.BytesSent, q.BytesReceived
	st.PacketsLost, st.CongestionWindow = q.PacketsLost, q.CongestionWindow
}

type quicSend struct{ *quic.SendStream }

func (s quicSend) reset(code wire.StreamCode) { s.CancelWrite(quic.StreamErrorCode(code)) }
func (s quicSend) setPriority(p priority)     { setPriority(s.SendStream, p) }
func (s quicSend) setReliable()               { s.SetReliableBoundary() }
func (s quicSend) delivered() bool            { return delivered(s.SendStream) }

func (s quicSend) sourced() sourceStream { return asSourceStream(s.SendStream) }

type quicReceive struct{ *quic.ReceiveStream }

func (s quicReceive) stop(code wire.StreamCode)  { s.CancelRead(quic.StreamErrorCode(code)) }
func (s quicReceive) whenReadable(f func()) bool { return whenReadable(s.ReceiveStream, f) }

type quicStream struct{ *quic.Stream }

func (s quicStream) reset(code wire.StreamCode) { s.CancelWrite(quic.StreamErrorCode(code)) }
func (s quicStream) stop(code wire.StreamCode)  { s.CancelRead(quic.StreamErrorCode(code)) }
func (s quicStream) setPriority(p priority)     { setPriority(s.Stream, p) }
func (s quicStream) whenReadable(f func()) bool { return whenReadable(s.Stream, f) }

// WebTransport.

type wtConn struct {
	s *webtransport.Session
	c *quic.Conn // underlying connection, for statistics
}

func (w wtConn) openStream(ctx context.Context) (stream, error) {
	s, err := w.s.OpenStreamSync(ctx)
	if err != nil {
		return nil, sessionError(err)
	}
	return wtStream{s}, nil
}

func (w wtConn) acceptStream(ctx context.Context) (stream, error) {
	s, err := w.s.AcceptStream(ctx)
	if err != nil {
		return nil, sessionError(err)
	}
	return wtStream{s}, nil
}

func (w wtConn) openUni() (uniStream, error) {
	s, err := w.s.OpenUniStream()
	if err != nil {
		return nil, openError(err)
	}
	return wtSend{s}, nil
}

func (w wtConn) openUniSync(ctx context.Context) (sendStream, error) {
	s, err := w.s.OpenUniStreamSync(ctx)
	if err != nil {
		return nil, sessionError(err)
	}
	return wtSend{s}, nil
}

func (w wtConn) acceptUni(ctx context.Context) (receiveStream, error) {
	s, err := w.s.AcceptUniStream(ctx)
	if err != nil {
		return nil, sessionError(err)
	}
	return wtReceive{s}, nil
}

func (w wtConn) sendDatagram(b []byte) error { return datagramError(w.s.SendDatagram(b)) }

func (w wtConn) receiveDatagram(ctx context.Context) ([]byte, error) {
	b, err := w.s.ReceiveDatagram(ctx)
	return b, sessionError(err)
}

func (w wtConn) notifier() notifier { return notifierOf(w.s) }

// closeWait gives the peer time to read the close code of a WebTransport session before the
// underlying connection closes.
const closeWait = 100 * time.Millisecond

// close ends the session and its connection. The connection carries no other session, because we do
// not offer WebTransport flow control.
func (w wtConn) close(code wire.SessionCode, reason string) {
	_ = w.s.CloseWithError(webtransport.SessionErrorCode(code), reason)
	if e := (*webtransport.SessionError)(nil); errors.As(w.closeError(), &e) && !e.Remote {
		t := time.NewTimer(closeWait)
		defer t.Stop()
		select { // the peer responds by closing the connection
		case <-w.c.Context().Done():
		case <-t.C:
		}
	}
	_ = w.c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "")
}

// closeError returns the cause of the session's end. Accept returns it even with a cancelled
// context.
func (w wtConn) closeError() error {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := w.s.AcceptUniStream(over)
	return err
}

// ended returns the session's error or, if the connection failed, the connection's error, because
// the session's is then only text.
func (w wtConn) ended() error {
	err := w.closeError()
	if e := (*webtransport.SessionError)(nil); errors.As(err, &e) {
		return sessionError(err)
	}
	t := time.NewTimer(closeWait)
	defer t.Stop()
	select {
	case <-w.c.Context().Done():
		err = context.Cause(w.c.Context())
	case <-t.C:
		return err // only the CONNECT stream ended
	}
	if app := (*quic.ApplicationError)(nil); errors.As(err, &app) {
		code := wire.InternalError // HTTP/3 codes are not MOQT codes
		if app.ErrorCode == 0 || app.ErrorCode == quic.ApplicationErrorCode(http3.ErrCodeNoError) {
			code = wire.NoError
		}
		return &SessionError{Code: code, Reason: app.ErrorMessage, Remote: app.Remote}
	}
	return err
}

func (w wtConn) context() context.Context { return w.s.Context() }
func (w wtConn) quic() *quic.Conn         { return w.c }
func (w wtConn) admission() Admission     { return admission(w.c) }
func (w wtConn) transport() Transport     { return WebTransport }
func (w wtConn) remoteAddr() net.Addr     { return w.c.RemoteAddr() }
func (w wtConn) measure(st *Stats)        { st.measure(w.c) }

func (w wtConn) certificates() []*x509.Certificate { return w.c.ConnectionState().TLS.PeerCertificates }

type wtSend struct{ *webtransport.SendStream }

// When a peer ends its session, webtransport-go v0.13 blocks calls on cancelled streams until the
// session ends, and does not always notify them. A past deadline unblocks them.

func (s wtSend) reset(code wire.StreamCode) {
	s.CancelWrite(webtransport.StreamErrorCode(code))
	_ = s.SetWriteDeadline(time.Unix(1, 0))
}

func (s wtSend) setPriority(p priority) {
	if q := belowWebTransport(s.SendStream); q != nil {
		setPriority(q, p)
	}
}

func (s wtSend) setReliable() {
	if q, ok := belowWebTransport(s.SendStream).(*quic.SendStream); ok {
		q.SetReliableBoundary()
	}
}

func (s wtSend) delivered() bool {
	q, ok := belowWebTransport(s.SendStream).(*quic.SendStream)
	return ok && delivered(q)
}

func (s wtSend) sourced() sourceStream {
	q, ok := belowWebTransport(s.SendStream).(sourceStream)
	if !ok {
		return nil
	}
	return wtSource{q, s}
}

type wtReceive struct{ *webtransport.ReceiveStream }

func (s wtReceive) stop(code wire.StreamCode) {
	s.CancelRead(webtransport.StreamErrorCode(code))
	_ = s.SetReadDeadline(time.Unix(1, 0))
}

func (s wtReceive) whenReadable(f func()) bool { return whenReadable(s.ReceiveStream, f) }

type wtStream struct{ *webtransport.Stream }

func (s wtStream) reset(code wire.StreamCode) {
	s.CancelWrite(webtransport.StreamErrorCode(code))
	_ = s.SetWriteDeadline(time.Unix(1, 0))
}

func (s wtStream) stop(code wire.StreamCode) {
	s.CancelRead(webtransport.StreamErrorCode(code))
	_ = s.SetReadDeadline(time.Unix(1, 0))
}

func (s wtStream) setPriority(p priority) {
	if q := belowWebTransport(sendSide(s.Stream)); q != nil {
		setPriority(q, p)
	}
}

func (s wtStream) whenReadable(f func()) bool { return whenReadable(s.Stream, f) }

// The patched quic-go and webtransport-go call a function when an event occurs. With the published
// libraries a goroutine waits.

// notifier runs f once on a new goroutine, as soon as acceptStream, acceptUni or receiveDatagram
// would not block, or immediately if the transport cannot tell when.
type notifier interface {
	WhenStream(f func())
	WhenUniStream(f func())
	WhenDatagram(f func())
}

// notifierOf returns the notifier of a connection.
func notifierOf(c any) notifier {
	if w, ok := c.(notifier); ok {
		return w
	}
	return immediate{}
}

// immediate is the notifier of the published libraries.
type immediate struct{}

func (immediate) WhenStream(f func())    { go f() }
func (immediate) WhenUniStream(f func()) { go f() }
func (immediate) WhenDatagram(f func())  { go f() }

func whenReadable(s io.Reader, f func()) bool {
	r, ok := s.(interface{ WhenReadable(func()) })
	if ok {
		r.WhenReadable(f)
	}
	return ok
}

// prioritized is a QUIC stream that can send: *quic.SendStream or *quic.Stream.
type prioritized interface {
	SetPriority(urgency int8, incremental bool)
}

func setPriority(s prioritized, p priority) {
	s.SetPriority(p.urgency, false)
	if o, ok := s.(interface{ SetOrder(order uint64) }); ok { // patched quic-go
		o.SetOrder(p.order)
	}
}

// belowWebTransport returns the QUIC stream under a WebTransport stream, or nil if it is not found.
// webtransport-go v0.13 does not export it, so this reads the struct field. Priorities need it:
// without them a browser behind a bottleneck would lose frames instead of point density. A test
// fails if a new version moves the field; such streams then keep the default priority.
func belowWebTransport(s *webtransport.SendStream) prioritized {
	if s == nil {
		return nil
	}
	f, ok := reflect.TypeFor[webtransport.SendStream]().FieldByName("str")
	if !ok || f.Type.Kind() != reflect.Interface {
		return nil
	}
	q, _ := reflect.NewAt(f.Type, unsafe.Add(unsafe.Pointer(s), f.Offset)).Elem().Interface().(prioritized)
	return q
}

// sendSide returns the sending half of a bidirectional stream, or nil if it is not found; see
// belowWebTransport.
func sendSide(s *webtransport.Stream) *webtransport.SendStream {
	f, ok := reflect.TypeFor[webtransport.Stream]().FieldByName("sendStr")
	if !ok || f.Type != reflect.TypeFor[*webtransport.SendStream]() {
		return nil
	}
	return *(**webtransport.SendStream)(unsafe.Add(unsafe.Pointer(s), f.Offset))
}

// delivered reports whether the peer has acknowledged all of a finished stream. quic-go v0.64 does
// not export that. Resetting an acknowledged stream would discard data that the receiver has not
// read yet. A test fails if a new version moves the fields; delivered then returns false.
func delivered(s *quic.SendStream) bool {
	t := reflect.TypeFor[quic.SendStream]()
	mutex, ok := t.FieldByName("mutex")
	completed, ok2 := t.FieldByName("completed")
	if !ok || !ok2 || mutex.Type != reflect.TypeFor[sync.Mutex]() || completed.Type != reflect.TypeFor[bool]() {
		return false
	}
	mu := (*sync.Mutex)(unsafe.Add(unsafe.Pointer(s), mutex.Offset))
	mu.Lock()
	defer mu.Unlock()
	return *(*bool)(unsafe.Add(unsafe.Pointer(s), completed.Offset))
}

func openError(err error) error {
	var q quic.StreamLimitReachedError
	var qp *quic.StreamLimitReachedError
	var w webtransport.StreamLimitReachedError
	var wp *webtransport.StreamLimitReachedError
	if errors.As(err, &q) || errors.As(err, &qp) || errors.As(err, &w) || errors.As(err, &wp) {
		return ErrStreamsBlocked
	}
	return sessionError(err)
}

func datagramError(err error) error {
	var large *quic.DatagramTooLargeError
	if errors.As(err, &large) {
		return ErrDatagramTooLarge
	}
	return sessionError(err)
}
