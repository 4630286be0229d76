package bpf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"holocast/netfunc/signal"
)

// attached counts our attachments in a host.
type attached struct{ tcx, clsact, xdp, qdiscs int }

func (h *host) attached(t testing.TB, pin string) (a attached) {
	t.Helper()
	for _, half := range []string{senderDir(pin), receiverDir(pin)} {
		links, err := filepath.Glob(filepath.Join(half, "link-*"))
		if err != nil {
			t.Fatal(err)
		}
		if half == senderDir(pin) {
			a.tcx = len(links)
		}
	}
	all, err := h.nl.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		if x := l.Attrs().Xdp; x != nil && x.Attached {
			a.xdp++
		}
		qdiscs, err := h.nl.QdiscList(l)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range qdiscs {
			if q.Type() == "clsact" {
				a.qdiscs++
			}
		}
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			filters, err := h.nl.FilterList(l, parent)
			if err != nil {
				continue
			}
			for _, f := range filters {
				if b, ok := f.(*netlink.BpfFilter); ok && strings.HasPrefix(b.Name, "holocast ") {
					a.clsact++
				}
			}
		}
	}
	return a
}

func (h *host) expect(t testing.TB, pin string, want attached) {
	t.Helper()
	if got := h.attached(t, pin); got != want {
		t.Errorf("attached %+v, want %+v", got, want)
	}
}

// newRouter returns a host with the interfaces lan, wan.1 and wan.2, and the host at their far
// ends.
func newRouter(t testing.TB) (h, far *host) {
	h, far = newHost(t), newHost(t)
	for _, name := range []string{"lan", "wan.1", "wan.2"} { // bpf file systems do not allow dots in names
		cable(t, h, name, far, name)
	}
	return h, far
}

func (h *host) openSender(t testing.TB, o SenderOptions) *Sender {
	t.Helper()
	var s *Sender
	h.must(t, func() (err error) {
		s, err = OpenSender(o)
		return err
	})
	return s
}

// haveTCX reports whether the kernel supports TCX.
func haveTCX(t testing.TB, h *host) bool {
	t.Helper()
	pin := pins(t)
	s := h.openSender(t, SenderOptions{Pin: pin, Attach: []Attach{{"lan", Ingress}}})
	defer h.must(t, func() error { return s.Detach() })
	return h.attached(t, pin).tcx == 1
}

func TestSenderLifecycle(t *testing.T) {
	h, _ := newRouter(t)
	if !haveTCX(t, h) {
		t.Skip("TCX needs Linux 6.6: everything is attached with clsact")
	}
	pin := pins(t)
	three := []Attach{{"lan", Ingress}, {"wan.1", Monitor}, {"wan.1", Egress}}
	open := func(clsact bool, attach ...Attach) *Sender {
		return h.openSender(t, SenderOptions{Pin: pin, Attach: attach, Clsact: clsact, SignalKey: testKey})
	}
	s := open(false, three...)
	h.expect(t, pin, attached{tcx: 3})
	if err := errors.Join(s.SetPolicy(viewer4, 5), s.SetPath(Path{
		Index: 2, Interface: 1, Source: make([]byte, 6),
		NextHop: make([]byte, 6), Up: true,
	}), s.raiseNonce(1<<62)); err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		name   string
		clsact bool
		attach []Attach
		want   attached
	}{
		{"again", false, three, attached{tcx: 3}},
		{"by clsact", true, three, attached{clsact: 3, qdiscs: 2}},
		{"by clsact again", true, three, attached{clsact: 3, qdiscs: 2}},
		{"fewer by clsact", true, three[1:2], attached{clsact: 1, qdiscs: 1}},
		{"by TCX again", false, three, attached{tcx: 3}},
		{"fewer", false, three[:1], attached{tcx: 1}},
		{"elsewhere", false, []Attach{{"wan.2", Ingress}, {"wan.2", Monitor}}, attached{tcx: 2}},
		{"none", false, nil, attached{}},
		{
			"both on one, by clsact",
			true,
			[]Attach{{"wan.2", Ingress}, {"wan.2", Monitor}},
			attached{clsact: 2, qdiscs: 1},
		},
	}
	for _, step := range steps {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		s = open(step.clsact, step.attach...)
		t.Run(step.name, func(t *testing.T) {
			h.expect(t, pin, step.want)
			policies, err := s.Policies()
			if err != nil || len(policies) != 1 || policies[0].Bits != 5 {
				t.Errorf("policies %+v, %v", policies, err)
			}
			paths, err := s.Paths()
			if err != nil || len(paths) != 1 || paths[0].Index != 2 || !paths[0].Up {
				t.Errorf("paths %+v, %v", paths, err)
			}
			if n, err := s.Nonce(); err != nil || n != 1<<62 {
				t.Errorf("nonce %d, %v", n, err)
			}
		})
	}
	h.must(t, func() error { return s.Detach() })
	h.expect(t, pin, attached{})
	if _, err := os.Stat(pin); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("pins left: %v", err)
	}
	if _, err := PinnedSender(pin); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("pinned sender: %v", err)
	}
}

// A newly loaded sender also rejects a replayed signal.
func TestSenderFirstNonce(t *testing.T) {
	h, _ := newRouter(t)
	before := uint64(time.Now().Add(-clockAllowance).UnixNano())
	s := h.openSender(t, SenderOptions{Pin: pins(t)})
	n, err := s.Nonce()
	if err != nil || n < before || n > uint64(time.Now().UnixNano()) {
		t.Errorf("nonce %d, %v", n, err)
	}
	if err := s.raiseNonce(5); err != nil {
		t.Fatal(err)
	}
	if again, _ := s.Nonce(); again != n {
		t.Errorf("the nonce decreased to %d", again)
	}
	h.must(t, func() error { return s.Detach() })
}

// A new key restarts the nonces; the same key keeps them.
func TestSenderKeyChange(t *testing.T) {
	h, _ := newRouter(t)
	o := SenderOptions{Pin: pins(t), SignalKey: testKey}
	s := h.openSender(t, o)
	if err := s.raiseNonce(1<<63 - 1); err != nil {
		t.Fatal(err)
	}
	if err := s.maps[senderMapPolicies].Put(addressKey(viewer4), senderPolicy{Bits: 3, Nonce: 1<<63 - 1}); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	for _, step := range []struct {
		key   []byte
		reset bool
	}{{testKey, false}, {[]byte("another key of some bytes"), true}} {
		o.SignalKey = step.key
		s = h.openSender(t, o)
		n, err := s.Nonce()
		policies, e := s.Policies()
		if err != nil || e != nil || len(policies) != 1 || policies[0].Bits != 3 {
			t.Fatal(policies, err, e)
		}
		if now := uint64(time.Now().UnixNano()); (n <= now) != step.reset || (policies[0].Nonce == 1) != step.reset {
			t.Errorf("key %s: nonce %d, policy %+v", step.key, n, policies[0])
		}
		if !step.reset {
			_ = s.Close()
		}
	}
	h.must(t, func() error { return s.Detach() })
}

// Attachments of other programs stay.
func TestDetachLeavesOthers(t *testing.T) {
	h, _ := newRouter(t)
	pin := pins(t)
	lan := h.link(t, "lan")
	attrs := netlink.QdiscAttrs{
		LinkIndex: lan.Attrs().Index,
		Handle:    netlink.MakeHandle(0xffff, 0),
		Parent:    netlink.HANDLE_CLSACT,
	}
	if err := h.nl.QdiscAdd(&netlink.Clsact{QdiscAttrs: attrs}); err != nil {
		t.Fatal(err)
	}
	s := h.openSender(t, SenderOptions{Pin: pin, Attach: []Attach{{"lan", Ingress}, {"wan.1", Ingress}}, Clsact: true})
	h.expect(t, pin, attached{clsact: 2, qdiscs: 2})
	other, err := ebpf.NewProgram(
		&ebpf.ProgramSpec{
			Type:         ebpf.SchedCLS,
			License:      "MIT",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	for _, name := range []string{"lan", "wan.1"} {
		f := &netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{
				LinkIndex: h.index(t, name),
				Parent:    netlink.HANDLE_MIN_INGRESS,
				Priority:  9,
				Protocol:  unix.ETH_P_ALL,
			},
			Fd: other.FD(), Name: "another", DirectAction: true,
		}
		if err := h.nl.FilterAdd(f); err != nil {
			t.Fatal(err)
		}
	}
	h.must(t, func() error { return s.Detach() })
	h.expect(t, pin, attached{qdiscs: 2})
	for _, name := range []string{"lan", "wan.1"} {
		filters, err := h.nl.FilterList(h.link(t, name), netlink.HANDLE_MIN_INGRESS)
		if err != nil || len(filters) != 1 {
			t.Errorf("%s: filters %v, %v", name, filters, err)
		}
	}
}

func TestReceiverLifecycle(t *testing.T) {
	h, far := newRouter(t)
	pin := pins(t)
	open := func(o ReceiverOptions) *Receiver {
		var r *Receiver
		o.Pin = pin
		h.must(t, func() (err error) {
			r, err = OpenReceiver(o)
			return err
		})
		return r
	}
	r := open(ReceiverOptions{Interfaces: []string{"wan.1", "wan.2", "wan.1"}, TableSize: 1000, ArrivalRing: 5000})
	h.expect(t, pin, attached{xdp: 2})
	if err := r.SetFlow(viewer4, Flow{DSCP: 1, Paths: 3}); err != nil {
		t.Fatal(err)
	}
	ledger, err := r.ledger()
	if err != nil || ledger.Seed == 0 {
		t.Fatal(ledger, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	// Open with another size and fewer interfaces. The table, seed and flows are kept.
	r = open(ReceiverOptions{Interfaces: []string{"wan.2"}, TableSize: 1 << 20})
	h.expect(t, pin, attached{xdp: 1})
	again, err := r.ledger()
	if err != nil || again.Seed != ledger.Seed {
		t.Errorf("seed %x, was %x, %v", again.Seed, ledger.Seed, err)
	}
	if n := r.maps[receiverMapReplicas].MaxEntries(); n != 128 {
		t.Errorf("%d buckets, want 128", n)
	}
	if n := r.maps[receiverMapArrivals].MaxEntries(); n != 8192 {
		t.Errorf("ring of %d bytes, want 8192", n)
	}
	if flows, err := r.Flows(); err != nil || flows[viewer4] != (Flow{1, 3}) {
		t.Errorf("flows %v, %v", flows, err)
	}
	if name, _ := r.names.Load(uint32(MaxFlows)); name != viewer4 {
		t.Errorf("flow 0 is to %v", name)
	}

	// The interface is deleted and created again under its name.
	if err := h.nl.LinkDel(h.link(t, "wan.2")); err != nil {
		t.Fatal(err)
	}
	cable(t, h, "wan.2", far, "wan.2")
	h.expect(t, pin, attached{})
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	r = open(ReceiverOptions{Interfaces: []string{"wan.2"}})
	h.expect(t, pin, attached{xdp: 1})
	h.must(t, func() error { return r.Detach() })
	h.expect(t, pin, attached{})
	if _, err := PinnedReceiver(pin); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("pinned receiver: %v", err)
	}
}

// Sender and receiver may share a directory, and each detaches only itself. Detaching works without
// the instance that attached, as after a crash.
func TestBothHalves(t *testing.T) {
	h, _ := newRouter(t)
	pin := pins(t)
	s := h.openSender(t, SenderOptions{Pin: pin, Attach: []Attach{{"lan", Ingress}}})
	h.must(t, func() error {
		r, err := OpenReceiver(ReceiverOptions{Pin: pin, Interfaces: []string{"wan.1"}})
		if err != nil {
			return err
		}
		return r.Close()
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	before := h.attached(t, pin)
	if before.tcx+before.clsact != 1 || before.xdp != 1 {
		t.Errorf("attached %+v", before)
	}
	h.must(t, func() error {
		s, err := PinnedSender(pin)
		if err != nil {
			return err
		}
		return s.Detach()
	})
	h.expect(t, pin, attached{xdp: 1})
	h.must(t, func() error {
		r, err := PinnedReceiver(pin)
		if err != nil {
			return err
		}
		return r.Detach()
	})
	h.expect(t, pin, attached{})
}

// Each failure returns one sentence that names the cause, and leaves nothing attached or pinned.
func TestOpenErrors(t *testing.T) {
	h, _ := newRouter(t)
	if err := h.nl.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}); err != nil {
		t.Fatal(err)
	}
	other, err := ebpf.NewProgram(
		&ebpf.ProgramSpec{
			Type:         ebpf.XDP,
			License:      "MIT",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	busy := h.link(t, "wan.2")
	h.must(t, func() error { return netlink.LinkSetXdpFd(busy, other.FD()) })
	receive := func(interfaces ...string) func(string) error {
		return func(pin string) error {
			_, err := OpenReceiver(ReceiverOptions{Pin: pin, Interfaces: interfaces})
			return err
		}
	}
	send := func(pin string) error {
		_, err := OpenSender(SenderOptions{Pin: pin, Attach: []Attach{{"lan", Ingress}}})
		return err
	}
	tests := []struct {
		name string
		open func(pin string) error
		is   error
		says []string
	}{
		{"no native XDP", receive("wan.1", "br0"), ErrNoNativeXDP, []string{"br0", "bridge"}},
		{"no native XDP, no driver", receive("lo"), ErrNoNativeXDP, []string{"lo", "device"}},
		{"another XDP program", receive("wan.2"), unix.EBUSY, []string{"wan.2"}},
		{"no such interface", receive("wan.3"), nil, []string{"wan.3"}},
		{
			"not a bpf file system",
			func(string) error { return send(t.TempDir()) },
			nil,
			[]string{"not on a bpf file system"},
		},
		{"no directory", func(string) error { return send("") }, nil, []string{"directory"}},
		{
			"no privilege, sender",
			func(pin string) error { return unprivileged(func() error { return send(pin) }) },
			ErrPrivilege,
			[]string{"CAP_BPF"},
		},
		{
			"no privilege, receiver",
			func(pin string) error { return unprivileged(func() error { return receive("wan.1")(pin) }) },
			ErrPrivilege,
			[]string{"CAP_BPF"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pin := pins(t)
			err := h.do(func() error { return test.open(pin) })
			if err == nil || test.is != nil && !errors.Is(err, test.is) {
				t.Fatalf("%v", err)
			}
			for _, want := range test.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one sentence: %q", err)
			}
			h.expect(t, pin, attached{xdp: 1}) // the valid half
			if _, err := os.Stat(pin); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("pins left: %v", err)
			}
			t.Log(err)
		})
	}

	t.Run("maps of another version", func(t *testing.T) {
		pin := pins(t)
		if err := os.MkdirAll(senderDir(pin), 0o700); err != nil {
			t.Fatal(err)
		}
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 99, MaxEntries: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = m.Close() }()
		if err := m.Pin(filepath.Join(senderDir(pin), senderMapNonces)); err != nil {
			t.Fatal(err)
		}
		err = h.do(func() error { return send(pin) })
		if !errors.Is(err, ebpf.ErrMapIncompatible) || !strings.Contains(err.Error(), "another version") {
			t.Errorf("%v", err)
		}
	})
}

// unprivileged runs f without capabilities, on a thread that apart discards.
func unprivileged(f func() error) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return f()
}

// This kernel must meet the requirements, or the other tests fail.
func TestRequirements(t *testing.T) {
	privileged(t)
	for _, r := range requirements() {
		if err := r.Have(); err != nil {
			t.Errorf("%s: %v", r.Name, err)
		}
	}
}

// Readers return when their context is done or on Close, and not before.
func TestReadersEnd(t *testing.T) {
	h, _ := newRouter(t)
	pin := pins(t)
	s := h.openSender(t, SenderOptions{Pin: pin})
	var r *Receiver
	h.must(t, func() (err error) {
		r, err = OpenReceiver(ReceiverOptions{Pin: pin})
		return err
	})
	readers := map[string]func(context.Context) error{
		"uplink":   func(ctx context.Context) error { _, err := s.ReadUplink(ctx); return err },
		"signals":  func(ctx context.Context) error { _, err := s.ReadSignal(ctx); return err },
		"arrivals": func(ctx context.Context) error { _, err := r.ReadArrivals(ctx, make([]Arrival, 1)); return err },
	}
	for name, read := range readers {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := read(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		if err := read(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s, again: %v", name, err)
		}
		cancel()
	}
	var wg sync.WaitGroup
	for name, read := range readers {
		wg.Go(func() {
			if err := read(t.Context()); !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	if err := errors.Join(s.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	h.must(t, func() error { return errors.Join(s.Detach(), r.Detach()) })
}

// The controller's sender starts duplication over the wire, without a daemon, and the edge's own
// routing does not see the packet.
func TestSignalOverTheWire(t *testing.T) {
	wireKey := signal.GenerateKey()
	p := newPair(t)
	p.key = signal.EdgeKey(wireKey, "london")
	p.open(t)
	p.warm(t)
	p.policy(t, 0)
	var out *signal.Sender
	p.source.must(t, func() (err error) {
		out, err = signal.NewSender(wireKey, addr("10.1.0.2"))
		return err
	})
	defer func() { _ = out.Close() }()
	edge := netip.MustParseAddrPort("10.1.0.1:4790")
	nonce, err := out.Send("london", edge, pairViewer[0], 7)
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.sender.ReadSignal(t.Context())
	if err != nil || got.Nonce != nonce || got.Bits != 7 || got.Destination != pairViewer[0] ||
		got.Source != addr("10.1.0.2") {
		t.Fatalf("%+v, %v", got, err)
	}
	before := mustStats(t, p.sender)
	c := p.stream(t, traffic{dst: pairViewer[0], size: 300}, 1000, 100*time.Millisecond)
	c.check(t)
	after := mustStats(t, p.sender)
	if n := after.Paths[2].Packets - before.Paths[2].Packets; n != uint64(c.sent) {
		t.Errorf("%d packets on path 3 of %d", n, c.sent)
	}
}
