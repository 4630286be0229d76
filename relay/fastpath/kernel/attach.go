//go:build linux && (amd64 || arm64)

package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"holocast/internal/bpfload"
)

// hook is an attachment point on an interface.
type hook struct {
	program string
	egress  bool
}

// hooks lists an interface's attachments. Programs that must see clones come before programs that
// send them.
var hooks = []hook{
	{fastpathProgViewerEgress, true},
	{fastpathProgViewerIngress, false},
	{fastpathProgPublisherIngress, false},
}

// Attachment holds the programs attached to one interface.
type Attachment struct {
	ifindex int
	links   []link.Link
	filters []*netlink.BpfFilter
	qdisc   bool // we created the clsact qdisc
}

// Attach attaches the programs to an interface with TCX links, which end with the process. Before Linux
// 6.6, or if clsact is set, it uses clsact filters.
func (k *Forwarder) Attach(ifindex int, clsact bool) (_ *Attachment, err error) {
	if k.unprotected {
		if err := checkLaboratory(ifindex); err != nil {
			return nil, err
		}
	}
	a := &Attachment{ifindex: ifindex}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Detach())
		}
	}()
	if !clsact {
		err := a.attachTCX(k)
		if !errors.Is(err, ebpf.ErrNotSupported) {
			return a, err
		}
	}
	return a, a.attachClsact(k)
}

// birthplace is the network namespace in which this process started.
var birthplace, _ = os.Readlink("/proc/thread-self/ns/net")

// checkLaboratory rejects an interface through which unprotected packets could leave the machine. That
// is any interface but loopback in the initial network namespace or, if that is not accessible, in the
// namespace in which the process started.
func checkLaboratory(ifindex int) error {
	i, err := net.InterfaceByIndex(ifindex)
	if err != nil {
		return fmt.Errorf("interface %d: %w", ifindex, err)
	}
	mine, err1 := os.Readlink("/proc/thread-self/ns/net")
	first, err2 := os.Readlink("/proc/1/ns/net")
	if err2 != nil {
		first = birthplace
	}
	if i.Flags&net.FlagLoopback == 0 && (err1 != nil || first == "" || mine == first) {
		return fmt.Errorf(
			"interface %s: unprotected packets are allowed only on loopback and in other network namespaces",
			i.Name,
		)
	}
	return nil
}

// filterPriority is the priority of our first clsact filter.
const filterPriority = 0x4846

// at returns a hook's attachment point on an interface.
func at(ifindex, i int) bpfload.TC {
	h := hooks[i]
	return bpfload.TC{
		Interface: ifindex, Egress: h.egress, First: h.egress,
		Priority: filterPriority + uint16(i), Name: "holocast-relay/" + h.program,
	}
}

func (a *Attachment) attachTCX(k *Forwarder) error {
	for i, h := range hooks {
		l, err := at(a.ifindex, i).AttachTCX(k.programs[h.program])
		if err != nil {
			return fmt.Errorf("attach %s: %w", h.program, err)
		}
		a.links = append(a.links, l)
	}
	return nil
}

// attachClsact attaches the programs with clsact filters. It also replaces filters left by a killed
// relay.
func (a *Attachment) attachClsact(k *Forwarder) (err error) {
	if a.qdisc, err = bpfload.AddClsact(a.ifindex); err != nil {
		return err
	}
	for i, h := range hooks {
		tc := at(a.ifindex, i)
		if err := tc.AttachClsact(k.programs[h.program]); err != nil {
			return err
		}
		a.filters = append(a.filters, tc.Filter())
	}
	return nil
}

// Intact reports whether all programs are still attached. Other programs may detach them, for example
// with "bpftool link detach" or "tc qdisc del dev … clsact".
func (a *Attachment) Intact() bool {
	for _, l := range a.links {
		info, err := l.Info()
		if err != nil || info.TCX() == nil || info.TCX().Ifindex != uint32(a.ifindex) {
			return false
		}
	}
	for _, f := range a.filters {
		there, err := netlink.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: a.ifindex}}, f.Parent)
		if err != nil || !slices.ContainsFunc(there, func(other netlink.Filter) bool {
			b, ok := other.(*netlink.BpfFilter)
			return ok && b.Name == f.Name && b.Priority == f.Priority
		}) {
			return false
		}
	}
	return true
}

// Detach detaches the programs. It ignores a deleted interface.
func (a *Attachment) Detach() error {
	var err error
	for _, l := range a.links {
		err = errors.Join(err, l.Close())
	}
	gone := func(e error) bool {
		return e == nil || errors.Is(e, unix.ENODEV) || errors.Is(e, unix.ENOENT) || errors.Is(e, unix.EINVAL)
	}
	for _, f := range a.filters {
		if e := netlink.FilterDel(f); !gone(e) {
			err = errors.Join(err, fmt.Errorf("remove clsact filter: %w", e))
		}
	}
	if a.qdisc {
		if e := netlink.QdiscDel(bpfload.Clsact(a.ifindex)); !gone(e) {
			err = errors.Join(err, fmt.Errorf("remove clsact: %w", e))
		}
	}
	a.links, a.filters, a.qdisc = nil, nil, false
	return err
}
