//go:build linux && (amd64 || arm64)

package fastpath

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"holocast/internal/netlab/namespace"
)

// Addresses.
const (
	relayPort   = 4443
	viewerPort  = 6000 // port of the first viewer, for ways whose ports the benchmark chooses
	publisherIP = "10.76.1.1"
	relayUpIP   = "10.76.1.2"
	relayDownIP = "10.76.2.2"
	viewerIP    = "10.76.2.1"
)

// lab is the network of one cell.
type lab struct {
	group                    *namespace.Group
	publisher, relay, viewer *namespace.Namespace
	ends                     map[string]namespace.End // the relay's interfaces
	up, down                 *capture
	closing                  chan struct{}
}

func newLab() (_ *lab, err error) {
	l := &lab{ends: map[string]namespace.End{}, closing: make(chan struct{})}
	if l.group, err = namespace.NewGroup(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.group.Close())
		}
	}()
	for _, n := range []struct {
		name string
		to   **namespace.Namespace
	}{{"publisher", &l.publisher}, {"relay", &l.relay}, {"viewer", &l.viewer}} {
		if *n.to, err = l.group.Add(n.name); err != nil {
			return nil, err
		}
	}
	if err := l.cable(l.publisher, publisherIP, relayUpIP, "up"); err != nil {
		return nil, err
	}
	if err := l.cable(l.viewer, viewerIP, relayDownIP, "down"); err != nil {
		return nil, err
	}
	return l, l.relay.Set("net/ipv4/ip_forward", "1")
}

// cable connects a host to the relay and adds the host's default route.
func (l *lab) cable(host *namespace.Namespace, hostIP, relayIP, device string) error {
	a, b := namespace.End{Namespace: host, Device: "relay"}, namespace.End{Namespace: l.relay, Device: device}
	if err := namespace.Connect(a, b); err != nil {
		return err
	}
	l.ends[device] = b
	for end, ip := range map[namespace.End]string{a: hostIP, b: relayIP} {
		link, err := end.Link()
		if err != nil {
			return err
		}
		address, err := netlink.ParseAddr(ip + "/24")
		if err != nil {
			return err
		}
		if err := end.Namespace.Handle.AddrAdd(link, address); err != nil {
			return fmt.Errorf("add address %s: %w", ip, err)
		}
	}
	return host.Handle.RouteAdd(&netlink.Route{Gw: net.ParseIP(relayIP)})
}

func (l *lab) capture() (err error) {
	if l.up, err = startCapture(l.ends["up"], false); err != nil {
		return err
	}
	if l.down, err = startCapture(l.ends["down"], true); err != nil {
		return err
	}
	go l.up.run(l.closing)
	go l.down.run(l.closing)
	return nil
}

// halt stops the captures.
func (l *lab) halt() {
	if l.up == nil || l.down == nil {
		return
	}
	select {
	case <-l.closing:
	default:
		close(l.closing)
		<-l.up.done
		<-l.down.done
		_ = l.up.close()
		_ = l.down.close()
	}
}

func (l *lab) close() error {
	l.halt()
	return l.group.Close()
}

// listen opens a UDP socket in a namespace.
func listen(n *namespace.Namespace, ip string, port int) (c *net.UDPConn, err error) {
	err = n.Do(func() (err error) {
		c, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(ip),
			uint16(port))))
		return err
	})
	return c, err
}

// discard reads a socket until it is closed.
func discard(c *net.UDPConn) {
	b := make([]byte, 2048)
	for {
		if _, _, err := c.ReadFromUDPAddrPort(b); err != nil {
			return
		}
	}
}
