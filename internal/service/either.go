package service

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// firstByteLimit is the deadline of a connection's first byte.
const firstByteLimit = 5 * time.Second

// either is a listener for connections with and without TLS. A connection's first byte tells which.
type either struct {
	net.Listener
	conf    *tls.Config
	waiting *conns // connections whose first byte has not arrived
	ready   chan net.Conn
	closed  chan struct{}
	once    sync.Once
	wg      sync.WaitGroup
	err     error // of Accept, once closed
}

func newEither(ln net.Listener, conf *tls.Config) *either {
	e := &either{
		Listener: ln, conf: conf, waiting: newestConns(maxConns()),
		ready: make(chan net.Conn), closed: make(chan struct{}),
	}
	e.wg.Go(e.run)
	return e
}

func (e *either) run() {
	for {
		c, err := e.Listener.Accept()
		if err != nil {
			if ne, ok := errors.AsType[net.Error](err); ok && ne.Temporary() { //nolint:staticcheck // as net/http does
				time.Sleep(10 * time.Millisecond)
				continue
			}
			e.err = err
			e.once.Do(func() { close(e.closed) })
			return
		}
		e.waiting.track(c, http.StateNew)
		e.wg.Go(func() { e.classify(c) })
	}
}

// classify reads a connection's first byte and passes the connection to Accept.
func (e *either) classify(c net.Conn) {
	defer e.waiting.track(c, http.StateClosed)
	first := make([]byte, 1)
	_ = c.SetReadDeadline(time.Now().Add(firstByteLimit))
	if _, err := c.Read(first); err != nil {
		_ = c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	var out net.Conn = &peeked{Conn: c, first: first}
	const handshake = 22 // the content type of a TLS record (RFC 8446 §5.1)
	if first[0] == handshake {
		out = tls.Server(out, e.conf)
	}
	select {
	case e.ready <- out:
	case <-e.closed:
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (e *either) Accept() (net.Conn, error) {
	select {
	case c := <-e.ready:
		return c, nil
	case <-e.closed:
		return nil, e.err
	}
}

// Close implements net.Listener.
func (e *either) Close() error {
	err := e.Listener.Close()
	e.waiting.closeAll()
	e.wg.Wait()
	return err
}

// peeked is a connection whose first byte was read.
type peeked struct {
	net.Conn
	first []byte
}

// NetConn returns the connection under it.
func (p *peeked) NetConn() net.Conn { return p.Conn }

// Read implements net.Conn.
func (p *peeked) Read(b []byte) (int, error) {
	if len(p.first) > 0 && len(b) > 0 {
		n := copy(b, p.first)
		p.first = p.first[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}
