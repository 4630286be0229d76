//go:build !linux

package udpio

import "net"

// Wrap returns c: what this package does is known for Linux only.
func Wrap(c *net.UDPConn) net.PacketConn { return c }

// DisableGRO does nothing: there is none.
func DisableGRO(*net.UDPConn) {}

// DropStrays does nothing: there are none.
func DropStrays(net.PacketConn) {}

// Tap does nothing: what is received is not read here.
func Tap(net.PacketConn, func(*net.UDPAddr, []byte, int)) {}
