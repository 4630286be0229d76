package service

import (
	"container/list"
	"net"
	"net/http"
	"sync"

	"golang.org/x/sys/unix"
)

// maxConns returns the maximum number of a listener's HTTP connections: 512 or an eighth of the
// process's descriptors, whichever is less. The others remain for sockets, files and child processes.
func maxConns() int {
	const most = 512
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return most
	}
	return int(max(1, min(most, limit.Cur/8)))
}

// conns bounds a server's open connections. Beyond the bound it closes the oldest one, so
// silent clients do not keep out others.
type conns struct {
	most int

	mu   sync.Mutex
	open map[net.Conn]*list.Element
	age  list.List // of net.Conn, the oldest first
}

func newestConns(most int) *conns { return &conns{most: most, open: map[net.Conn]*list.Element{}} }

// track implements http.Server.ConnState.
func (c *conns) track(conn net.Conn, state http.ConnState) {
	var oldest net.Conn
	c.mu.Lock()
	switch state {
	case http.StateNew:
		c.open[conn] = c.age.PushBack(conn)
		if len(c.open) > c.most {
			oldest = c.age.Front().Value.(net.Conn)
			c.forget(oldest)
		}
	case http.StateClosed, http.StateHijacked:
		c.forget(conn)
	}
	c.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
}

// forget removes a connection if it is known. The caller holds c.mu.
func (c *conns) forget(conn net.Conn) {
	if e := c.open[conn]; e != nil {
		c.age.Remove(e)
		delete(c.open, conn)
	}
}

// closeAll closes all open connections.
func (c *conns) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		_ = conn.Close()
	}
}
