package bridge

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// SetCongestion sets the kernel's TCP congestion control, such as cubic or bbr, for connections
// that ln accepts.
func SetCongestion(ln net.Listener, name string) error {
	l, ok := ln.(*net.TCPListener)
	if !ok {
		return fmt.Errorf("%T has no congestion control", ln)
	}
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	if err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
	}); err != nil {
		return err
	}
	if set != nil {
		return fmt.Errorf(
			"TCP congestion control %q: %w; root may use any in sysctl net.ipv4.tcp_available_congestion_control",
			name, set,
		)
	}
	return nil
}
