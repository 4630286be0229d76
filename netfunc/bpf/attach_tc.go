package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"holocast/internal/bpfload"
)

// attachTCX attaches a program with TCX, or replaces the one attached. Before Linux 6.6 the error
// wraps ebpf.ErrNotSupported.
func attachTCX(dir string, t target, program *ebpf.Program) error {
	pin := filepath.Join(dir, t.String())
	err := takeOver(pin, program, t.Interface)
	if err == nil || (!errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errGone)) {
		return err
	}
	l, err := at(dir, t).AttachTCX(program)
	if err != nil {
		return err
	}
	return pinLink(l, pin)
}

// Priorities of our clsact filters.
const (
	monitorPriority   = 0x4842
	duplicatePriority = 0x4843
)

// at returns a target's attachment point. The monitor runs first, since it would otherwise not see the
// packets that the duplicating program redirects.
func at(dir string, t target) bpfload.TC {
	tc := bpfload.TC{
		Interface: t.Interface,
		Egress:    t.Direction == Egress,
		Priority:  duplicatePriority,
		Name:      filterName(dir, t.Direction),
	}
	if t.Direction == Monitor {
		tc.First, tc.Priority = true, monitorPriority
	}
	return tc
}

func filterName(dir string, d Direction) string { return fmt.Sprintf("holocast %s/%s", dir, d) }

// attachClsact attaches a program with a clsact filter, or replaces the one attached.
func attachClsact(dir string, t target, program *ebpf.Program) error {
	added, err := bpfload.AddClsact(t.Interface)
	if err != nil {
		return err
	}
	if added { // a directory marks the qdisc as ours, since a bpf file system holds no regular files
		if err := os.Mkdir(clsactMark(dir, t.Interface), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return at(dir, t).AttachClsact(program)
}

func clsactMark(dir string, ifindex int) string {
	return filepath.Join(dir, fmt.Sprintf("clsact-%d", ifindex))
}

// detachClsact removes our filters except at the targets in keep. It also removes the qdiscs that we
// created and that have no filter left.
func detachClsact(dir string, keep []target) error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	for _, l := range links {
		index := l.Attrs().Index
		for _, d := range []Direction{Ingress, Egress, Monitor} {
			t := target{Direction: d, Interface: index}
			filters, err := netlink.FilterList(l, at(dir, t).Filter().Parent)
			if err != nil {
				continue // no clsact
			}
			for _, f := range filters {
				ours, ok := f.(*netlink.BpfFilter)
				if !ok || ours.Name != filterName(dir, d) || slices.ContainsFunc(keep, func(k target) bool {
					return k.Direction == d && k.Interface == index
				}) {
					continue
				}
				if err := netlink.FilterDel(ours); err != nil {
					return fmt.Errorf("remove clsact filter of %s: %w", l.Attrs().Name, err)
				}
			}
		}
		mark := clsactMark(dir, index)
		if _, err := os.Stat(mark); err != nil ||
			slices.ContainsFunc(keep, func(k target) bool { return k.Interface == index }) {
			continue
		}
		if !filtered(l) {
			if err := netlink.QdiscDel(bpfload.Clsact(index)); err != nil {
				return fmt.Errorf("remove clsact of %s: %w", l.Attrs().Name, err)
			}
		}
		if err := os.Remove(mark); err != nil {
			return err
		}
	}
	return nil
}

// filtered reports whether an interface's clsact qdisc has filters.
func filtered(l netlink.Link) bool {
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		if filters, err := netlink.FilterList(l, parent); err == nil && len(filters) > 0 {
			return true
		}
	}
	return false
}
