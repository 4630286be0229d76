package bridge

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// SetCongestion chooses the congestion control of the kernel's TCP, such as cubic or bbr, for
// the connections that ln will accept.
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
		return fmt.Errorf("the kernel's TCP does not take %q: %w; it has those of sysctl net.ipv4.tcp_available_congestion_control, and allows all of them to root", name, set)
	}
	return nil
}
