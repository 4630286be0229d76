//go:build linux

package main

import (
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// Attached is a program attached to an interface.
type Attached struct {
	Program   string `json:"program"`
	Interface string `json:"interface"`
	Mode      string `json:"mode"` // native XDP, TCX ingress, TCX egress, clsact ingress or clsact egress
}

// attached lists the kernel's attachments of the programs pinned under pin.
func attached(pin string) ([]Attached, error) {
	all := []Attached{}
	err := filepath.WalkDir(pin, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasPrefix(e.Name(), "link-") {
			return err
		}
		a, ok, err := pinnedLink(path)
		if ok {
			all = append(all, a)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list attachments: %w", err)
	}
	all = append(all, filters(pin)...)
	slices.SortFunc(all, func(a, b Attached) int {
		return strings.Compare(a.Interface+" "+a.Mode+a.Program, b.Interface+" "+b.Mode+b.Program)
	})
	return all, nil
}

// pinnedLink reads a pinned link. ok is false if its interface no longer exists.
func pinnedLink(path string) (a Attached, ok bool, err error) {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return a, false, err
	}
	defer func() { _ = l.Close() }()
	info, err := l.Info()
	if err != nil {
		return a, false, err
	}
	var index uint32
	if x := info.XDP(); x != nil {
		// The receiver creates no generic XDP links, whose mode would be unknown.
		index, a.Mode = x.Ifindex, "native XDP"
	} else if x := info.TCX(); x != nil {
		index, a.Mode = x.Ifindex, "TCX ingress"
		if ebpf.AttachType(x.AttachType) == ebpf.AttachTCXEgress {
			a.Mode = "TCX egress"
		}
	}
	i, err := net.InterfaceByIndex(int(index))
	if err != nil {
		return a, false, nil // the interface is gone
	}
	a.Interface, a.Program = i.Name, programName(info.Program)
	return a, true, nil
}

func programName(id ebpf.ProgramID) string {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return fmt.Sprintf("program %d", id)
	}
	defer func() { _ = p.Close() }()
	info, err := p.Info()
	if err != nil {
		return fmt.Sprintf("program %d", id)
	}
	return info.Name
}

// filters lists the edge's clsact filters, which replace TCX links on older kernels.
func filters(pin string) (all []Attached) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil
	}
	for _, l := range links {
		for mode, parent := range map[string]uint32{
			"clsact ingress": netlink.HANDLE_MIN_INGRESS,
			"clsact egress":  netlink.HANDLE_MIN_EGRESS,
		} {
			list, err := netlink.FilterList(l, parent)
			if err != nil {
				continue // no clsact
			}
			for _, f := range list {
				if f, ok := f.(*netlink.BpfFilter); ok && strings.HasPrefix(f.Name, "holocast "+pin+"/") {
					all = append(all, Attached{filepath.Base(f.Name), l.Attrs().Name, mode})
				}
			}
		}
	}
	return all
}
