//go:build linux && (amd64 || arm64)

package kernel

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

func privileged(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: tests of eBPF programs need CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN")
	}
}

// host is a network namespace private to the test. It disappears with its last user.
type host struct {
	ns netns.NsHandle
	nl *netlink.Handle
}

func newHost(t testing.TB) *host {
	t.Helper()
	privileged(t)
	h := new(host)
	err := apart(func() (err error) {
		if h.ns, err = netns.New(); err != nil {
			return err
		}
		return os.WriteFile("/proc/sys/net/ipv6/conf/default/accept_dad", []byte("0"), 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	if h.nl, err = netlink.NewHandleAt(h.ns, unix.NETLINK_ROUTE); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.nl.Close()
		_ = h.ns.Close()
	})
	return h
}

// apart runs f on a thread that is discarded afterwards, so f may change its namespace.
func apart(f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		result <- f()
	}()
	return <-result
}

// must runs f in the host's namespace.
func (h *host) must(t testing.TB, f func() error) {
	t.Helper()
	if err := apart(func() error {
		if err := netns.Set(h.ns); err != nil {
			return err
		}
		return f()
	}); err != nil {
		t.Fatal(err)
	}
}

func (h *host) link(t testing.TB, name string) netlink.Link {
	t.Helper()
	l, err := h.nl.LinkByName(name)
	if err != nil {
		t.Fatalf("link %s: %v", name, err)
	}
	return l
}

// cable connects two hosts with a veth pair. Each end has the other host's name.
func cable(t testing.TB, a *host, aName string, aPrefixes []string, b *host, bName string, bPrefixes []string) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = aName
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: bName, PeerNamespace: netlink.NsFd(b.ns)}
	if err := a.nl.LinkAdd(veth); err != nil {
		t.Fatalf("veth %s: %v", aName, err)
	}
	a.up(t, aName, aPrefixes)
	b.up(t, bName, bPrefixes)
}

func (h *host) up(t testing.TB, name string, prefixes []string) {
	t.Helper()
	l := h.link(t, name)
	for _, p := range prefixes {
		a, err := netlink.ParseAddr(p)
		if err != nil {
			t.Fatal(err)
		}
		a.Flags = unix.IFA_F_NODAD
		if err := h.nl.AddrAdd(l, a); err != nil {
			t.Fatalf("address %s: %v", p, err)
		}
	}
	if err := h.nl.LinkSetUp(l); err != nil {
		t.Fatal(err)
	}
}

// listen opens a UDP socket in the host.
func (h *host) listen(t testing.TB, addr string) *net.UDPConn {
	t.Helper()
	var c *net.UDPConn
	h.must(t, func() (err error) {
		c, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
		return err
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// receive returns the next packet and its source, or nil if none arrives within wait.
func receive(t testing.TB, c *net.UDPConn, wait time.Duration) ([]byte, netip.AddrPort) {
	t.Helper()
	b := make([]byte, 2048)
	_ = c.SetReadDeadline(time.Now().Add(wait))
	n, from, err := c.ReadFromUDPAddrPort(b)
	if err != nil {
		return nil, from
	}
	return b[:n], netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
}

func send(t testing.TB, c *net.UDPConn, b []byte, to netip.AddrPort) {
	t.Helper()
	if _, err := c.WriteToUDPAddrPort(b, to); err != nil {
		t.Fatal(err)
	}
}

// sendFrames sends frames on an interface with their checksums unchanged.
func (h *host) sendFrames(t testing.TB, name string, frames ...[]byte) {
	t.Helper()
	index := h.link(t, name).Attrs().Index
	h.must(t, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		for _, f := range frames {
			if err := unix.Sendto(fd, f, 0, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
				return fmt.Errorf("send a frame: %w", err)
			}
		}
		return nil
	})
}
