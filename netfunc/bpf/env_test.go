package bpf

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// privileged skips a test that lacks the privileges for eBPF.
func privileged(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("not root: tests of eBPF programs need CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN")
	}
}

// pins returns a directory on a bpf file system private to the test.
func pins(t testing.TB) string {
	t.Helper()
	privileged(t)
	root := t.TempDir()
	if err := unix.Mount("bpf", root, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(root, "pair")
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
		// Disable duplicate address detection, router solicitations and reverse-path filtering.
		for name, value := range map[string]string{
			"ipv6/conf/all/accept_dad": "0", "ipv6/conf/default/accept_dad": "0",
			"ipv6/conf/default/router_solicitations": "0",
			"ipv4/conf/all/rp_filter":                "0", "ipv4/conf/default/rp_filter": "0",
		} {
			if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
				return err
			}
		}
		return nil
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
	h.up(t, "lo")
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

// do runs f in the host's namespace.
func (h *host) do(f func() error) error {
	return apart(func() error {
		if err := netns.Set(h.ns); err != nil {
			return err
		}
		return f()
	})
}

// must runs f in the host's namespace and fails the test if f fails.
func (h *host) must(t testing.TB, f func() error) {
	t.Helper()
	if err := h.do(f); err != nil {
		t.Fatal(err)
	}
}

// enable sets /proc/sys/net/<name> to 1.
func (h *host) enable(t testing.TB, name string) {
	t.Helper()
	h.must(t, func() error { return os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0) })
}

func (h *host) disable(t testing.TB, name string) {
	t.Helper()
	h.must(t, func() error { return os.WriteFile("/proc/sys/net/"+name, []byte("0"), 0) })
}

func (h *host) up(t testing.TB, name string) {
	t.Helper()
	if err := h.nl.LinkSetUp(h.link(t, name)); err != nil {
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

func (h *host) index(t testing.TB, name string) int { return h.link(t, name).Attrs().Index }

func (h *host) mac(t testing.TB, name string) net.HardwareAddr {
	return h.link(t, name).Attrs().HardwareAddr
}

func (h *host) address(t testing.TB, name, prefix string) {
	t.Helper()
	a, err := netlink.ParseAddr(prefix)
	if err != nil {
		t.Fatal(err)
	}
	a.Flags = unix.IFA_F_NODAD
	if err := h.nl.AddrAdd(h.link(t, name), a); err != nil {
		t.Fatalf("address %s: %v", prefix, err)
	}
}

// route adds a route for a prefix through a gateway.
func (h *host) route(t testing.TB, prefix, via string) {
	t.Helper()
	_, dst, err := net.ParseCIDR(prefix)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.nl.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)}); err != nil {
		t.Fatalf("route %s via %s: %v", prefix, via, err)
	}
}

// cable connects two hosts with a veth pair.
func cable(t testing.TB, a *host, aName string, b *host, bName string) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = aName
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: bName, PeerNamespace: netlink.NsFd(b.ns)}
	if err := a.nl.LinkAdd(veth); err != nil {
		t.Fatalf("veth %s: %v", aName, err)
	}
	a.up(t, aName)
	b.up(t, bName)
}

// tap captures the frames that an interface receives.
type tap struct{ fd int }

func (h *host) tap(t testing.TB, name string) *tap {
	t.Helper()
	tp := new(tap)
	index := h.index(t, name)
	h.must(t, func() (err error) {
		if tp.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(tp.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
			return err
		}
		return unix.Bind(tp.fd, &unix.SockaddrLinklayer{Protocol: 0x0300, Ifindex: index})
	})
	t.Cleanup(func() { _ = unix.Close(tp.fd) })
	return tp
}

// frames returns the frames received since the last call. The kernel delivers them before the
// sender continues.
func (tp *tap) frames() (frames [][]byte) {
	for {
		b := make([]byte, 1<<17)
		n, from, err := unix.Recvfrom(tp.fd, b, unix.MSG_DONTWAIT)
		if err != nil {
			return frames
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		frames = append(frames, b[:n])
	}
}

// send sends frames on an interface.
func (h *host) send(t testing.TB, name string, frames ...[]byte) {
	t.Helper()
	index := h.index(t, name)
	h.must(t, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		for _, frame := range frames {
			if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
				return err
			}
		}
		return nil
	})
}

// skb is the context of a TC program, struct __sk_buff in linux/bpf.h.
type skb struct {
	Len, PktType, Mark, QueueMapping, Protocol, VlanPresent, VlanTCI, VlanProto uint32
	Priority, IngressIfindex, Ifindex, TCIndex                                  uint32
	CB                                                                          [5]uint32
	Hash, TCClassID, Data, DataEnd, NapiID, Family, RemoteIP4, LocalIP4         uint32
	RemoteIP6, LocalIP6                                                         [4]uint32
	RemotePort, LocalPort, DataMeta                                             uint32
	FlowKeys, Tstamp                                                            uint64
	WireLen, GSOSegs                                                            uint32
	SK                                                                          uint64
	GSOSize                                                                     uint32
	TstampType                                                                  uint8
	_                                                                           [3]uint8
	Hwtstamp                                                                    uint64
}

// unpinned loads a specification's programs for test runs, without pins.
func unpinned(t testing.TB, spec *ebpf.CollectionSpec, err error) *ebpf.Collection {
	t.Helper()
	privileged(t)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(explain("load", err, requirements()))
	}
	t.Cleanup(c.Close)
	return c
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func pathBits(paths ...int) (bits uint8) {
	for _, p := range paths {
		if p < 1 || p > MaxPaths {
			panic(fmt.Sprint("path ", p))
		}
		bits |= 1 << (p - 1)
	}
	return bits
}
