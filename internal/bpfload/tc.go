package bpfload

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TC is an attachment point in an interface's traffic control.
type TC struct {
	Interface int // interface index
	Egress    bool
	First     bool // attach before all other programs; TCX only
	// For clsact, Priority orders an interface's filters, and Name identifies ours.
	Priority uint16
	Name     string
}

// AttachTCX attaches a program with TCX. Before Linux 6.6 the error wraps ebpf.ErrNotSupported.
func (t TC) AttachTCX(program *ebpf.Program) (link.Link, error) {
	o := link.TCXOptions{Interface: t.Interface, Program: program, Attach: ebpf.AttachTCXIngress}
	if t.Egress {
		o.Attach = ebpf.AttachTCXEgress
	}
	if t.First {
		o.Anchor = link.Head()
	}
	return link.AttachTCX(o)
}

// AttachClsact adds or replaces a clsact filter. The interface needs a clsact qdisc.
func (t TC) AttachClsact(program *ebpf.Program) error {
	f := t.Filter()
	f.Fd = program.FD()
	if err := netlink.FilterReplace(f); err != nil {
		return fmt.Errorf("add clsact filter: %w", err)
	}
	return nil
}

// Filter returns the clsact filter, without a program.
func (t TC) Filter() *netlink.BpfFilter {
	f := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: t.Interface, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1,
			Priority: t.Priority, Protocol: unix.ETH_P_ALL,
		},
		Name: t.Name, DirectAction: true,
	}
	if t.Egress {
		f.Parent = netlink.HANDLE_MIN_EGRESS
	}
	return f
}

// Clsact returns the clsact qdisc of an interface.
func Clsact(ifindex int) *netlink.Clsact {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
}

// AddClsact adds a clsact qdisc to an interface, unless it has one.
func AddClsact(ifindex int) (added bool, err error) {
	switch err := netlink.QdiscAdd(Clsact(ifindex)); {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EEXIST):
		return false, nil
	default:
		return false, fmt.Errorf("add clsact: %w", err)
	}
}
