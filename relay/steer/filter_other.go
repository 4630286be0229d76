//go:build !linux

package steer

import (
	"net"

	"golang.org/x/net/bpf"
)

// attach does nothing: junk is dropped once it has been received.
func attach(*net.UDPConn, []bpf.Instruction) error { return nil }
