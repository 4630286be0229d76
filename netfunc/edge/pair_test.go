//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"holocast/netfunc/pathset"
)

const (
	staticSender = "role: sender\nsender: {attach: [{interface: lan0}]}\nflows: [{destination: " + viewerAddress +
		", paths: [1, 2, 3]}]"
	staticReceiver = "role: receiver\nflows: [{destination: " + viewerAddress + ", paths: [1, 2, 3]}]"
)

// pair starts both edges, duplicating to the viewer without a controller.
func (s *site) pair() (near, far *edge) {
	s.t.Helper()
	near, far = s.edge(s.near, "near", staticSender), s.edge(s.far, "far", staticReceiver)
	far.start()
	near.start()
	near.until("paths", allUp)
	far.until("paths", allUp)
	return near, far
}

func TestPair(t *testing.T) {
	s := newSite(t)
	near, far := s.pair()
	f := s.traffic(2000)
	f.pass(1000)
	n := uint64(f.exact())

	sender, receiver := near.status(), far.status()
	if sender.Sender.Duplicated != n {
		t.Errorf("%d packets duplicated of %d", sender.Sender.Duplicated, n)
	}
	var first, late uint64
	for i := range paths {
		if p := sender.Paths[i]; p.Sent != n || p.RTT <= 0 || p.NextHop == "" {
			t.Errorf("sender's path %+v, want %d packets", p, n)
		}
		p := receiver.Paths[i]
		first, late = first+p.First, late+p.Late
		if p.First+p.Late != n || p.Lost != 0 || p.Rogue != 0 {
			t.Errorf("receiver's path %+v, want %d arrivals", p, n)
		}
	}
	if first != n || late != 2*n {
		t.Errorf("%d first and %d later replicas of %d packets", first, late, n)
	}
	if p := sender.Sender.Policies; len(p) != 1 || p[0].Destination != viewerAddr ||
		p[0].Paths != pathset.Of(1, 2, 3) || p[0].Signalled {
		t.Errorf("policies %+v", p)
	}
	if len(sender.Attached) != 1 || sender.Attached[0] != (Attached{"duplicate", "lan0", "TCX ingress"}) {
		t.Errorf("the sender is attached as %+v", sender.Attached)
	}
	if len(receiver.Attached) != paths || receiver.Attached[0] != (Attached{"eliminate", "wan1", "native XDP"}) {
		t.Errorf("the receiver is attached as %+v", receiver.Attached)
	}
}

// TestKilled checks that an edge killed and restarted during traffic neither loses nor duplicates a
// packet, and that its counters continue.
func TestKilled(t *testing.T) {
	s := newSite(t)
	near, far := s.pair()
	f := s.traffic(2000)
	for range 3 {
		for _, e := range []*edge{near, far} {
			f.pass(100)
			e.process.Kill()
			f.pass(100)
			e.start()
		}
	}
	near.until("paths", allUp)
	n := uint64(f.exact())
	sender, receiver := near.status(), far.status()
	if sender.Sender.Duplicated != n {
		t.Errorf("%d packets duplicated of %d", sender.Sender.Duplicated, n)
	}
	for i := range paths {
		if p := receiver.Paths[i]; p.First+p.Late != n || p.Rogue != 0 {
			t.Errorf("receiver's path %+v, want %d arrivals", p, n)
		}
	}
}

// TestBothDead checks that the kernel programs keep working when both processes are dead, that status
// reports them, and that detach ends them.
func TestBothDead(t *testing.T) {
	s := newSite(t)
	near, far := s.pair()
	f := s.traffic(2000)
	f.pass(100)
	near.process.Kill()
	far.process.Kill()
	f.pass(600)
	n := uint64(f.exact())
	sender, receiver := near.status(), far.status()
	if sender.Running || receiver.Running {
		t.Error("dead edges reported as running")
	}
	if sender.Sender.Duplicated != n || sender.Paths[2].Sent != n || !sender.Paths[2].Up ||
		len(sender.Sender.Policies) != 1 || len(sender.Attached) != 1 {
		t.Errorf("sender %+v, want %d packets", sender, n)
	}
	for _, st := range []*Status{sender, receiver} {
		for _, p := range st.Paths {
			if st == receiver && (p.Up || !p.Unknown) || st == sender && (!p.Up || p.Unknown) {
				t.Errorf("%s reports a working path as %+v", st.Name, p)
			}
		}
		var b strings.Builder
		st.print(&b)
		if strings.Contains(b.String(), " down ") {
			t.Errorf("a working path is reported down:\n%s", b.String())
		}
	}
	if err := s.far.Handle.LinkSetDown(s.link(s.far, "wan2")); err != nil {
		t.Fatal(err)
	}
	if p := far.status().Paths[1]; p.Unknown || p.Problem != "interface wan2 is down" {
		t.Errorf("a path with its interface down is reported as %+v", p)
	}
	if err := s.far.Handle.LinkSetUp(s.link(s.far, "wan2")); err != nil {
		t.Fatal(err)
	}
	if p := receiver.Paths[2]; p.First+p.Late != n || len(receiver.Receiver.Flows) != 1 ||
		len(receiver.Attached) != paths {
		t.Errorf("receiver %+v, want %d packets", receiver, n)
	}
	out, err := near.command("status")
	if err != nil || !strings.Contains(out, "not running") {
		t.Errorf("status: %v:\n%s", err, out)
	}
	for _, e := range []*edge{near, far} {
		if out, err := e.command("detach"); err != nil {
			t.Errorf("detach: %v: %s", err, out)
		}
		e.clean()
		if out, err := e.command("detach"); err == nil || !strings.Contains(out, "nothing to detach") {
			t.Errorf("second detach: %v: %s", err, out)
		}
		if out, err := e.command("status"); err == nil || !strings.Contains(out, "is not running on this machine") {
			t.Errorf("status of a detached edge: %v: %s", err, out)
		}
	}
	f = s.traffic(1000)
	f.pass(100)
	f.exact()
}

// clean checks that the edge left nothing in the kernel or the file system.
func (e *edge) clean() {
	e.t.Helper()
	for _, path := range []string{e.pin, e.socket, e.socket + ".lock"} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			e.t.Errorf("%s is left (%v)", path, err)
		}
	}
	links, err := e.ns.Handle.LinkList()
	if err != nil {
		e.t.Fatal(err)
	}
	for _, l := range links {
		if x := l.Attrs().Xdp; x != nil && x.Attached {
			e.t.Errorf("interface %s has XDP program %d", l.Attrs().Name, x.ProgId)
		}
		qdiscs, err := e.ns.Handle.QdiscList(l)
		if err != nil {
			e.t.Fatal(err)
		}
		for _, q := range qdiscs {
			if q.Type() == "clsact" {
				e.t.Errorf("interface %s has clsact", l.Attrs().Name)
			}
		}
		err = e.ns.Do(func() error {
			for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
				r, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: at})
				if err != nil {
					return err
				}
				if len(r.Programs) > 0 {
					e.t.Errorf("interface %s has %d TCX programs", l.Attrs().Name, len(r.Programs))
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, ebpf.ErrNotSupported) {
			e.t.Error(err)
		}
	}
}

// TestLeave checks that SIGTERM stops duplication without losing a packet, and leaves nothing behind.
func TestLeave(t *testing.T) {
	for name, text := range map[string]string{
		"TCX":    "",
		"clsact": "sender: {clsact: true, attach: [{interface: lan0}]}\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			config := staticSender
			if text != "" {
				config = "role: sender\n" + text + strings.SplitAfterN(staticSender, "\n", 3)[2]
			}
			near, far := s.edge(s.near, "near", config), s.edge(s.far, "far", staticReceiver)
			far.start()
			near.start()
			near.until("paths", allUp)
			f := s.traffic(2000)
			f.pass(200)
			if s := near.status(); len(s.Attached) != 1 || !strings.HasPrefix(s.Attached[0].Mode, name) {
				t.Errorf("attached as %+v", s.Attached)
			}
			near.process.Stop()
			near.clean()
			f.pass(100)
			far.process.Stop()
			far.clean()
			f.pass(100)
			f.exact()
		})
	}
}

// TestReceiverStopsFirst checks that a receiver whose sender keeps duplicating leaves its programs
// attached and says so.
func TestReceiverStopsFirst(t *testing.T) {
	s := newSite(t)
	near, far := s.edge(s.near, "near", staticSender), s.edge(s.far, "far", staticReceiver)
	b, err := os.ReadFile(far.config)
	if err != nil {
		t.Fatal(err)
	}
	// This is long enough that a stall of the traffic does not look like a stopped sender.
	b = bytes.Replace(b, []byte("drain: 100ms"), []byte("drain: 1500ms"), 1)
	if err := os.WriteFile(far.config, b, 0o600); err != nil {
		t.Fatal(err)
	}
	far.start()
	near.start()
	near.until("paths", allUp)
	far.until("paths", allUp)
	f := s.traffic(2000)
	f.pass(200)
	far.process.Signal(syscall.SIGTERM)
	if err := far.process.Err(); err == nil || !strings.Contains(far.process.Stderr.String(),
		"edge detach --name far") {
		t.Errorf("ended with %v", err)
	}
	f.pass(100)
	near.process.Stop()
	near.clean()
	f.pass(100)
	if out, err := far.command("detach"); err != nil {
		t.Errorf("detach: %v\n%s", err, out)
	}
	far.clean()
	f.exact()
}

// TestKeep checks that with onExit: keep the kernel programs stay, and the next run takes them over.
func TestKeep(t *testing.T) {
	s := newSite(t)
	near, far := s.pair()
	near.process.Stop()
	f := s.traffic(2000)
	near.start("--on-exit", "keep")
	near.until("paths", allUp)
	for range 2 {
		near.process.Stop()
		f.pass(100)
		near.start("--on-exit", "keep")
	}
	f.exact()
	if s := far.status(); s.Paths[1].First+s.Paths[1].Late == 0 {
		t.Errorf("no packets on path 2: %+v", s.Paths)
	}
}

// TestPathFails checks that when a path loses its carrier, or its device disappears and returns, no
// packet is lost and the path is used again.
func TestPathFails(t *testing.T) {
	s := newSite(t)
	near, far := s.pair()
	f := s.traffic(2000)
	state := func(up bool) func(*Status) bool {
		return func(st *Status) bool { return st.Paths[1].Up == up && st.Paths[0].Up && st.Paths[2].Up }
	}
	sent := func() uint64 { return near.status().Paths[1].Sent }

	if err := s.far.Handle.LinkSetDown(s.link(s.far, "wan2")); err != nil {
		t.Fatal(err)
	}
	near.until("carrier lost", func(st *Status) bool {
		return state(false)(st) && st.Paths[1].Problem == "interface wan2 has no carrier"
	})
	far.until("interface down", func(st *Status) bool { return st.Paths[1].Problem == "interface wan2 is down" })
	before := sent()
	if err := s.far.Handle.LinkSetUp(s.link(s.far, "wan2")); err != nil {
		t.Fatal(err)
	}
	near.until("carrier back", func(st *Status) bool { return state(true)(st) && st.Paths[1].Sent > before+100 })

	if err := s.near.Handle.LinkDel(s.link(s.near, "wan2")); err != nil {
		t.Fatal(err)
	}
	near.until("device gone", func(st *Status) bool {
		return state(false)(st) && st.Paths[1].Problem == "interface wan2 does not exist"
	})
	// An edge can start without the device.
	for _, e := range []*edge{near, far} {
		e.process.Kill()
		e.start()
	}
	near.until("started without the device", state(false))
	before = sent()
	arrived := far.status().Paths[1]
	s.path(2)
	near.until("device back", func(st *Status) bool { return state(true)(st) && st.Paths[1].Sent > before+100 })
	far.until("replicas eliminated on the new device", func(st *Status) bool {
		p := st.Paths[1]
		return p.First+p.Late > arrived.First+arrived.Late+100
	})
	_, lost, doubled := f.counts()
	// Until the receiver has attached to the new device, up to a second after the sender, replicas on
	// it pass.
	if lost > 0 {
		t.Errorf("%d packets lost, %d doubled", lost, doubled)
	}
}

// TestDefaultPathFails checks that no packet is lost when the plain route's path fails.
func TestDefaultPathFails(t *testing.T) {
	s := newSite(t)
	near, _ := s.pair()
	f := s.traffic(2000)
	f.pass(100)
	if err := s.far.Handle.LinkSetDown(s.link(s.far, "wan1")); err != nil {
		t.Fatal(err)
	}
	near.until("carrier lost", func(st *Status) bool { return !st.Paths[0].Up })
	if err := s.far.Handle.LinkSetUp(s.link(s.far, "wan1")); err != nil {
		t.Fatal(err)
	}
	s.defaultPath()
	near.until("carrier back", allUp)
	f.exact()
}

// TestSilentPath checks that a path that has a carrier but delivers nothing is excluded, and that a
// flow without another path takes the plain route.
func TestSilentPath(t *testing.T) {
	s := newSite(t)
	near := s.edge(s.near, "near", strings.Replace(staticSender, "[1, 2, 3]", "[2]", 1))
	far := s.edge(s.far, "far", strings.Replace(staticReceiver, "[1, 2, 3]", "[2]", 1))
	far.start()
	near.start()
	near.until("paths", allUp)
	f := s.traffic(1000)
	f.pass(100)
	f.exact()

	// The other edge's answers are sent to an Ethernet address without a host.
	wrong := &netlink.Neigh{
		LinkIndex: s.link(s.far, "wan2").Attrs().Index, IP: net.IPv4(10, 1, 2, 1).To4(),
		HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}, State: netlink.NUD_PERMANENT,
	}
	if err := s.far.Handle.NeighSet(wrong); err != nil {
		t.Fatal(err)
	}
	st := near.until("silent", func(st *Status) bool { return !st.Paths[1].Up })
	if p := st.Paths[1].Problem; p != "10.1.2.2 answers on other paths, but not on this one" {
		t.Errorf("problem %q", p)
	}
	f = s.traffic(1000)
	f.pass(100)
	f.exact()
	if st := near.status(); st.Sender.Passed.Unusable == 0 {
		t.Errorf("passed plain: %+v", st.Sender.Passed)
	}

	if err := s.far.Handle.NeighDel(wrong); err != nil {
		t.Fatal(err)
	}
	near.until("heard again", allUp)

	// A dead peer answers on no path. That says nothing about the paths.
	far.process.Kill()
	time.Sleep(500 * time.Millisecond)
	if st := near.status(); !st.Paths[0].Up || !st.Paths[1].Up || !st.Paths[2].Up {
		t.Errorf("paths are down because the peer is dead: %+v", st.Paths)
	}
}

// TestWrongNextHop checks that replicas to a wrong Ethernet address are lost without affecting other
// replicas.
func TestWrongNextHop(t *testing.T) {
	s := newSite(t)
	near, far := s.pair()
	f := s.traffic(1000)
	if err := s.near.Handle.NeighSet(stranger(s, "wan1", "10.1.1.2")); err != nil {
		t.Fatal(err)
	}
	far.until("misaddressed replicas", func(st *Status) bool { return st.Receiver.Misaddressed > 0 })
	near.until("the path is silent", func(st *Status) bool { return !st.Paths[0].Up })
	f.exact()
}

// TestOwnHost runs an edge on the host whose packets it duplicates.
func TestOwnHost(t *testing.T) {
	s := newSite(t)
	near := s.edge(s.near, "near", strings.Replace(staticSender, "[{interface: lan0}]",
		"[{interface: wan1, direction: egress}, {interface: wan2, direction: egress}, {interface: wan3, direction: "+
			"egress}]", 1))
	far := s.edge(s.far, "far", staticReceiver)
	far.start()
	near.start()
	near.until("paths", allUp)
	f := s.stream(2000, s.near, s.viewer, viewerAddress)
	for range 2 {
		f.pass(200)
		near.process.Kill()
		f.pass(200)
		near.start()
	}
	n := uint64(f.exact())
	st := far.status()
	for i := range paths {
		if p := st.Paths[i]; p.First+p.Late != n || p.Rogue != 0 {
			t.Errorf("path %+v, want %d arrivals", p, n)
		}
	}
	if st := near.status(); len(st.Attached) != paths ||
		st.Attached[0] != (Attached{"duplicate_out", "wan1", "TCX egress"}) {
		t.Errorf("attached as %+v", st.Attached)
	}
}

// TestBothDirections runs two edges that both send and receive.
func TestBothDirections(t *testing.T) {
	s := newSite(t)
	text := func(towards, behind string) string {
		return "role: both\nsender: {attach: [{interface: lan0}], towards: [" + towards + "]}\nreceiver: {behind: [" +
			behind + "], dscp: 46}\n" +
			"flows: [{destination: " + viewerAddress + ", paths: [1, 2, 3]}, {destination: " + relayAddress +
			", paths: [2, 3]}]"
	}
	near, far := s.edge(s.near, "near", text("10.9.0.0/24", "10.8.0.0/24")), s.edge(s.far, "far",
		text("10.8.0.0/24", "10.9.0.0/24"))
	far.start()
	near.start()
	near.until("paths", allUp)
	far.until("paths", allUp)
	down := s.traffic(2000)
	up := s.stream(2000, s.viewer, s.relay, relayAddress)
	down.pass(200)
	far.process.Kill()
	far.start()
	down.pass(200)
	n, m := uint64(down.exact()), uint64(up.exact())
	for _, side := range []struct {
		e            *edge
		sent, came   uint64
		destinations int
	}{{near, n, m, 1}, {far, m, n, 1}} {
		st := side.e.status()
		if st.Sender.Duplicated != side.sent || len(st.Sender.Policies) != side.destinations ||
			len(st.Receiver.Flows) != side.destinations {
			t.Errorf("%s duplicated %d, want %d; %+v, %+v", st.Name, st.Sender.Duplicated, side.sent,
				st.Sender.Policies, st.Receiver.Flows)
		}
		if p := st.Paths[1]; p.First+p.Late != side.came || p.Lost != 0 || st.Receiver.Flows[0].DSCP != 46 {
			t.Errorf("%s: path 2 %+v, want %d arrivals; %+v", st.Name, p, side.came, st.Receiver.Flows)
		}
	}
}

// hup replaces parts of the configuration (pairs of old and new text), sends SIGHUP, and waits for a
// new log line that contains the text in says.
func (e *edge) hup(says string, parts ...string) {
	e.t.Helper()
	e.rewrite(parts...)
	before := strings.Count(e.process.Stderr.String(), says)
	e.process.Signal(syscall.SIGHUP)
	eventually(e.t, says+" in the log", func() bool { return strings.Count(e.process.Stderr.String(), says) > before })
}

// rewrite replaces parts of the configuration, given as pairs of old and new text.
func (e *edge) rewrite(parts ...string) {
	e.t.Helper()
	b, err := os.ReadFile(e.config)
	if err != nil {
		e.t.Fatal(err)
	}
	text := string(b)
	for i := 0; i < len(parts); i += 2 {
		if !strings.Contains(text, parts[i]) {
			e.t.Fatalf("%q is not in the configuration:\n%s", parts[i], text)
		}
		text = strings.Replace(text, parts[i], parts[i+1], 1)
	}
	if err := os.WriteFile(e.config, []byte(text), 0o600); err != nil {
		e.t.Fatal(err)
	}
}

// SIGHUP applies another configuration without losing a packet. An invalid one changes nothing.
func TestReload(t *testing.T) {
	s := newSite(t)
	near, far := s.pair()
	f := s.traffic(1000)
	near.hup("edge is running", "paths: [1, 2, 3]", "paths: [1, 3]")
	near.until("two paths", func(s *Status) bool {
		return allUp(s) && len(s.Sender.Policies) == 1 && s.Sender.Policies[0].Paths == pathset.Of(1, 3)
	})
	near.hup("stop it first", "name: near", "name: other")
	near.hup(`unknown setting \"nome\"`, "name: other", "nome: near")
	near.hup("edge is running", "nome: near", "name: near")
	near.hup("new configuration failed", `http: ""`, `http: "10.77.0.1:1"`)
	near.until("the old configuration",
		func(s *Status) bool { return allUp(s) && s.Sender.Policies[0].Paths == pathset.Of(1, 3) })
	far.hup("edge is running", "drain: 100ms", "drain: 150ms")
	far.until("paths", allUp)
	f.exact()
}

// TestFirewall checks that replicas cloned at ingress bypass the sender's forwarding and firewall, and
// that replicas cloned at egress have passed them.
func TestFirewall(t *testing.T) {
	for name, c := range map[string]struct {
		attach string
		passes bool // a packet that forwarding rejects
	}{
		"ingress": {"[{interface: lan0}]", true},
		"egress": {"[{interface: wan1, direction: egress}, {interface: wan2, direction: egress}, {interface: wan3, " +
			"direction: egress}]", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			near, far := s.edge(s.near, "near", strings.Replace(staticSender, "[{interface: lan0}]", c.attach,
				1)), s.edge(s.far, "far", staticReceiver)
			far.start()
			near.start()
			near.until("paths", allUp)
			f := s.traffic(1000)
			far.until("replicas on all paths",
				func(st *Status) bool { return st.Paths[0].First+st.Paths[0].Late > 100 })
			n := uint64(f.exact())
			st := far.status()
			for _, p := range st.Paths {
				if p.First+p.Late != n || p.Rogue != 0 {
					t.Errorf("path %+v, want %d arrivals", p, n)
				}
			}
			if err := s.near.Set("net/ipv4/conf/lan0/forwarding", "0"); err != nil {
				t.Fatal(err)
			}
			f = s.traffic(1000)
			f.pass(200)
			sent, lost, doubled := f.counts()
			if passed := sent - lost; sent == 0 || doubled > 0 || c.passes && lost > 0 || !c.passes && passed > 0 {
				t.Errorf("forwarding is off: of %d packets %d passed and %d arrived more than once", sent, passed,
					doubled)
			}
		})
	}
}

// TestReloadPaths adds paths to running edges (at the receiver first) and removes them (at the sender
// first) without losing or duplicating a packet.
func TestReloadPaths(t *testing.T) {
	s := newSite(t)
	near, far := s.edge(s.near, "near", staticSender), s.edge(s.far, "far", staticReceiver)
	line := func(e *edge, i int) string {
		peer := 1
		if e == near {
			peer = 2
		}
		return fmt.Sprintf("  - {index: %d, interface: wan%d, peer: 10.1.%d.%d}\n", i, i, i, peer)
	}
	for _, e := range []*edge{far, near} {
		e.rewrite(line(e, 3), "", "paths: [1, 2, 3]", "paths: [1, 2]")
		e.start()
	}
	// reached waits until an edge has exactly these paths and the other edge answers on each.
	reached := func(e *edge, paths ...int) {
		t.Helper()
		e.until(fmt.Sprint("paths ", paths), func(s *Status) bool {
			var at []int
			for _, p := range s.Paths {
				if p.Interface == "" { // a former path, listed only for its counters
					continue
				}
				if !p.Up || !p.Probed {
					return false
				}
				at = append(at, p.Index)
			}
			return slices.Equal(at, paths)
		})
	}
	reached(near, 1, 2)
	reached(far, 1, 2)
	f := s.traffic(1000)
	for _, e := range []*edge{far, near} { // add path 3
		e.hup("edge is running", line(e, 2), line(e, 2)+line(e, 3), "paths: [1, 2]", "paths: [1, 2, 3]")
	}
	reached(near, 1, 2, 3)
	reached(far, 1, 2, 3)
	far.until("packets on path 3", func(s *Status) bool { return s.Paths[2].First+s.Paths[2].Late > 0 })
	for _, e := range []*edge{near, far} { // remove path 2
		e.hup("edge is running", line(e, 2), "", "paths: [1, 2, 3]", "paths: [1, 3]")
	}
	reached(near, 1, 3)
	reached(far, 1, 3)
	if p := near.status().Sender.Policies; len(p) != 1 || p[0].Paths != pathset.Of(1, 3) {
		t.Errorf("policies %+v", p)
	}
	f.exact()
}
