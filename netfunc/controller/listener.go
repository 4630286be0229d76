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
// credential. Where there is no room left, overall, for one address or for one edge, the connection that has been
// idle for longest goes.
type connections struct {
	most, perAddress int // of each class
	perEdge          int // of an edge with a credential of its own

	mu   sync.Mutex
	open map[*sharedConn]struct{}
}

func newConnections(most, perAddress, perEdge int) *connections {
	return &connections{most: most, perAddress: perAddress, perEdge: perEdge, open: map[*sharedConn]struct{}{}}
}

// sharedConn is one of a listener. Its fields below mu are guarded by those of all.
type sharedConn struct {
	net.Conn
	all  *connections
	from netip.Prefix

	caller rest.Caller
	busy   int       // admitted requests under way
	idle   time.Time // since when, if busy is 0
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
		if l.all.enter(c, rest.Caller{}, 0) {
			return c, nil
		}
		_ = conn.Close()
	}
}

// enter gives c room as one of a caller's, and reports whether there is any.
func (all *connections) enter(c *sharedConn, caller rest.Caller, busy int) bool {
	displaced, ok := all.place(c, caller, busy)
	if displaced != nil {
		_ = displaced.Close()
	}
	return ok
}

// share counts connections that have room together.
type share struct {
	count int
	idle  *sharedConn // for longest
}

func (s *share) add(c *sharedConn) {
	s.count++
	if c.busy == 0 && (s.idle == nil || c.idle.Before(s.idle.idle)) {
		s.idle = c
	}
}

func (all *connections) place(c *sharedConn, caller rest.Caller, busy int) (displaced *sharedConn, ok bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if _, known := all.open[c]; !known || c.caller != caller {
		var class, address, edge share
		for o := range all.open {
			if o == c || o.caller.Class != caller.Class {
				continue
			}
			class.add(o)
			if o.from == c.from {
				address.add(o)
			}
			if caller.Edge != "" && o.caller.Edge == caller.Edge {
				edge.add(o)
			}
		}
		var full *share
		switch {
		case edge.count >= all.perEdge:
			full = &edge
		case address.count >= all.perAddress:
			full = &address
		case class.count >= all.most:
			full = &class
		}
		if full != nil {
			if displaced = full.idle; displaced == nil {
				return nil, false
			}
			delete(all.open, displaced)
		}
	}
	all.open[c] = struct{}{}
	c.caller = caller
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

// admitted has the connection of a request count as one of a caller's from now on, and as busy until done is
// called. It reports false where there is no room for it and none of those that have it is idle.
func admitted(ctx context.Context, caller rest.Caller) (done func(), ok bool) {
	c, ok := ctx.Value(connectionKey{}).(*sharedConn)
	if !ok || !c.all.enter(c, caller, 1) {
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
