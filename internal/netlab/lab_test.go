//go:build linux

package netlab

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holocast/internal/netlab/netem"
	"holocast/internal/netlab/probe"
	"holocast/internal/netlab/topology"
	"holocast/internal/netlab/wire"
)

// victim is the environment variable that makes the test binary build a lab and wait to be killed.
const victim = "NETLAB_TEST_VICTIM"

func TestMain(m *testing.M) {
	if os.Getenv(victim) != "" {
		beVictim()
	}
	os.Exit(m.Run())
}

func needRoot(t *testing.T) {
	t.Helper()
	if err := Supported(); err != nil {
		t.Skip("network lab unavailable: ", err)
	}
}

func parse(t *testing.T, text string) *topology.Topology {
	t.Helper()
	parsed, err := topology.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func start(t *testing.T, text string) *Lab {
	t.Helper()
	needRoot(t)
	l, err := Start(parse(t, text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if left := namespaces(t, os.Getpid()); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	return l
}

// namespaces returns the names of a process's namespaces.
func namespaces(t *testing.T, pid int) []string {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/run/netns/netlab-%d-*", pid))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

const twoPaths = `
name: two paths
late: 1m # the tests share their machine
hosts: [a, b]
edges: [ea, eb]
links: [{between: [a, ea]}, {between: [eb, b]}]
paths:
  - {name: path1, between: [ea, eb], rate: 20Mbit, delay: 20ms, loss: 10%, queue: 1s}
  - {name: path2, between: [ea, eb], delay: 5ms, backward: {delay: 30ms}}
`

// flow sends f from an address of one node to an address of another and returns the result.
func flow(t *testing.T, l *Lab, from, to string, source, destination string, f probe.Flow) probe.Result {
	t.Helper()
	listen := func(node, address string) (conn *net.UDPConn) {
		err := l.Node(node).Namespace.Do(func() (err error) {
			conn, err = probe.Listen(t.Context(), netip.AddrPortFrom(netip.MustParseAddr(address), 0))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	f.Send, f.Receive = listen(from, source), listen(to, destination)
	f.To = netip.MustParseAddrPort(f.Receive.LocalAddr().String())
	if f.Linger == 0 {
		f.Linger = 200 * time.Millisecond
	}
	r, err := f.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// atLeast checks the minimum delay in ms. No packet may be early, and the fastest may be at most 5
// ms late in one of five attempts, because the machine may be busy.
func atLeast(t *testing.T, what string, want float64, measure func() probe.Result) {
	t.Helper()
	var r probe.Result
	for range 5 {
		if r = measure(); r.DelayMin <= want+5 {
			break
		}
	}
	if r.DelayMin < want-0.05 || r.DelayMin > want+5 {
		t.Errorf("%s: delay from %.3f ms, median %.3f, want %.3f", what, r.DelayMin, r.DelayP50, want)
	}
}

func TestDelayRateAndLoss(t *testing.T) {
	l := start(t, twoPaths)
	quiet := probe.Flow{Size: 100, PacketRate: 500, Duration: time.Second}
	atLeast(t, "path 1", 20.057, func() probe.Result { return flow(t, l, "a", "b", "10.77.1.1", "10.77.2.2", quiet) })
	atLeast(t, "path 1 backward", 20.057,
		func() probe.Result { return flow(t, l, "b", "a", "10.77.2.2", "10.77.1.1", quiet) })
	atLeast(t, "path 2", 5, func() probe.Result { return flow(t, l, "ea", "eb", "10.77.4.1", "10.77.4.2", quiet) })
	atLeast(t, "path 2 backward", 30,
		func() probe.Result { return flow(t, l, "eb", "ea", "10.77.4.2", "10.77.4.1", quiet) })

	// Offer 1.6 times the path's rate. A loss of 10 % leaves 1.44 times the rate.
	const frame = 8 * (1400 + frameOverhead)
	full := flow(t, l, "a", "b", "10.77.1.1", "10.77.2.2", probe.Flow{
		Size: 1400, PacketRate: 1.6 * 20e6 / frame,
		Duration: 2 * time.Second, Linger: 1500 * time.Millisecond,
	})
	if got := full.PacketRate * frame / 20e6; math.Abs(got-1) > 0.02 {
		t.Errorf("path 1 carried %.4f of its rate", got)
	}
	if full.Reordered > 0 {
		t.Errorf("%d packets out of order", full.Reordered)
	}

	report, err := l.Finish()
	if err != nil {
		t.Fatal(err)
	}
	p := report.Paths[0]
	n := float64(p.Arrived)
	if made := float64(p.Lost); math.Abs(made-0.1*n) > 5*math.Sqrt(n*0.1*0.9) || math.Abs(p.Asked-0.1*n) > 1e-6*n {
		t.Errorf("%v of %v packets were lost, want %v", made, n, p.Asked)
	}
	if len(report.Failures) > 0 {
		t.Error(report.Failures)
	}
	if p.Late.Count != p.Packets || p.Packets != p.Arrived-p.Lost-p.Full {
		t.Errorf("%+v", p)
	}
	t.Logf("departure error µs: p50 %.0f, p99 %.0f, max %.0f; %.1f µs of CPU per packet",
		p.Late.P50, p.Late.P99, p.Late.Max, report.Emulator.CPUPerPacket)
}

// transfer sends data over TCP and returns the bytes received.
func transfer(t *testing.T, l *Lab, address string, data []byte) []byte {
	t.Helper()
	var listener net.Listener
	err := l.Node("b").Namespace.Do(func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(address, "0"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	received := make(chan []byte, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			received <- nil
			return
		}
		defer conn.Close()
		got, _ := io.ReadAll(conn)
		received <- got
	}()
	var conn net.Conn
	err = l.Node("a").Namespace.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", listener.Addr().String(), time.Minute)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(data); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	return <-received
}

func TestTCPArrivesWhole(t *testing.T) {
	l := start(t, strings.ReplaceAll(twoPaths, "10%", "0.1%"))
	data := bytes.Repeat([]byte("a hologram "), 200_000)
	addresses := []string{"10.77.2.2"}
	if hasIPv6() {
		addresses = append(addresses, "fd77:0:0:2::2")
	}
	for _, address := range addresses {
		if got := transfer(t, l, address, data); sha256.Sum256(got) != sha256.Sum256(data) {
			t.Errorf("%s: received %d bytes, want the %d sent", address, len(got), len(data))
		}
	}
	report, err := l.Finish()
	if err != nil {
		t.Fatal(err)
	}
	// Packets longer than a frame would count as faults.
	if len(report.Failures) > 0 {
		t.Error(report.Failures)
	}
}

// TestUDPSegmentation sends with UDP_SEGMENT, as QUIC does. The kernel must split the packets.
func TestUDPSegmentation(t *testing.T) {
	l := start(t, twoPaths)
	var conn *net.UDPConn
	err := l.Node("ea").Namespace.Do(func() (err error) {
		conn, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(10, 77, 4, 2), Port: 9})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	control := make([]byte, unix.CmsgSpace(2))
	control[0], control[8], control[12] = byte(unix.CmsgLen(2)), unix.SOL_UDP, unix.UDP_SEGMENT
	control[unix.CmsgLen(0)], control[unix.CmsgLen(0)+1] = 1000&0xff, 1000>>8
	want := uint64(10)
	switch _, _, err := conn.WriteMsgUDP(make([]byte, 10_000), control, nil); {
	case errors.Is(err, unix.EIO): // unsupported without checksum offload
		want = 0
	case err != nil:
		t.Fatal(err)
	}
	for limit := time.Now().Add(time.Minute); arrived(l, 2) < want && time.Now().Before(limit); {
		time.Sleep(10 * time.Millisecond)
	}
	report, err := l.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if p := report.Paths[2]; p.Faults.Any() > 0 || p.Arrived != want {
		t.Errorf("%+v", p)
	}
}

// arrived returns the number of packets that have arrived at one direction of a path.
func arrived(l *Lab, port int) (n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.series {
		n += s.Links[port].PacketsIn
	}
	return n
}

func TestSet(t *testing.T) {
	l := start(t, twoPaths)
	if err := l.Set("path2", wire.Conditions{Delay: 50 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	quiet := probe.Flow{Size: 100, PacketRate: 200, Duration: 300 * time.Millisecond}
	atLeast(t, "path 2", 50, func() probe.Result { return flow(t, l, "ea", "eb", "10.77.4.1", "10.77.4.2", quiet) })
	if err := l.Set("path9", wire.Conditions{}); err == nil {
		t.Error("Set accepted an unknown path")
	}
}

// A link that goes down loses its neighbour entries and resolves them again when it comes back.
func TestFlappedLink(t *testing.T) {
	l := start(t, twoPaths)
	ns := l.Node("ea").Namespace
	quiet := probe.Flow{Size: 100, PacketRate: 200, Duration: 300 * time.Millisecond}
	for _, back := range []bool{false, true} {
		from, to, source, destination := "ea", "eb", "10.77.4.1", "10.77.4.2"
		if back {
			from, to, source, destination = to, from, destination, source
		}
		device, err := ns.Handle.LinkByName("path2")
		if err == nil {
			err = ns.Handle.LinkSetDown(device)
		}
		if err == nil {
			err = ns.Handle.LinkSetUp(device)
		}
		if err != nil {
			t.Fatal(err)
		}
		arrived := uint64(0)
		for range 20 { // the first packets wait for neighbour resolution
			if arrived = flow(t, l, from, to, source, destination, quiet).Received; arrived > 0 {
				break
			}
		}
		if arrived == 0 {
			t.Errorf("nothing arrives from %s to %s", from, to)
		}
	}
}

func TestRun(t *testing.T) {
	needRoot(t)
	parsed := parse(t, twoPaths+`
run:
  - {host: b, command: 'echo "{\"a\": \"$ADDR_A\"}"'}
  - {host: a, command: 'echo out; echo err >&2; exit 3', start: 1s}
  - {host: ea, command: 'sleep 100 & sleep 100', background: true}
`)
	report, err := Run(t.Context(), parsed, Options{Wire: wire.Options{Interval: 50 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	c := report.Commands
	if len(c) != 3 || string(c[0].JSON) != `{"a": "10.77.1.1"}` || c[0].ExitCode != 0 {
		t.Errorf("%+v", c)
	}
	if c[1].Output != "out\n" || c[1].Stderr != "err\n" || c[1].ExitCode != 3 || c[1].Ended {
		t.Errorf("%+v", c[1])
	}
	if !c[2].Ended || c[2].Error != "" {
		t.Errorf("%+v", c[2])
	}
	if len(report.Failures) != 1 || !strings.Contains(report.Failures[0], "exit status 3: err") {
		t.Errorf("failures: %q", report.Failures)
	}
	if len(report.Series) < 10 || len(report.Series[0].Paths) != 4 {
		t.Errorf("%d samples", len(report.Series))
	}
	if left := namespaces(t, os.Getpid()); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	needRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	parsed := parse(t, twoPaths+"run: [{host: a, command: 'sleep 100'}]")
	report, err := Run(ctx, parsed, Options{})
	if err != nil || !report.Commands[0].Ended {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestNetem uses the kernel's netem if available; otherwise Start must return ErrUnavailable.
func TestNetem(t *testing.T) {
	needRoot(t)
	parsed := parse(t, strings.ReplaceAll(twoPaths, "loss: 10%, ", ""))
	l, err := Start(parsed, Options{Emulator: Netem})
	if errors.Is(err, netem.ErrUnavailable) {
		if left := namespaces(t, os.Getpid()); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	quiet := probe.Flow{Size: 100, PacketRate: 200, Duration: 500 * time.Millisecond}
	atLeast(t, "path 1", 20.057, func() probe.Result { return flow(t, l, "a", "b", "10.77.1.1", "10.77.2.2", quiet) })
	atLeast(t, "path 2 backward", 30,
		func() probe.Result { return flow(t, l, "eb", "ea", "10.77.4.2", "10.77.4.1", quiet) })
	report, err := l.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if p := report.Paths[0]; report.Emulator.Kind != "netem" || p.Packets < 50 || p.Lost > 0 {
		t.Errorf("%+v", report)
	}
}

func TestLateRunFails(t *testing.T) {
	l := start(t, strings.Replace(twoPaths, "late: 1m", "late: 0s", 1))
	flow(t, l, "a", "b", "10.77.1.1", "10.77.2.2", probe.Flow{
		Size: 100, PacketRate: 500,
		Duration: 100 * time.Millisecond,
	})
	report, err := l.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Failures) != 1 || !strings.HasPrefix(report.Failures[0],
		"the emulation was late: 100 % of the packets of path1 ea→eb, ") {
		t.Errorf("failures: %q", report.Failures)
	}
}

func TestLateness(t *testing.T) {
	for _, tt := range []struct {
		late, of      uint64
		noted, failed bool
	}{
		{0, 0, false, false},
		{0, 10_000, false, false},
		{10, 10_000, false, false},
		{11, 10_000, true, false},
		{100, 10_000, true, false},
		{101, 10_000, true, true},
		{4, 50, true, false}, // too few to judge
		{5, 50, true, true},
	} {
		p := Path{LinkReport: wire.LinkReport{Name: "x", LatePackets: tt.late, Late: wire.Quantiles{Count: tt.of}}}
		if text, noted, failed := p.lateness(time.Millisecond); noted != tt.noted || failed != tt.failed {
			t.Errorf("%d late of %d: noted %v, failed %v: %s", tt.late, tt.of, noted, failed, text)
		}
	}
}

func TestMark(t *testing.T) {
	l := start(t, twoPaths)
	quiet := probe.Flow{Size: 100, PacketRate: 500, Duration: 100 * time.Millisecond}
	before := flow(t, l, "a", "b", "10.77.1.1", "10.77.2.2", quiet)
	l.Mark()
	quiet.Duration = 40 * time.Millisecond
	after := flow(t, l, "a", "b", "10.77.1.1", "10.77.2.2", quiet)
	report, err := l.Finish()
	if err != nil {
		t.Fatal(err)
	}
	p := report.Paths[0]
	if p.Arrived != before.Sent+after.Sent || p.Wait.Count == 0 || p.Wait.Count > after.Sent ||
		p.Delay.Count == 0 || p.Delay.Count > after.Sent || p.Delay.P50 < 20 {
		t.Errorf("sent %d and %d, arrived %d, wait %+v, delay %+v", before.Sent, after.Sent, p.Arrived, p.Wait, p.Delay)
	}
}

// TestJitter checks that the first packet's delay does not count as jitter.
func TestJitter(t *testing.T) {
	l := start(t, twoPaths)
	flow(t, l, "a", "b", "10.77.1.1", "10.77.2.2", probe.Flow{Size: 100, PacketRate: 500, Duration: 20 * time.Millisecond})
	report, err := l.Finish()
	if err != nil {
		t.Fatal(err)
	}
	sum, packets, least, most := 0.0, 0.0, math.Inf(1), 0.0
	for _, s := range report.Series {
		if c := s.Paths[0]; c.PacketsOut > 0 {
			sum += c.Jitter * float64(c.PacketsOut)
			packets += float64(c.PacketsOut)
			least, most = min(least, c.DelayMin), max(most, c.DelayMax)
		}
	}
	if packets == 0 || sum > packets*(most-least) {
		t.Errorf("%v packets with delays from %.3f to %.3f ms: differences %.3f ms", packets, least, most, sum)
	}
}

func TestCheck(t *testing.T) {
	needRoot(t)
	check, err := CheckTopology(t.Context(), parse(t, twoPaths), Load{
		Duration: 500 * time.Millisecond, Size: 500,
		Fill: 0.05,
	}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range check.Flows {
		if f.Unexplained != 0 || f.Quiet.Received == 0 || f.Loaded.Received == 0 {
			t.Errorf("%+v", f)
		}
	}
	var text bytes.Buffer
	if err := check.WriteTable(&text); err != nil || strings.Count(text.String(), "path2") != 2 {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// beVictim builds a lab with a process that ignores SIGTERM and SIGHUP. It prints "ready" and waits
// to be killed.
func beVictim() {
	parsed, err := topology.Parse([]byte(twoPaths))
	if err != nil {
		panic(err)
	}
	l, err := Start(parsed, Options{})
	if err != nil {
		panic(err)
	}
	// The child outlives the shell; then only its namespace identifies it.
	if err := l.Node("a").Start(l.Node("a").Command(context.Background(), "sh", "-c",
		"trap '' TERM HUP; sleep 1000 & wait")); err != nil {
		panic(err)
	}
	fmt.Println("ready")
	select {}
}

// kill starts a victim and kills it, together with its reaper if withReaper is set.
func kill(t *testing.T, withReaper bool) (pid int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victim+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Fatal(line, err)
	}
	pid = cmd.Process.Pid
	if len(namespaces(t, pid)) != 5 {
		t.Errorf("namespaces of the victim: %v", namespaces(t, pid))
	}
	if withReaper {
		for _, child := range childrenOf(t, pid) {
			if err := unix.Kill(-child, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				t.Error(err)
			}
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	return pid
}

// childrenOf returns the child processes of pid.
func childrenOf(t *testing.T, pid int) (children []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // has ended
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if fields[1] == strconv.Itoa(pid) {
			child, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err != nil {
				t.Fatal(err)
			}
			children = append(children, child)
		}
	}
	return children
}

// gone waits until a lab's namespaces are removed. It returns false if that takes too long.
func gone(t *testing.T, pid int) bool {
	t.Helper()
	for range 1000 {
		if len(namespaces(t, pid)) == 0 {
			return true
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}

func TestKilledLabIsRemoved(t *testing.T) {
	needRoot(t)
	pid := kill(t, false)
	if !gone(t, pid) {
		t.Errorf("left behind: %v", namespaces(t, pid))
	}
}

func TestCleanRemovesWhatIsLeft(t *testing.T) {
	needRoot(t)
	pid := kill(t, true)
	left := namespaces(t, pid)
	if len(left) != 5 {
		t.Errorf("left behind: %v", left)
	}
	removed, err := Clean()
	if err != nil {
		t.Fatal(err)
	}
	if len(removed) < len(left) || len(namespaces(t, pid)) > 0 {
		t.Errorf("removed %v of %v", removed, left)
	}
}

func TestRoutes(t *testing.T) {
	table, err := topology.Builtin("table1")
	if err != nil {
		t.Fatal(err)
	}
	cables := (&Lab{topology: table}).cables()
	for _, c := range []struct{ from, want string }{
		{"a", "2 via 1.2, 3 via 1.2, 4 via 1.2, 5 via 1.2, 6 via 1.2, 7 via 1.2"},
		{"ea", "2 via 3.2"},
		{"eb", "1 via 3.1"},
		{"b", "1 via 2.1, 3 via 2.1, 4 via 2.1, 5 via 2.1, 6 via 2.1, 7 via 2.1"},
	} {
		hops := make([]string, 0, len(cables))
		for _, h := range routes(c.from, cables, table.Hosts) {
			hops = append(hops, fmt.Sprintf("%d via %d.%d", h.to.index, h.cable.index, h.end+1))
		}
		if got := strings.Join(hops, ", "); got != c.want {
			t.Errorf("%s: %s, not %s", c.from, got, c.want)
		}
	}
	// Hosts do not forward: a cannot reach c through b.
	line := parse(t, "name: x\nhosts: [a, b, c]\npaths: [{name: p, between: [a, b]}, {name: q, between: [b, c]}]")
	if hops := routes("a", (&Lab{topology: line}).cables(), line.Hosts); len(hops) != 1 || hops[0].to.index != 2 {
		t.Errorf("%+v", hops)
	}
}

func TestJSONIn(t *testing.T) {
	for _, c := range []struct{ out, want string }{
		{"{\"a\":\n1}\n", "{\"a\":\n1}"},
		{"starting\n{\"a\":1}\n", `{"a":1}`},
		{"[1]", "[1]"},
		{"12\n", ""},
		{"{broken\n", ""},
		{"", ""},
	} {
		if got := jsonIn([]byte(c.out)); string(got) != c.want {
			t.Errorf("%q: %q, not %q", c.out, got, c.want)
		}
	}
}

func TestLimitedBuffer(t *testing.T) {
	var b limitedBuffer
	chunk := make([]byte, maxOutput/2+1)
	for range 3 {
		if n, err := b.Write(chunk); n != len(chunk) || err != nil {
			t.Fatal(n, err)
		}
	}
	if b.Len() != maxOutput || !b.full {
		t.Errorf("%d bytes, full %v", b.Len(), b.full)
	}
}

// BenchmarkForwarder saturates the five paths of Table I. It reports the total packet rate and the
// cost per packet.
func BenchmarkForwarder(b *testing.B) {
	if err := Supported(); err != nil {
		b.Skip("network lab unavailable: ", err)
	}
	table, err := topology.Builtin("table1")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		check, err := CheckTopology(b.Context(), table, Load{Duration: 2 * time.Second, Size: 940, Fill: 1.1},
			Options{})
		if err != nil {
			b.Fatal(err)
		}
		rate, p50, p99 := 0.0, 0.0, 0.0
		for i, f := range check.Flows {
			rate += f.Loaded.PacketRate
			p50 = max(p50, check.Paths[2*i].Late.P50)
			p99 = max(p99, check.Paths[2*i].Late.P99)
		}
		b.ReportMetric(rate, "packets/s")
		b.ReportMetric(check.Emulator.CPUPerPacket, "cpu-µs/packet")
		b.ReportMetric(p50, "late-p50-µs")
		b.ReportMetric(p99, "late-p99-µs")
	}
}
