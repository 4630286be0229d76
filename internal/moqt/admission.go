package moqt

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"holocast/internal/moqt/wire"
)

// Admission is what a server lets one connection have. Its methods may be called at any time
// and must not block.
type Admission interface {
	// OpenStream takes one more stream of the peer's, until CloseStream; one that it does not
	// take is refused with EXCESSIVE_LOAD.
	OpenStream() bool
	CloseStream()
	// Opened counts a stream of objects, or with request a request or an update of one. The
	// next one has to wait for so long.
	Opened(request bool) (wait time.Duration)
	// GrowWindow lets the peer send so many more bytes before they are read.
	GrowWindow(bytes uint64) bool
	// Close is called when the connection has ended, whether or not it became a session.
	Close()
}

type admissionKey struct{}

// admission is that of a connection; nil without one.
func admission(qc *quic.Conn) Admission {
	a, _ := qc.Context().Value(admissionKey{}).(Admission)
	return a
}

// admit has every connection decided on before its handshake.
func (c ListenConfig) admit(next func(context.Context, *quic.ClientInfo) (context.Context, error)) func(context.Context, *quic.ClientInfo) (context.Context, error) {
	if c.Admit == nil {
		return next
	}
	return func(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
		a, err := c.Admit(info.RemoteAddr)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, a.Close)
		return next(context.WithValue(ctx, admissionKey{}, a), info)
	}
}

// doubtful reports whether a client has to prove its address first.
func (c ListenConfig) doubtful() func(net.Addr) bool {
	attempts := &connects{limit: c.MaxConnects}
	return func(addr net.Addr) bool {
		many := attempts.verify(addr)
		return many || c.Suspect != nil && c.Suspect(addr)
	}
}

// admittedQUIC is the configuration of a server's connections.
func (c ListenConfig) admittedQUIC() *quic.Config {
	q := c.quic()
	if c.Admit != nil {
		// What a peer sends and nobody reads stays in memory: the window grows with what is
		// read, as far as it may.
		q.InitialStreamReceiveWindow, q.InitialConnectionReceiveWindow = firstStreamWindow, firstWindow
		q.AllowConnectionWindowIncrease = func(qc *quic.Conn, bytes uint64) bool {
			a := admission(qc)
			return a == nil || a.GrowWindow(bytes)
		}
	}
	if c.Greedy == nil {
		return q
	}
	few := q.Clone()
	few.InitialStreamReceiveWindow, few.InitialConnectionReceiveWindow = greedyWindow, greedyWindow
	q.GetConfigForClient = func(info *quic.ClientInfo) (*quic.Config, error) {
		if c.Greedy(info.RemoteAddr) {
			return few, nil
		}
		return q, nil
	}
	return q
}

// What a peer may send before any of it has been read, bytes: on a stream a frame, and on all
// of them some more, so that a few streams that wait for a reader do not hold up the others.
const (
	firstStreamWindow = 512 << 10
	firstWindow       = 2 << 20
	greedyWindow      = 32 << 10
)

// Admission is what the server lets the session's connection have; nil where nothing was
// decided.
func (s *Session) Admission() Admission { return admission(s.conn.quic()) }

// takeStream takes a stream of the peer's; done gives it back, as often as it likes.
func (s *Session) takeStream() (done func(), ok bool) {
	a := s.Admission()
	if a == nil {
		return func() {}, true
	}
	if !a.OpenStream() {
		return nil, false
	}
	return sync.OnceFunc(a.CloseStream), true
}

// paceStreams counts a stream or request and waits until there may be another one.
func (s *Session) paceStreams(request bool) {
	a := s.Admission()
	if a == nil {
		return
	}
	wait := a.Opened(request)
	if wait <= 0 {
		return
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ctx.Done():
	}
}

// countedStream gives a stream back when it has been read, or refused.
type countedStream struct {
	receiveStream
	done func()
}

// Read implements io.Reader.
func (s countedStream) Read(p []byte) (int, error) {
	n, err := s.receiveStream.Read(p)
	if err != nil {
		s.done()
	}
	return n, err
}

func (s countedStream) stop(code wire.StreamCode) {
	s.receiveStream.stop(code)
	s.done()
}
