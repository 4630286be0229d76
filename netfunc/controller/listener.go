//go:build linux

package main

import (
	"net"
	"net/netip"
	"sync"
)

// addressListener closes connections beyond a number from one address, so that nobody takes
// those of all.
type addressListener struct {
	net.Listener
	most int

	mu   sync.Mutex
	open map[netip.Prefix]int
}

func newAddressListener(ln net.Listener, most int) *addressListener {
	return &addressListener{Listener: ln, most: most, open: map[netip.Prefix]int{}}
}

// Accept implements net.Listener.
func (l *addressListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := origin(conn.RemoteAddr())
		if l.take(from) {
			return &addressConn{Conn: conn, release: sync.OnceFunc(func() { l.release(from) })}, nil
		}
		_ = conn.Close()
	}
}

func (l *addressListener) take(from netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from] >= l.most {
		return false
	}
	l.open[from]++
	return true
}

func (l *addressListener) release(from netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from]--; l.open[from] == 0 {
		delete(l.open, from)
	}
}

// origin is an IPv4 address, or the /64 of an IPv6 address, which one host has to itself.
func origin(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	p, _ := ip.Prefix(bits)
	return p
}

// addressConn is a connection that is counted until it is closed.
type addressConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *addressConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
