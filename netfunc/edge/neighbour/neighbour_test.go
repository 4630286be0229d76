//go:build linux

package neighbour

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"holocast/internal/leaktest"
	"holocast/internal/netlab/namespace"
	"holocast/internal/netlab/namespace/namespacetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// wire is a cable between two namespaces.
type wire struct {
	t               *testing.T
	near, far       *namespace.Namespace
	nearEnd, farEnd namespace.End
	states          chan State
}

func (w *wire) link(e namespace.End) netlink.Link {
	w.t.Helper()
	l, err := e.Link()
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

func (w *wire) address(e namespace.End, prefix string) {
	w.t.Helper()
	a, err := netlink.ParseAddr(prefix)
	if err != nil {
		w.t.Fatal(err)
	}
	a.Flags = 0x02 // IFA_F_NODAD: usable immediately
	if err := e.Namespace.Handle.AddrAdd(w.link(e), a); err != nil {
		w.t.Fatal(err)
	}
}

// until waits for a state that ok accepts.
func (w *wire) until(what string, ok func(State) bool) State {
	w.t.Helper()
	limit := time.After(2 * time.Minute)
	var last State
	for {
		select {
		case last = <-w.states:
			if ok(last) {
				return last
			}
		case <-limit:
			w.t.Fatalf("%s: not reached; last %+v", what, last)
		}
	}
}

func start(t *testing.T, hop Hop, prepare func(*wire)) *wire {
	if err := namespace.Supported(); err != nil {
		t.Skip("neighbours need namespaces:", err)
	}
	t.Parallel()
	g := namespacetest.NewGroup(t)
	var err error
	w := &wire{t: t, states: make(chan State, 64)}
	for _, n := range []struct {
		name string
		into **namespace.Namespace
	}{{"near", &w.near}, {"far", &w.far}} {
		if *n.into, err = g.Add(n.name); err != nil {
			t.Fatal(err)
		}
	}
	w.nearEnd, w.farEnd = namespace.End{Namespace: w.near, Device: "wan1"}, namespace.End{
		Namespace: w.far,
		Device:    "wan1",
	}
	prepare(w)
	fd := netns.NsHandle(w.near.FD())
	table := &Table{
		Hops: []Hop{hop}, Namespace: &fd, Log: slog.New(slog.DiscardHandler),
		Changed: func(_ Hop, s State) { w.states <- s },
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- table.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

func up(s State) bool { return s.Up }

func problem(text string) func(State) bool {
	return func(s State) bool { return !s.Up && strings.Contains(s.Problem, text) }
}

func TestTable(t *testing.T) {
	for name, c := range map[string]struct {
		near, far string // addresses
		hop       Hop
	}{
		"IPv4, next hop configured": {"10.1.0.1/24", "10.1.0.2/24", Hop{
			Path: 1, Interface: "wan1",
			Address: netip.MustParseAddr("10.1.0.2"),
		}},
		"IPv4, peer on the link": {"10.1.0.1/24", "10.1.0.2/24", Hop{
			Path: 1, Interface: "wan1",
			Peer: netip.MustParseAddr("10.1.0.2"),
		}},
		"IPv6": {"fd00::1/64", "fd00::2/64", Hop{
			Path: 1, Interface: "wan1",
			Address: netip.MustParseAddr("fd00::2"),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, c.hop, func(*wire) {})
			w.until("no device", problem("interface wan1 does not exist"))
			if err := namespace.Connect(w.nearEnd, w.farEnd); err != nil {
				t.Fatal(err)
			}
			w.address(w.nearEnd, c.near)
			w.address(w.farEnd, c.far)
			s := w.until("resolved", up)
			if far := w.link(w.farEnd).Attrs().HardwareAddr; s.NextHop.String() != far.String() {
				t.Errorf("next hop %s, want %s", s.NextHop, far)
			}
			if near := w.link(w.nearEnd).Attrs(); s.Source.String() != near.HardwareAddr.String() ||
				s.Interface != near.Index {
				t.Errorf("%+v, want source %s of device %d", s, near.HardwareAddr, near.Index)
			}

			if err := w.far.Handle.LinkSetDown(w.link(w.farEnd)); err != nil {
				t.Fatal(err)
			}
			w.until("carrier lost", problem("interface wan1 has no carrier"))
			if err := w.near.Handle.LinkSetDown(w.link(w.nearEnd)); err != nil {
				t.Fatal(err)
			}
			w.until("down", problem("interface wan1 is down"))
			other := net.HardwareAddr{2, 0, 0, 0, 0, 9}
			if err := w.far.Handle.LinkSetHardwareAddr(w.link(w.farEnd), other); err != nil {
				t.Fatal(err)
			}
			if err := w.far.Handle.LinkSetUp(w.link(w.farEnd)); err != nil {
				t.Fatal(err)
			}
			if s.Address.Is6() { // the kernel removes IPv6 addresses with the link
				w.address(w.farEnd, c.far)
			}
			if err := w.near.Handle.LinkSetUp(w.link(w.nearEnd)); err != nil {
				t.Fatal(err)
			}
			if s.Address.Is6() {
				w.address(w.nearEnd, c.near)
			}
			w.until("up again with another address",
				func(s State) bool { return s.Up && s.NextHop.String() == other.String() })

			if err := w.near.Handle.LinkDel(w.link(w.nearEnd)); err != nil {
				t.Fatal(err)
			}
			w.until("device removed", problem("does not exist"))
		})
	}
}

// TestGateway checks that a peer behind a router is reached through the router.
func TestGateway(t *testing.T) {
	w := start(t, Hop{Path: 1, Interface: "wan1", Peer: netip.MustParseAddr("10.9.0.2")}, func(w *wire) {
		if err := namespace.Connect(w.nearEnd, w.farEnd); err != nil {
			t.Fatal(err)
		}
		w.address(w.nearEnd, "10.1.0.1/24")
		w.address(w.farEnd, "10.1.0.254/24")
	})
	// Without a route the kernel assumes that the peer is on the link.
	w.until("no route", problem("10.9.0.2 is not resolved yet on interface wan1"))
	route := &netlink.Route{
		LinkIndex: w.link(w.nearEnd).Attrs().Index, Gw: net.IPv4(10, 1, 0, 254),
		Dst: &net.IPNet{IP: net.IPv4(10, 9, 0, 0).To4(), Mask: net.CIDRMask(24, 32)},
	}
	if err := w.near.Handle.RouteAdd(route); err != nil {
		t.Fatal(err)
	}
	s := w.until("resolved", up)
	if s.Address != netip.MustParseAddr("10.1.0.254") {
		t.Errorf("next hop %s, want the router", s.Address)
	}
}

// TestSilent checks that a next hop that does not answer is reported.
func TestSilent(t *testing.T) {
	w := start(t, Hop{Path: 1, Interface: "wan1", Address: netip.MustParseAddr("10.1.0.77")}, func(w *wire) {
		if err := namespace.Connect(w.nearEnd, w.farEnd); err != nil {
			t.Fatal(err)
		}
		w.address(w.nearEnd, "10.1.0.1/24")
	})
	w.until("unanswered", problem("no answer for 10.1.0.77 on interface wan1"))
}

// TestForgotten checks that an entry dropped by the kernel stays in use while it is resolved again.
func TestForgotten(t *testing.T) {
	w := start(t, Hop{Path: 1, Interface: "wan1", Address: netip.MustParseAddr("10.1.0.2")}, func(w *wire) {
		if err := namespace.Connect(w.nearEnd, w.farEnd); err != nil {
			t.Fatal(err)
		}
		w.address(w.nearEnd, "10.1.0.1/24")
		w.address(w.farEnd, "10.1.0.2/24")
	})
	w.until("resolved", up)
	index := w.link(w.nearEnd).Attrs().Index
	for range 3 {
		if err := w.near.Handle.NeighDel(&netlink.Neigh{
			LinkIndex: index,
			IP:        net.IPv4(10, 1, 0, 2).To4(),
		}); err != nil {
			t.Fatal(err)
		}
		select {
		case s := <-w.states:
			t.Fatalf("state changed to %+v", s)
		case <-time.After(300 * time.Millisecond):
		}
	}
	list, err := w.near.Handle.NeighList(index, netlink.FAMILY_V4)
	if err != nil || len(list) != 1 || list[0].State&valid == 0 {
		t.Fatalf("the kernel's neighbours are %v (%v), want one resolved", list, err)
	}
}
