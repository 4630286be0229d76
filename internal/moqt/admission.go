package moqt

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"holocast/internal/moqt/wire"
)

// Admission limits the resources of one accepted connection. Its methods may be called at any time
// and must not block.
type Admission interface {
	// OpenStream charges a stream opened by the peer until CloseStream. If it returns false, the
	// stream is refused with EXCESSIVE_LOAD.
	OpenStream() bool
	CloseStream()
	// Opened counts an object stream or, if request is set, a request or REQUEST_UPDATE. It
	// returns how long the session must wait before it accepts the next one.
	Opened(request bool) (wait time.Duration)
	// GrowWindow reports whether the receive window may grow by this many bytes.
	GrowWindow(bytes uint64) bool
	// Close is called when the connection ends, even if it never became a session. If the
	// connection began a multipath session, Close is called when both have ended.
	Close()
}

type admissionKey struct{}

// admission returns a connection's Admission, or nil if it has none.
func admission(qc *quic.Conn) Admission {
	if a, _ := qc.Context().Value(admissionKey{}).(*admitted); a != nil {
		return a.Admission
	}
	return nil
}

// admit calls c.Admit for each connection before its handshake.
func (c ListenConfig) admit(
	next func(context.Context, *quic.ClientInfo) (context.Context, error),
) func(context.Context, *quic.ClientInfo) (context.Context, error) {
	if c.Admit == nil {
		return next
	}
	return func(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
		a, err := c.Admit(info.RemoteAddr)
		if err != nil {
			return nil, err
		}
		held := &admitted{Admission: a, users: 1}
		context.AfterFunc(ctx, held.release)
		return next(context.WithValue(ctx, admissionKey{}, held), info)
	}
}

// verifySourceAddress returns a function that reports whether a client must validate its address
// with a Retry.
func (c ListenConfig) verifySourceAddress() func(net.Addr) bool {
	attempts := &connectRate{limit: c.MaxConnects}
	return func(addr net.Addr) bool {
		many := attempts.verify(addr)
		return many || c.Suspect != nil && c.Suspect(addr)
	}
}

// serverQUIC returns the QUIC configuration of accepted connections.
func (c ListenConfig) serverQUIC() *quic.Config {
	q := c.quic()
	q.Allow0RTT = c.EarlyData
	if c.Admit != nil {
		// Received data that is not read stays in memory, so windows start small and grow as data
		// is read, within the admission's limit.
		q.InitialStreamReceiveWindow, q.InitialConnectionReceiveWindow = firstStreamWindow, firstWindow
		q.AllowConnectionWindowIncrease = func(qc *quic.Conn, bytes uint64) bool {
			a := admission(qc)
			return a == nil || a.GrowWindow(bytes)
		}
	}
	if c.Greedy == nil {
		return q
	}
	small := q.Clone()
	small.InitialStreamReceiveWindow, small.InitialConnectionReceiveWindow = greedyWindow, greedyWindow
	q.GetConfigForClient = func(info *quic.ClientInfo) (*quic.Config, error) {
		if c.Greedy(info.RemoteAddr) {
			return small, nil
		}
		return q, nil
	}
	return q
}

// Initial receive windows in bytes: one frame per stream, and a few streams per connection, so that
// streams waiting for a reader do not block the others. Greedy addresses get less.
const (
	firstStreamWindow = 512 << 10
	firstWindow       = 2 << 20
	greedyWindow      = 32 << 10
)

// Admission returns the limits of the session's connection, or nil without ListenConfig.Admit.
func (s *Session) Admission() Admission { return s.conn.admission() }

// takeStream charges a stream opened by the peer. done releases the charge and may be called
// repeatedly.
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

// paceStreams counts a stream or request and waits until the next is allowed.
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

// countedStream releases a stream's charge once the stream ends, fails or is refused.
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
