//go:build linux

package netlab

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"holocast/internal/netlab/namespace"
	"holocast/internal/netlab/wire"
)

// wireNode is the namespace that holds the middle of every emulated path. No node can have its
// name.
const wireNode = "_wire"

// hasIPv6 reports whether IPv6 is enabled in this kernel.
func hasIPv6() bool {
	_, err := os.Stat("/proc/sys/net/ipv6")
	return err == nil
}

// A setting is a file under /proc/sys and its value.
type setting struct{ name, value string }

func (l *Lab) addNodes() error {
	common := []setting{
		{"net/ipv4/conf/all/rp_filter", "0"}, // replicas arrive on paths without a return route
		{"net/ipv4/conf/default/rp_filter", "0"},
		{"net/ipv4/conf/all/send_redirects", "0"},
		{"net/ipv4/conf/default/send_redirects", "0"},
	}
	host := []setting{
		// Buffers fit the largest bandwidth-delay product, and every connection starts with fresh
		// metrics.
		{"net/ipv4/tcp_rmem", "4096 131072 67108864"},
		{"net/ipv4/tcp_wmem", "4096 131072 67108864"},
		{"net/ipv4/tcp_no_metrics_save", "1"},
	}
	edge := []setting{{"net/ipv4/ip_forward", "1"}}
	middle := []setting{}
	if hasIPv6() {
		common = append(common,
			setting{"net/ipv6/conf/default/accept_ra", "0"},
			setting{"net/ipv6/conf/default/addr_gen_mode", "1"}) // no link-local addresses
		edge = append(edge, setting{"net/ipv6/conf/all/forwarding", "1"})
		middle = append(middle, setting{"net/ipv6/conf/default/disable_ipv6", "1"})
	}
	add := func(name string, settings ...[]setting) error {
		n, err := l.group.Add(name)
		if err != nil {
			return err
		}
		l.nodes[name] = &Node{Name: name, Namespace: n, lab: l}
		for _, s := range slices.Concat(settings...) {
			if err := n.Set(s.name, s.value); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	}
	for _, name := range l.topology.Hosts {
		if err := add(name, common, host); err != nil {
			return err
		}
	}
	for _, name := range l.topology.Edges {
		if err := add(name, common, edge); err != nil {
			return err
		}
	}
	return add(wireNode, middle)
}

// A cable joins two nodes. It is a link or an emulated path.
type cable struct {
	between [2]string
	devices [2]string
	index   int // counted from 1
}

func (c cable) addr(end int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 77, byte(c.index), byte(end + 1)}), 24)
}

func (c cable) addr6(end int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x77, 7: byte(c.index), 15: byte(end + 1)}), 64)
}

func (c cable) addrs(end int) []netip.Prefix {
	if !hasIPv6() {
		return []netip.Prefix{c.addr(end)}
	}
	return []netip.Prefix{c.addr(end), c.addr6(end)}
}

func (l *Lab) cables() []cable {
	cables := make([]cable, 0, len(l.topology.Links)+len(l.topology.Paths))
	for _, link := range l.topology.Links {
		b := link.Between
		cables = append(cables, cable{between: b, devices: [2]string{b[1], b[0]}, index: len(cables) + 1})
	}
	for _, path := range l.topology.Paths {
		cables = append(cables, cable{
			between: path.Between, devices: [2]string{path.Name, path.Name},
			index: len(cables) + 1,
		})
	}
	return cables
}

// connect creates cables, addresses and routes.
func (l *Lab) connect() error {
	cables := l.cables()
	for i, c := range cables {
		ends := [2]namespace.End{
			{Namespace: l.nodes[c.between[0]].Namespace, Device: c.devices[0]},
			{Namespace: l.nodes[c.between[1]].Namespace, Device: c.devices[1]},
		}
		var err error
		if i < len(l.topology.Links) || l.emulator == Netem {
			err = namespace.Connect(ends[0], ends[1])
		} else {
			err = l.connectPath(c, ends)
		}
		if err != nil {
			return err
		}
		if err := l.address(c, ends); err != nil {
			return fmt.Errorf("addresses between %s and %s: %w", c.between[0], c.between[1], err)
		}
	}
	for name := range l.nodes {
		for _, r := range routes(name, cables, l.topology.Hosts) {
			if err := l.route(name, r); err != nil {
				return fmt.Errorf("%s: route to %v: %w", name, r.to, err)
			}
		}
	}
	for _, p := range l.topology.Paths {
		l.ports = append(l.ports,
			port{p.Name, p.Between[0], p.Between[1], p.Forward, p.Wifi},
			port{p.Name, p.Between[1], p.Between[0], p.Backward, p.Wifi})
	}
	return nil
}

// connectPath creates both halves of a path and opens the sockets in its middle.
func (l *Lab) connectPath(c cable, ends [2]namespace.End) error {
	middle := l.nodes[wireNode].Namespace
	for k, end := range ends {
		inside := namespace.End{Namespace: middle, Device: fmt.Sprintf("w%d.%d", c.index, k)}
		if err := namespace.Connect(end, inside); err != nil {
			return err
		}
		link, err := inside.Link()
		if err != nil {
			return err
		}
		err = middle.Do(func() error {
			s, err := wire.Open(link.Attrs().Index)
			if err == nil {
				l.sockets = append(l.sockets, s)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// address assigns the addresses of both ends of a cable and a permanent neighbour entry for each,
// so that the cable carries no neighbour discovery.
func (l *Lab) address(c cable, ends [2]namespace.End) error {
	var devices [2]netlink.Link
	for k, end := range ends {
		link, err := end.Link()
		if err != nil {
			return err
		}
		devices[k] = link
		node := l.nodes[c.between[k]]
		for _, a := range c.addrs(k) {
			if err := end.Namespace.Handle.AddrAdd(link, &netlink.Addr{
				IPNet: ipNet(a),
				Flags: unix.IFA_F_NODAD,
			}); err != nil {
				return err
			}
		}
		if !node.Addr.IsValid() {
			node.Addr = c.addr(k).Addr()
			if hasIPv6() {
				node.Addr6 = c.addr6(k).Addr()
			}
		}
	}
	for k, end := range ends {
		for _, a := range c.addrs(1 - k) {
			family := netlink.FAMILY_V4
			if a.Addr().Is6() {
				family = netlink.FAMILY_V6
			}
			err := end.Namespace.Handle.NeighSet(&netlink.Neigh{
				LinkIndex: devices[k].Attrs().Index, Family: family, State: netlink.NUD_PERMANENT,
				IP: a.Addr().AsSlice(), HardwareAddr: devices[1-k].Attrs().HardwareAddr,
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// A hop is a node's next step towards the network of one cable (to). The step crosses another cable;
// end is that cable's far end.
type hop struct {
	to    cable
	cable cable
	end   int
}

// routes returns the hops from a node to every network that it is not attached to. Hosts do not
// forward.
func routes(from string, cables []cable, hosts []string) []hop {
	type visit struct {
		first hop
		far   int
	}
	seen := map[string]visit{from: {}}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at != from && slices.Contains(hosts, at) {
			continue
		}
		for _, c := range cables {
			near := slices.Index(c.between[:], at)
			if near < 0 {
				continue
			}
			next := c.between[1-near]
			if _, ok := seen[next]; ok {
				continue
			}
			v := visit{first: seen[at].first, far: seen[at].far + 1}
			if at == from {
				v.first = hop{cable: c, end: 1 - near}
			}
			seen[next] = v
			queue = append(queue, next)
		}
	}
	var hops []hop
	for _, c := range cables {
		if slices.Contains(c.between[:], from) {
			continue
		}
		best, found := visit{}, false
		for _, end := range c.between {
			if v, ok := seen[end]; ok && (!found || v.far < best.far) {
				best, found = v, true
			}
		}
		if found {
			best.first.to = c
			hops = append(hops, best.first)
		}
	}
	return hops
}

func (l *Lab) route(from string, r hop) error {
	handle := l.nodes[from].Namespace.Handle
	device, err := handle.LinkByName(r.cable.devices[1-r.end])
	if err != nil {
		return err
	}
	via := r.cable.addrs(r.end)
	for i, to := range r.to.addrs(0) {
		err := handle.RouteAdd(&netlink.Route{
			LinkIndex: device.Attrs().Index, Dst: ipNet(to.Masked()), Gw: via[i].Addr().AsSlice(),
		})
		if err != nil {
			return err
		}
	}
	return nil
}
