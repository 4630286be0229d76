package udpio

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Listen opens addr ("host:port"). control, if set, is called before the socket is bound.
func Listen(addr string, control func(network, address string, c syscall.RawConn) error) (*net.UDPConn, error) {
	ua, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen address %q: %w", addr, err)
	}
	c, err := (&net.ListenConfig{Control: control}).ListenPacket(context.Background(), "udp", ua.String())
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("UDP port %d is in use by another program", ua.Port)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on UDP %s: %w", addr, err)
	}
	return c.(*net.UDPConn), nil
}
