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

// connections divides a listener's connections fairly. Strangers, edges and operators have separate
// quotas; a connection counts as a stranger's until a request on it presents a valid credential. When
// a limit (total, per address or per edge) is reached, the connection that has been idle longest is
// closed.
type connections struct {
	most, perAddress int // per class
	perEdge          int // per edge with its own credential

	mu   sync.Mutex
	open map[*sharedConn]struct{}
}

func newConnections(most, perAddress, perEdge int) *connections {
	return &connections{most: most, perAddress: perAddress, perEdge: perEdge, open: map[*sharedConn]struct{}{}}
}

// sharedConn is one of a listener's connections. The fields below mu are guarded by connections.mu.
type sharedConn struct {
	net.Conn
	all  *connections
	from netip.Prefix

	caller rest.Caller
	busy   int       // admitted requests in progress
	idle   time.Time // start of the idle time, if busy is 0
}

// listener accepts connections up to the limits in all.
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

// enter admits c as one of a caller's connections, and reports whether there was room.
func (all *connections) enter(c *sharedConn, caller rest.Caller, busy int) bool {
	displaced, ok := all.place(c, caller, busy)
	if displaced != nil {
		_ = displaced.Close()
	}
	return ok
}

// share counts the connections that one limit applies to.
type share struct {
	count int
	idle  *sharedConn // idle longest
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

// withConnection is an http.Server.ConnContext hook. It stores the connection in the context, where
// admitted finds it.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// admitted counts a request's connection as the caller's from now on, and as busy until done is
// called. It returns false if the limit is reached and no other connection is idle.
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

// origin returns an IPv4 address as a /32, or the /64 of an IPv6 address, since one host may own a
// whole /64.
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
