package steer

import (
	"errors"
	"net"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// attach sets a socket's filter, with which the kernel drops rejected datagrams before queueing them.
func attach(c *net.UDPConn, filter []bpf.Instruction) error {
	list, err := bpf.Assemble(filter)
	if err != nil {
		return err
	}
	program := make([]unix.SockFilter, len(list))
	for i, one := range list {
		program[i] = unix.SockFilter{Code: one.Op, Jt: one.Jt, Jf: one.Jf, K: one.K}
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	e := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(
			int(fd),
			unix.SOL_SOCKET,
			unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]},
		)
	})
	return errors.Join(e, err)
}
