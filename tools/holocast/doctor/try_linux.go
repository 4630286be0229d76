package doctor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// loadEmpty loads a program that passes every packet: r0 = 0; exit.
func loadEmpty(kind uint32) error {
	code := [2]uint64{0x00000000000000b7, 0x0000000000000095}
	license := [4]byte{'G', 'P', 'L', 0}
	// The used fields of union bpf_attr for BPF_PROG_LOAD (include/uapi/linux/bpf.h).
	attr := struct {
		kind, count        uint32
		code, license      uint64
		logLevel, logSize  uint32
		log                uint64
		version, flags     uint32
		name               [16]byte
		ifindex, attachAim uint32
	}{
		kind: kind, count: uint32(len(code)),
		code:    uint64(uintptr(unsafe.Pointer(&code[0]))),
		license: uint64(uintptr(unsafe.Pointer(&license[0]))),
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(&code)
	runtime.KeepAlive(&license)
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}

// tryGSO checks that UDP sockets have the option UDP_SEGMENT (udp(7)).
func tryGSO() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	_, err = unix.GetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT)
	return err
}

// tryNetem adds a netem qdisc to loopback in a new network namespace, which ends with its thread.
func tryNetem() error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		result <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				if errors.Is(err, unix.EPERM) {
					return errNotTried
				}
				return err
			}
			return addNetem()
		}()
	}()
	return <-result
}

// addNetem adds a netem qdisc to interface 1, the loopback, with RTM_NEWQDISC (rtnetlink(7)).
func addNetem() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	const (
		headerLen = unix.SizeofNlMsghdr + 20 // including struct tcmsg
		tcaKind   = 1
		tcaOption = 2
	)
	attribute := func(b []byte, kind uint16, value []byte) []byte {
		b = binary.NativeEndian.AppendUint16(b, uint16(4+len(value)))
		b = binary.NativeEndian.AppendUint16(b, kind)
		b = append(b, value...)
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
		return b
	}
	options := make([]byte, 24)                      // struct tc_netem_qopt
	binary.NativeEndian.PutUint32(options[4:], 1000) // limit, packets
	b := make([]byte, headerLen)
	b = attribute(b, tcaKind, []byte("netem\x00"))
	b = attribute(b, tcaOption, options)
	binary.NativeEndian.PutUint32(b[0:], uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.RTM_NEWQDISC)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	binary.NativeEndian.PutUint32(b[20:], 1)           // tcm_ifindex
	binary.NativeEndian.PutUint32(b[28:], 0xffff_ffff) // tcm_parent: TC_H_ROOT
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("netlink replied with %d bytes that are not an acknowledgment", n)
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
