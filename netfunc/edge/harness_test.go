//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"holocast/internal/netlab/namespace"
	"holocast/internal/netlab/namespace/namespacetest"
	"holocast/internal/programtest"
)

// The programs under test, built with buildFlags.
var (
	edgeBinary, controllerBinary string
	buildFlags                   []string
)

func TestMain(m *testing.M) {
	// The tests run in separate namespaces and use little CPU time, so more can run in parallel.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set(strconv.Itoa(min(6, 2+runtime.GOMAXPROCS(0)))) // the verifier needs CPU time
	}
	// A proxy in the environment must not be used. Calls through this one fail.
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "ALL_PROXY"} {
		if err := os.Setenv(name, "http://127.0.0.1:1"); err != nil {
			panic(err)
		}
	}
	programtest.Main(m, func(dir string) {
		edgeBinary, controllerBinary = filepath.Join(dir, "edge"), filepath.Join(dir, "controller")
	}, append(buildFlags, ".", "../controller")...)
}

// needRoot skips a test unless it runs as root.
func needRoot(t *testing.T) {
	t.Helper()
	if err := privileged(); err != nil {
		t.Skip("eBPF in namespaces:", err)
	}
	if err := namespace.Supported(); err != nil {
		t.Skip("eBPF in namespaces:", err)
	}
}

// patience only guards against hangs.
const patience = 2 * time.Minute

const (
	relayAddress  = "10.8.0.2"
	viewerAddress = "10.9.0.2"
	paths         = 3
)

// pins numbers the pin directories.
var pins atomic.Int32

// site has two hosts behind two edges, which are connected by three paths:
//
//	relay — near ═ wan1 to wan3 ═ far — viewer
type site struct {
	t                        *testing.T
	relay, near, far, viewer *namespace.Namespace
}

func newSite(t *testing.T) *site {
	needRoot(t)
	if !strings.Contains(t.Name(), "/") {
		t.Parallel()
	}
	g := namespacetest.NewGroup(t)
	var err error
	s := &site{t: t}
	for _, n := range []struct {
		name string
		into **namespace.Namespace
	}{{"relay", &s.relay}, {"near", &s.near}, {"far", &s.far}, {"viewer", &s.viewer}} {
		if *n.into, err = g.Add(n.name); err != nil {
			t.Fatal(err)
		}
		for _, setting := range []string{
			"net/ipv4/ip_forward=1", "net/ipv4/conf/all/rp_filter=0",
			"net/ipv4/conf/default/rp_filter=0", "net/ipv6/conf/default/disable_ipv6=1",
		} {
			key, value, _ := strings.Cut(setting, "=")
			if err := (*n.into).Set(key, value); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		}
	}
	s.cable(s.relay, "lan0", relayAddress, s.near, "lan0", "10.8.0.1")
	s.cable(s.far, "lan0", "10.9.0.1", s.viewer, "lan0", viewerAddress)
	for i := 1; i <= paths; i++ {
		s.path(i)
	}
	s.route(s.relay, "10.0.0.0/8", "10.8.0.1")
	s.route(s.viewer, "10.0.0.0/8", "10.9.0.1")
	s.defaultPath()
	return s
}

// path connects the edges by path i.
func (s *site) path(i int) {
	name := fmt.Sprintf("wan%d", i)
	s.cable(s.near, name, fmt.Sprintf("10.1.%d.1", i), s.far, name, fmt.Sprintf("10.1.%d.2", i))
}

// defaultPath makes path 1 the plain route.
func (s *site) defaultPath() {
	s.route(s.near, "10.9.0.0/24", "10.1.1.2")
	s.route(s.far, "10.8.0.0/24", "10.1.1.1")
}

func (s *site) cable(a *namespace.Namespace, deviceA, addressA string, b *namespace.Namespace, deviceB,
	addressB string,
) {
	s.t.Helper()
	x, y := namespace.End{Namespace: a, Device: deviceA}, namespace.End{Namespace: b, Device: deviceB}
	if err := namespace.Connect(x, y); err != nil {
		s.t.Fatal(err)
	}
	for end, address := range map[namespace.End]string{x: addressA, y: addressB} {
		link, err := end.Link()
		if err != nil {
			s.t.Fatal(err)
		}
		a, err := netlink.ParseAddr(address + "/24")
		if err != nil {
			s.t.Fatal(err)
		}
		if err := end.Namespace.Handle.AddrAdd(link, a); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *site) route(n *namespace.Namespace, to, via string) {
	s.t.Helper()
	_, dst, err := net.ParseCIDR(to)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := n.Handle.RouteReplace(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) link(n *namespace.Namespace, device string) netlink.Link {
	s.t.Helper()
	l, err := n.Handle.LinkByName(device)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

// edge is an edge's configuration file, and the processes that ran with it.
type edge struct {
	t       *testing.T
	ns      *namespace.Namespace
	config  string
	pin     string
	socket  string
	process *programtest.Process
}

// edge writes a configuration that consists of the site's paths, a pin directory, a socket and text.
func (s *site) edge(n *namespace.Namespace, name, text string) *edge {
	s.t.Helper()
	dir := s.t.TempDir()
	e := &edge{
		t: s.t, ns: n, config: filepath.Join(dir, "edge.yml"), socket: filepath.Join(dir, "edge.sock"),
		pin: fmt.Sprintf("/sys/fs/bpf/he-%d-%d-%s", os.Getpid(), pins.Add(1), name),
	}
	peer := 1
	if n == s.near {
		peer = 2
	}
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\npin: %s\nsocket: %s\nhttp: \"\"\ndrain: 100ms\nprobe: {every: 20ms, timeout: 200ms, "+
		"down: 300ms}\nlog: {level: debug}\n%s\npaths:\n", name, e.pin, e.socket, text)
	for i := 1; i <= paths; i++ {
		fmt.Fprintf(&b, "  - {index: %d, interface: wan%d, peer: 10.1.%d.%d}\n", i, i, i, peer)
	}
	if err := os.WriteFile(e.config, []byte(b.String()), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if e.process != nil {
			e.process.Kill()
		}
		if out, err := e.command("detach"); err != nil && !strings.Contains(out, "nothing to detach") {
			s.t.Errorf("detach: %v: %s", err, out)
		}
	})
	return e
}

// command runs an edge command and waits until it exits.
func (e *edge) command(args ...string) (string, error) {
	var out bytes.Buffer
	err := e.ns.Do(func() error {
		ctx, stop := context.WithTimeout(context.Background(), patience) // cleanups run it too
		defer stop()
		c := exec.CommandContext(ctx, edgeBinary, append(args, "--config", e.config)...)
		c.Stdout, c.Stderr = &out, &out
		return c.Run()
	})
	return out.String(), err
}

// start starts the edge and waits until it is running.
func (e *edge) start(args ...string) {
	e.t.Helper()
	e.process = startIn(e.t, e.ns, exec.Command(edgeBinary, append([]string{"run", "--config", e.config}, args...)...))
	e.process.Line("edge is running")
}

// startIn starts a program in a namespace.
func startIn(t *testing.T, ns *namespace.Namespace, c *exec.Cmd) *programtest.Process {
	t.Helper()
	return programtest.StartBy(t, c, func(c *exec.Cmd) error { return ns.Do(c.Start) })
}

// status returns the output of "edge status --json".
func (e *edge) status() *Status {
	e.t.Helper()
	out, err := e.command("status", "--json")
	if err != nil {
		e.t.Fatalf("status: %v\n%s", err, out)
	}
	s := &Status{}
	if err := json.Unmarshal([]byte(out), s); err != nil {
		e.t.Fatalf("status: %v\n%s", err, out)
	}
	return s
}

// until waits for a status that ok accepts. It asks the running edge directly, since starting the
// command each time would take CPU time from the edges.
func (e *edge) until(what string, ok func(*Status) bool) *Status {
	e.t.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		s, err := (&Config{Socket: e.socket}).ask(e.t.Context())
		if err != nil { // the edge is not running
			s = e.status()
		}
		if ok(s) {
			return s
		}
		if time.Now().After(limit) {
			var b strings.Builder
			s.print(&b)
			e.t.Fatalf("%s: not reached:\n%s", what, b.String())
		}
	}
}

// eventually waits for is() to become true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for limit := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("not reached: " + what)
		}
	}
}

// allUp accepts a status with all paths up and probed.
func allUp(s *Status) bool {
	for _, p := range s.Paths {
		if !p.Up || !p.Probed {
			return false
		}
	}
	return len(s.Paths) == paths
}

// traffic is a stream of numbered packets.
type traffic struct {
	s        *site
	stopping chan struct{}
	sending  sync.WaitGroup
	sent     atomic.Uint32
	in       *net.UDPConn
	receiver sync.WaitGroup
	seen     []uint8 // arrivals per number
	came     atomic.Int64
	strange  int
}

// traffic starts sending packets from the relay to the viewer at rate packets per second.
func (s *site) traffic(rate int) *traffic {
	s.t.Helper()
	return s.stream(rate, s.relay, s.viewer, viewerAddress)
}

// stream starts sending packets to a host's address at rate packets per second.
func (s *site) stream(rate int, from, to *namespace.Namespace, address string) *traffic {
	s.t.Helper()
	f := &traffic{s: s, stopping: make(chan struct{}), seen: make([]uint8, 1<<20)}
	var out *net.UDPConn
	err := to.Do(func() (err error) {
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) })
		}}
		pc, err := lc.ListenPacket(context.Background(), "udp4", address+":0")
		if err == nil {
			f.in = pc.(*net.UDPConn)
		}
		return err
	})
	if err == nil {
		err = from.Do(func() (err error) {
			out, err = net.DialUDP("udp4", nil, f.in.LocalAddr().(*net.UDPAddr))
			return err
		})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	f.receiver.Go(func() {
		b := make([]byte, 2048)
		for {
			n, _, err := f.in.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			f.came.Add(1)
			if n < 4 {
				f.strange++
				continue
			}
			if number := binary.BigEndian.Uint32(b); int(number) < len(f.seen) {
				f.seen[number]++
			}
		}
	})
	f.sending.Go(func() {
		defer func() { _ = out.Close() }()
		const step = 5 * time.Millisecond
		tick := time.NewTicker(step)
		defer tick.Stop()
		b := make([]byte, 600)
		began := time.Now()
		for {
			select {
			case <-f.stopping:
				return
			case <-tick.C:
			}
			due := min(uint32(time.Since(began).Seconds()*float64(rate)), uint32(len(f.seen)))
			for n := f.sent.Load(); n < due; n = f.sent.Add(1) {
				binary.BigEndian.PutUint32(b, n)
				binary.BigEndian.PutUint64(b[len(b)-8:], uint64(n)*0x9e3779b97f4a7c15)
				for {
					if _, err := out.Write(b); !errors.Is(err, unix.ENOBUFS) {
						break
					}
				}
			}
		}
	})
	s.t.Cleanup(func() { f.end() })
	return f
}

// pass waits until n more packets have been sent.
func (f *traffic) pass(n uint32) {
	f.s.t.Helper()
	until, limit := f.sent.Load()+n, time.Now().Add(patience)
	for ; f.sent.Load() < until; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			f.s.t.Fatalf("only %d packets sent", f.sent.Load())
		}
	}
}

// end stops sending, then receives the packets in flight.
func (f *traffic) end() {
	select {
	case <-f.stopping:
		return
	default:
	}
	close(f.stopping)
	f.sending.Wait()
	// Wait until packets have stopped arriving, longer if some are missing. Counting iterations
	// instead of time waits longer on a stalled machine.
	for looks, before := 0, int64(0); looks < 20 || before < int64(f.sent.Load()) && looks < 100; looks++ {
		time.Sleep(5 * time.Millisecond)
		if came := f.came.Load(); came != before {
			looks, before = 0, came
		}
	}
	_ = f.in.Close()
	f.receiver.Wait()
}

// counts ends the traffic and returns the numbers of packets sent, lost, and received more than
// once.
func (f *traffic) counts() (sent, lost, doubled int) {
	f.end()
	for _, n := range f.seen[:f.sent.Load()] {
		switch {
		case n == 0:
			lost++
		case n > 1:
			doubled++
		}
	}
	return int(f.sent.Load()), lost, doubled
}

// exact ends the traffic and checks that each packet arrived exactly once.
func (f *traffic) exact() (sent int) {
	f.s.t.Helper()
	sent, lost, doubled := f.counts()
	if sent == 0 || lost > 0 || doubled > 0 || f.strange > 0 {
		f.s.t.Errorf("of %d packets %d were lost and %d arrived more than once; %d foreign ones", sent, lost, doubled,
			f.strange)
	}
	return sent
}

var viewerAddr = netip.MustParseAddr(viewerAddress)

// stranger returns a neighbour entry at the near edge for an address without a host.
func stranger(s *site, device, address string) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex: s.link(s.near, device).Attrs().Index, IP: net.ParseIP(address).To4(),
		HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 77}, State: netlink.NUD_PERMANENT,
	}
}

func setTOS(fd, tos int) error { return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, tos) }
