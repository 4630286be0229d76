package fbdt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"holocast/internal/netlab"
)

// radios is a scenario's running network.
type radios struct {
	lab    *netlab.Lab
	server netip.Addr
	radios []radio
}

// radio is a network device of the client.
type radio struct {
	name string // of the device, too
	addr netip.Addr
}

// start builds the network. Routing rules make the client's packets leave by the radio that has their source address.
func start(s Scenario, length time.Duration) (r *radios, err error) {
	t, err := s.topology(length)
	if err != nil {
		return nil, err
	}
	r = &radios{}
	if r.lab, err = netlab.Start(t, netlab.Options{}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.lab.Close())
		}
	}()
	r.server = r.lab.Node("b").Addr
	handle := r.lab.Node("a").Namespace.Handle
	for i, p := range s.Radios {
		device, err := handle.LinkByName(p.Name)
		if err != nil {
			return nil, err
		}
		addrs, err := handle.AddrList(device, netlink.FAMILY_V4)
		if err != nil {
			return nil, err
		}
		if len(addrs) != 1 {
			return nil, fmt.Errorf("radio %s has %d addresses, want 1", p.Name, len(addrs))
		}
		addr, _ := netip.AddrFromSlice(addrs[0].IP.To4())
		gateway := addr.Prev() // the edge is named first
		table := 100 + i
		if err := handle.RouteAdd(&netlink.Route{
			LinkIndex: device.Attrs().Index, Table: table, Gw: gateway.AsSlice(),
			Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)},
		}); err != nil {
			return nil, fmt.Errorf("add route for %s: %w", p.Name, err)
		}
		rule := netlink.NewRule()
		rule.Family, rule.Table = netlink.FAMILY_V4, table
		rule.Src = &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(32, 32)}
		if err := handle.RuleAdd(rule); err != nil {
			return nil, fmt.Errorf("add routing rule for %s: %w", p.Name, err)
		}
		r.radios = append(r.radios, radio{p.Name, addr})
	}
	return r, nil
}

// client and host run a function in the client's or server's namespace.
func (r *radios) client(f func() error) error { return r.lab.Node("a").Namespace.Do(f) }
func (r *radios) host(f func() error) error   { return r.lab.Node("b").Namespace.Do(f) }

// multipathTCP makes the client's kernel add a subflow over each radio except the first, which carries the initial
// subflow.
func (r *radios) multipathTCP(ctx context.Context) error {
	for _, node := range []string{"a", "b"} {
		if err := r.lab.Node(node).Namespace.Set("net/mptcp/enabled", "1"); err != nil {
			return fmt.Errorf("this kernel has no multipath TCP (CONFIG_MPTCP): %w", err)
		}
		if err := r.ip(ctx, node, "mptcp", "limits", "set", "subflows", "8"); err != nil {
			return err
		}
	}
	for _, radio := range r.radios[1:] {
		if err := r.ip(ctx, "a", "mptcp", "endpoint", "add", radio.addr.String(), "dev", radio.name,
			"subflow"); err != nil {
			return err
		}
	}
	return nil
}

// ip runs the ip command of iproute2 in a node.
func (r *radios) ip(ctx context.Context, node string, args ...string) error {
	cmd := r.lab.Node(node).Command(ctx, "ip", args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := r.lab.Node(node).Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("ip %s (of iproute2): %w: %s", strings.Join(args, " "), err, strings.TrimSpace(out.String()))
	}
	return nil
}
