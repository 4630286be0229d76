package multipath

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"time"
)

// PathStats describes a path of a bundle. Counters include its former connections.
type PathStats struct {
	Name          string
	Local, Remote net.Addr // nil before the first connection
	RTT           time.Duration
	Rate          float64   // bytes/s that the path carries, estimated; 0 = unknown
	Sent          uint64    // bytes of segments, with copies
	Acked         uint64    // of them acknowledged
	Copies        uint64    // of them sent by another path too
	Received      uint64    // bytes of its packets
	Repeated      uint64    // bytes of received segments that had arrived before
	Share         float64   // of the bytes that all paths have sent and received
	Down          bool      // silent although data is under way, or not connected
	Since         time.Time // of the connection
}

// with returns s with p's counters added. It also describes p, unless p is down and s describes a
// connection that is up.
func (s PathStats) with(p *path) PathStats {
	st := p.qc.ConnectionStats()
	if s.Down || s.Local == nil || !p.down {
		s.Name, s.Local, s.Remote, s.RTT = p.name, p.qc.LocalAddr(), p.qc.RemoteAddr(), st.SmoothedRTT
		s.Rate, s.Down, s.Since = p.estimate.Rate, p.down, p.since
	}
	s.Sent += p.sent
	s.Acked += p.acked
	s.Copies += p.copied
	s.Received += st.BytesReceived
	s.Repeated += p.repeated
	return s
}

// remember keeps the statistics of a path without a connection. A peer may invent names, so it keeps only
// a few.
func (c *Conn) remember(s PathStats) {
	if _, known := c.former[s.Name]; known || len(c.former) < maxPaths {
		c.former[s.Name] = s
	}
}

// Paths returns the statistics of all paths, with and without a connection, sorted by name. Connections
// of the same name count as one path.
func (c *Conn) Paths() []PathStats {
	c.mu.Lock()
	byName := maps.Clone(c.former)
	for _, p := range c.paths {
		byName[p.name] = byName[p.name].with(p)
	}
	c.mu.Unlock()
	list := slices.SortedFunc(maps.Values(byName), func(a, b PathStats) int { return cmp.Compare(a.Name, b.Name) })
	var sum uint64
	for _, s := range list {
		sum += s.Sent + s.Received
	}
	for i, s := range list {
		list[i].Share = float64(s.Sent+s.Received) / float64(max(sum, 1))
	}
	return list
}
