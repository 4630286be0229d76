package qmux

import "time"

// PathStats are TCP's view of the path.
type PathStats struct {
	Controller       string  // congestion control: "bbr", "cubic", …
	Bandwidth        float64 // bytes/s
	RTT, MinRTT      time.Duration
	Window, InFlight uint64 // bytes
	Delivered        uint64 // bytes acknowledged
	Retransmitted    uint64 // packets
	AppLimited       bool   // everything written was sent, so Bandwidth may be too low
}

// Path returns TCP's view of the path, or false if the link or the system does not tell.
func (c *Conn) Path() (PathStats, bool) {
	if l, ok := c.link.(interface{ path() (PathStats, bool) }); ok {
		return l.path()
	}
	return PathStats{}, false
}
