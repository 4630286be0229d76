package moqt

import (
	"errors"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// bind makes a socket use a network interface.
func (p Path) bind(raw syscall.RawConn) error {
	device := p.Device
	named := device != ""
	if !named && p.Local.IsValid() && !p.Local.IsLoopback() {
		device = deviceOf(p.Local) // otherwise the routing table may send the packets elsewhere
	}
	if device == "" {
		return nil
	}
	var err error
	if failed := raw.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), device) }); failed != nil {
		return failed
	}
	if !named && errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}

// deviceOf returns the name of the network interface with an address, or "" if there is none.
func deviceOf(a netip.Addr) string {
	all, _ := net.Interfaces()
	for _, i := range all {
		list, _ := i.Addrs()
		for _, has := range list {
			if prefix, err := netip.ParsePrefix(has.String()); err == nil && prefix.Addr() == a.Unmap() {
				return i.Name
			}
		}
	}
	return ""
}
