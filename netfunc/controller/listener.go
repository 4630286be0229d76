//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"time"

	"holocast/netfunc/controller/rest"
)

// connections shares out those of a listener, so that nobody takes everybody's. Strangers, edges and
// operators have room of their own: a connection counts as a stranger's until a request on it has shown a
// credential. Where there is no room left, overall or for one address, the connection that has been
// idle for longest goes.
type connections struct {
	most, perAddress int // of each class

	mu   sync.Mutex
	open map[*sharedConn]struct{}
}

func newConnections(most, perAddress int) *connections {
	return &connections{most: most, perAddress: perAddress, open: map[*sharedConn]struct{}{}}
}

// sharedConn is one of a listener. Its fields below mu are guarded by those of all.
type sharedConn struct {
	net.Conn
	all  *connections
	from netip.Prefix

	class rest.Class
	busy  int       // admitted requests under way
	idle  time.Time // since when, if busy is 0
}

// listener accepts connections that all shares out.
type listener struct {
	net.Listener
	all *connections
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &sharedConn{Conn: conn, all: l.all, from: origin(conn.RemoteAddr()), idle: time.Now()}
		if l.all.enter(c, rest.Stranger, 0) {
			return c, nil
		}
		_ = conn.Close()
	}
}

// enter gives c room in a class, and reports whether there is any.
func (all *connections) enter(c *sharedConn, class rest.Class, busy int) bool {
	displaced, ok := all.place(c, class, busy)
	if displaced != nil {
		_ = displaced.Close()
	}
	return ok
}

func (all *connections) place(c *sharedConn, class rest.Class, busy int) (displaced *sharedConn, ok bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if _, known := all.open[c]; !known || c.class != class {
		var total, same int
		var idle, idleSame *sharedConn // for longest
		for o := range all.open {
			if o == c || o.class != class {
				continue
			}
			total++
			if o.busy == 0 && (idle == nil || o.idle.Before(idle.idle)) {
				idle = o
			}
			if o.from != c.from {
				continue
			}
			same++
			if o.busy == 0 && (idleSame == nil || o.idle.Before(idleSame.idle)) {
				idleSame = o
			}
		}
		switch {
		case same >= all.perAddress:
			displaced, ok = idleSame, idleSame != nil
		case total >= all.most:
			displaced, ok = idle, idle != nil
		default:
			ok = true
		}
		if !ok {
			return nil, false
		}
		delete(all.open, displaced)
	}
	all.open[c] = struct{}{}
	c.class = class
	c.busy += busy
	return displaced, true
}

// Close implements net.Conn.
func (c *sharedConn) Close() error {
	c.all.mu.Lock()
	delete(c.all.open, c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}

type connectionKey struct{}

// withConnection is for http.Server.ConnContext: admitted finds the connection of a request.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// admitted has the connection of a request count as one of class from now on, and as busy until done is
// called. It reports false where those of the class are all busy.
func admitted(ctx context.Context, class rest.Class) (done func(), ok bool) {
	c, ok := ctx.Value(connectionKey{}).(*sharedConn)
	if !ok || !c.all.enter(c, class, 1) {
		return nil, false
	}
	return func() {
		c.all.mu.Lock()
		defer c.all.mu.Unlock()
		c.busy--
		c.idle = time.Now()
	}, true
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
