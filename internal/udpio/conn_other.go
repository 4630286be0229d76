//go:build !linux

package udpio

import "net"

// Wrap returns c, because this package supports only Linux.
func Wrap(c *net.UDPConn) net.PacketConn { return c }

// DisableGRO does nothing, because the system has no GRO.
func DisableGRO(*net.UDPConn) {}

// DropStrays does nothing, because sockets are not selected by connection ID.
func DropStrays(net.PacketConn) {}

// Tap does nothing, because this package does not read the socket.
func Tap(net.PacketConn, func(*net.UDPAddr, []byte, int)) {}
