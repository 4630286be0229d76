package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// attachXDP attaches a program in native mode, or replaces the one attached.
func attachXDP(dir string, t target, program *ebpf.Program) error {
	pin := filepath.Join(dir, t.String())
	err := takeOver(pin, program, t.Interface)
	if err == nil || (!errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errGone)) {
		return err
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: t.Interface, Flags: link.XDPDriverMode})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, ebpf.ErrNotSupported):
		return fmt.Errorf("interface %s: %w in its driver, %s", t.name, ErrNoNativeXDP, driverOf(t.name))
	case errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST):
		return fmt.Errorf("interface %s has another XDP program: %w", t.name, err)
	case errors.Is(err, unix.ERANGE) || errors.Is(err, unix.EINVAL):
		return fmt.Errorf(
			"interface %s: driver %s rejects XDP; check that the MTU fits into a page and that there are enough queues: %w",
			t.name,
			driverOf(t.name),
			err,
		)
	case err != nil:
		return err
	}
	return pinLink(l, pin)
}

// driverOf returns the name of an interface's driver.
func driverOf(name string) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer func() { _ = unix.Close(fd) }()
		if info, err := unix.IoctlGetEthtoolDrvinfo(fd, name); err == nil {
			return unix.ByteSliceToString(info.Driver[:])
		}
	}
	if l, err := netlink.LinkByName(name); err == nil {
		return l.Type()
	}
	return "unknown"
}
