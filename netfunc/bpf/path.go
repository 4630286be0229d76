package bpf

import (
	"fmt"
	"net"
)

// MaxPaths is the maximum number of paths between a pair of edges, one per bit of a policy's byte.
const MaxPaths = 8

// Path is a path from the sender to the receiver.
type Path struct {
	Index     int              // 1 to MaxPaths
	Interface int              // index of the outgoing interface
	Source    net.HardwareAddr // of the outgoing interface
	NextHop   net.HardwareAddr // of the next router, or of the receiver
	// Up is false if the path cannot carry packets because it has no carrier, is administratively
	// down or has no neighbour. It then carries no replicas, even if a policy includes it.
	Up bool
}

// Codepoint returns the DSCP of path index (1 to MaxPaths), one of 3, 7, … 31 from codepoint pool 2
// (xxxx11, experimental and local use; RFC 2474 §6).
func Codepoint(index int) uint8 { return uint8(4*(index-1) + 3) }

// check validates a path.
func (p Path) check() error {
	switch {
	case p.Index < 1 || p.Index > MaxPaths:
		return fmt.Errorf("path %d: paths are numbered 1 to %d", p.Index, MaxPaths)
	case p.Up && p.Interface <= 0:
		return fmt.Errorf("path %d is up but has no interface", p.Index)
	case p.Up && (len(p.Source) != 6 || len(p.NextHop) != 6):
		return fmt.Errorf("path %d is up but has no Ethernet addresses", p.Index)
	}
	return nil
}
