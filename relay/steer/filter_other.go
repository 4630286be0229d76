//go:build !linux

package steer

import (
	"net"

	"golang.org/x/net/bpf"
)

// attach does nothing on this platform; user space drops junk after receiving it.
func attach(*net.UDPConn, []bpf.Instruction) error { return nil }
