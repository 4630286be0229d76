package moqt

import (
	"context"
	"fmt"
	"net"
	"sync"

	"holocast/internal/moqt/wire"
	"holocast/internal/qmux"
)

// pipeWindow bounds the unread bytes of each direction of a Pipe.
const pipeWindow = 8 << 20

// Pipe returns both ends of a session within the process. Call Serve on each. At most 8 MiB are in flight in
// each direction.
func Pipe(ctx context.Context, cfg Config) (client, server *Session, err error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.wait().setup)
	defer cancel()
	from, at := newPipe()
	window := qmux.Config{Window: pipeWindow}
	a, b := pipeConn{tcpConn{c: qmux.Client(from, window)}}, pipeConn{tcpConn{c: qmux.Server(at, window)}}
	open := func(c conn, client bool) (*Session, error) {
		return newSession(ctx, c, cfg.versions()[0], client, &wire.Setup{Implementation: implementation}, cfg)
	}
	done := make(chan error, 1)
	go func() {
		var err error
		server, err = open(b, false)
		done <- err
	}()
	client, err = open(a, true)
	if e := <-done; err == nil {
		err = e
	}
	if err != nil {
		a.close(wire.NoError, "")
		b.close(wire.NoError, "")
		return nil, nil, fmt.Errorf("session within the process: %w", err)
	}
	return client, server, nil
}

// pipeConn is a QMux connection over memory.
type pipeConn struct{ tcpConn }

func (pipeConn) transport() Transport { return Memory }

// pipeDepth is the number of records in flight in each direction of a pipe.
const pipeDepth = 4

// pipe is one end of a link over memory. It implements qmux.Link.
type pipe struct {
	out, in chan []byte
	done    chan struct{} // of both ends
	close   func()
	read    []byte // returned by Receive
}

// records holds buffers of records.
var records = sync.Pool{New: func() any { return make([]byte, 0, qmux.MaxRecord) }}

func newPipe() (a, b *pipe) {
	done := make(chan struct{})
	end := sync.OnceFunc(func() { close(done) })
	ab, ba := make(chan []byte, pipeDepth), make(chan []byte, pipeDepth)
	return &pipe{out: ab, in: ba, done: done, close: end}, &pipe{out: ba, in: ab, done: done, close: end}
}

// Send implements qmux.Link.
func (p *pipe) Send(record []byte) error {
	b := append(records.Get().([]byte)[:0], record...)
	select {
	case p.out <- b:
		return nil
	case <-p.done:
		return net.ErrClosed
	}
}

// Receive implements qmux.Link.
func (p *pipe) Receive() ([]byte, error) {
	if p.read != nil {
		records.Put(p.read) //nolint:staticcheck // a slice header per 16 kiB
		p.read = nil
	}
	select {
	case p.read = <-p.in:
		return p.read, nil
	case <-p.done:
	}
	select { // sent before the end
	case p.read = <-p.in:
		return p.read, nil
	default:
		return nil, net.ErrClosed
	}
}

// Close implements qmux.Link.
func (p *pipe) Close() { p.close() }

// Abort implements qmux.Link.
func (p *pipe) Abort() { p.close() }

// LocalAddr implements qmux.Link.
func (p *pipe) LocalAddr() net.Addr { return pipeAddr{} }

// RemoteAddr implements qmux.Link.
func (p *pipe) RemoteAddr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return string(Memory) }
func (pipeAddr) String() string  { return "this process" }
