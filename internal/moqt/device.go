package moqt

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"syscall"
)

// listen opens the path's UDP socket.
func (p Path) listen() (*net.UDPConn, error) {
	local := p.Local
	if p.Device != "" && runtime.GOOS != "linux" && !local.IsValid() {
		var err error
		if local, err = addressOf(p.Device); err != nil {
			return nil, err
		}
	}
	address := ""
	if local.IsValid() {
		address = netip.AddrPortFrom(local, 0).String()
	}
	var bound error
	l := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		bound = p.bind(raw)
		return bound
	}}
	conn, err := l.ListenPacket(context.Background(), "udp", address)
	switch {
	case bound != nil:
		return nil, fmt.Errorf("use network interface %s: %w", p.Device, bound)
	case err != nil:
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}

// addressOf returns an address of a network interface, other than link-local ones.
func addressOf(device string) (netip.Addr, error) {
	i, err := net.InterfaceByName(device)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("network interface %s: %w", device, err)
	}
	list, err := i.Addrs()
	if err != nil {
		return netip.Addr{}, fmt.Errorf("network interface %s: %w", device, err)
	}
	for _, a := range list {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && !prefix.Addr().IsLinkLocalUnicast() {
			return prefix.Addr(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("network interface %s has no address", device)
}
