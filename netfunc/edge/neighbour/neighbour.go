//go:build linux

// Package neighbour tracks the link-layer state of an edge's paths: the device, its Ethernet
// address, and the next hop's Ethernet address.
//
// Packets redirected by an eBPF program bypass the kernel's neighbour subsystem, so nothing
// resolves or confirms their next hop. A Table does this. It follows the kernel's links and neighbours
// by netlink, and makes the kernel resolve missing or stale next hops.
package neighbour

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// refreshEvery is the interval of polling, which complements notifications because the kernel reports
// a lost carrier up to a second late, netlink drops notifications under load, and next hops must stay
// resolved.
const refreshEvery = 200 * time.Millisecond

// valid combines the neighbour states that have a usable address (the kernel's NUD_VALID).
const valid = netlink.NUD_PERMANENT | netlink.NUD_NOARP | netlink.NUD_REACHABLE |
	netlink.NUD_STALE | netlink.NUD_DELAY | netlink.NUD_PROBE

// A Hop describes where a path leaves the edge.
type Hop struct {
	Path      int        // 1 to 8
	Interface string     // device
	Address   netip.Addr // of the next hop; zero = taken from the route to Peer through the device
	Peer      netip.Addr // the other edge
}

// A State is the link-layer state of a hop.
type State struct {
	Interface int              // index of the device; 0 if missing
	Address   netip.Addr       // of the next hop
	Source    net.HardwareAddr // of the device
	NextHop   net.HardwareAddr // of the next hop; nil until resolved
	Up        bool             // packets can be sent
	Problem   string           // why not, in one sentence
	Resolving bool             // the problem is an unresolved next hop
}

func (s State) equal(o State) bool {
	return s.Interface == o.Interface && s.Address == o.Address && s.Up == o.Up && s.Problem == o.Problem &&
		bytes.Equal(s.Source, o.Source) && bytes.Equal(s.NextHop, o.NextHop)
}

// A Table follows the hops of an edge.
type Table struct {
	Hops      []Hop
	Changed   func(Hop, State) // called by Run with each hop's initial state and every change
	Namespace *netns.NsHandle  // of the devices; nil = the process's
	Log       *slog.Logger

	handle *netlink.Handle
	states map[int]State // by path
}

// Run follows the hops until ctx is done. It fails only if netlink is unavailable.
func (t *Table) Run(ctx context.Context) error {
	var err error
	if t.Namespace != nil {
		t.handle, err = netlink.NewHandleAt(*t.Namespace, unix.NETLINK_ROUTE)
	} else {
		t.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE)
	}
	if err != nil {
		return fmt.Errorf("open a netlink socket: %w", err)
	}
	defer t.handle.Close()
	t.states = make(map[int]State)
	for {
		err := t.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		t.Log.Warn("netlink subscription ended", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(refreshEvery):
		}
	}
}

// follow subscribes and updates the states until the subscription ends.
func (t *Table) follow(ctx context.Context) error {
	done := make(chan struct{})
	broken := make(chan error, 2)
	links, neighbours := make(chan netlink.LinkUpdate, 64), make(chan netlink.NeighUpdate, 64)
	report := func(err error) {
		select {
		case broken <- err:
		default:
		}
	}
	defer func() {
		close(done)
		for range links { // discard updates, to let the subscriptions end
		}
		for range neighbours {
		}
	}()
	if err := netlink.LinkSubscribeWithOptions(links, done, netlink.LinkSubscribeOptions{
		Namespace:     t.Namespace,
		ErrorCallback: report,
	}); err != nil {
		close(links)
		close(neighbours)
		return fmt.Errorf("subscribe to links: %w", err)
	}
	if err := netlink.NeighSubscribeWithOptions(neighbours, done, netlink.NeighSubscribeOptions{
		Namespace:     t.Namespace,
		ErrorCallback: report,
	}); err != nil {
		close(neighbours)
		return fmt.Errorf("subscribe to neighbours: %w", err)
	}
	tick := time.NewTicker(refreshEvery)
	defer tick.Stop()
	t.refresh(func(Hop) bool { return true })
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-broken:
			return err
		case <-tick.C:
			t.refresh(func(Hop) bool { return true })
		case u, ok := <-links:
			if !ok {
				return errors.New("links: netlink subscription closed")
			}
			name, index := u.Attrs().Name, u.Attrs().Index
			t.refresh(func(h Hop) bool { return h.Interface == name || t.states[h.Path].Interface == index })
		case u, ok := <-neighbours:
			if !ok {
				return errors.New("neighbours: netlink subscription closed")
			}
			address, _ := netip.AddrFromSlice(u.IP)
			address = address.Unmap()
			t.refresh(func(h Hop) bool {
				s := t.states[h.Path]
				return s.Interface == u.LinkIndex && s.Address.WithZone("") == address
			})
		}
	}
}

// refresh queries the kernel about the hops selected by which, and reports changes.
func (t *Table) refresh(which func(Hop) bool) {
	for _, h := range t.Hops {
		if !which(h) {
			continue
		}
		before, known := t.states[h.Path]
		now := t.look(h, before)
		t.states[h.Path] = now
		if !known || !now.equal(before) {
			t.Changed(h, now)
		}
	}
}

// look returns the current state of a hop whose previous state is before.
func (t *Table) look(h Hop, before State) State {
	link, err := t.handle.LinkByName(h.Interface)
	if err != nil {
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return State{Problem: fmt.Sprintf("interface %s does not exist", h.Interface)}
		}
		return State{Problem: fmt.Sprintf("interface %s: %v", h.Interface, err)}
	}
	a := link.Attrs()
	s := State{Interface: a.Index, Source: a.HardwareAddr, Address: h.Address}
	switch {
	case a.RawFlags&unix.IFF_UP == 0:
		s.Problem = fmt.Sprintf("interface %s is down", h.Interface)
		return s
	case a.RawFlags&unix.IFF_LOWER_UP == 0:
		s.Problem = fmt.Sprintf("interface %s has no carrier", h.Interface)
		return s
	case len(a.HardwareAddr) != 6:
		s.Problem = fmt.Sprintf("interface %s has no Ethernet address", h.Interface)
		return s
	}
	if !s.Address.IsValid() {
		if s.Address, err = t.route(h, a.Index); err != nil {
			s.Problem = fmt.Sprintf("no route to %s through interface %s: %v", h.Peer, h.Interface, err)
			return s
		}
	}
	state, address, err := t.find(s.Address, a.Index)
	if err != nil {
		s.Problem = fmt.Sprintf("neighbours of interface %s: %v", h.Interface, err)
		return s
	}
	switch {
	case state&valid != 0 && len(address) == 6:
		s.NextHop, s.Up = address, true
	case state&netlink.NUD_FAILED != 0:
		s.Problem = fmt.Sprintf("no answer for %s on interface %s", s.Address, h.Interface)
	case before.Up && before.Interface == s.Interface && before.Address == s.Address:
		// The kernel dropped the unused entry and is resolving it again.
		s.NextHop, s.Up = before.NextHop, true
	default:
		s.Resolving = true
		s.Problem = fmt.Sprintf("%s is not resolved yet on interface %s", s.Address, h.Interface)
	}
	if state&(netlink.NUD_PERMANENT|netlink.NUD_NOARP|netlink.NUD_REACHABLE|netlink.NUD_INCOMPLETE|netlink.NUD_DELAY|netlink.NUD_PROBE) == 0 {
		t.resolve(s.Address, a.Index)
	}
	return s
}

// route returns the next hop towards the peer through a device.
func (t *Table) route(h Hop, device int) (netip.Addr, error) {
	routes, err := t.handle.RouteGetWithOptions(h.Peer.AsSlice(), &netlink.RouteGetOptions{OifIndex: device})
	if err != nil {
		return netip.Addr{}, err
	}
	for _, r := range routes {
		if r.LinkIndex != device {
			continue
		}
		if gateway, ok := netip.AddrFromSlice(r.Gw); ok {
			return gateway.Unmap(), nil
		}
		return h.Peer, nil
	}
	return netip.Addr{}, errors.New("route leaves through another interface")
}

// find returns the state and Ethernet address of a neighbour. The state is NUD_NONE if it is unknown.
func (t *Table) find(address netip.Addr, device int) (int, net.HardwareAddr, error) {
	all, err := t.handle.NeighList(device, family(address))
	if err != nil {
		return 0, nil, err
	}
	for _, n := range all {
		if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == address.WithZone("") {
			return n.State, n.HardwareAddr, nil
		}
	}
	return netlink.NUD_NONE, nil, nil
}

// resolve makes the kernel resolve or confirm a neighbour (NTF_USE).
func (t *Table) resolve(address netip.Addr, device int) {
	err := t.handle.NeighSet(&netlink.Neigh{
		LinkIndex: device, Family: family(address), IP: address.AsSlice(), Flags: netlink.NTF_USE,
	})
	if err != nil {
		t.Log.Debug("cannot resolve neighbour", "address", address, "err", err)
	}
}

func family(a netip.Addr) int {
	if a.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}
