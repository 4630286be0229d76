//go:build linux && amd64

// Command guest is the init process of the virtual machines that tools/kernels starts. It loads
// kernel modules, attaches every eBPF program, and runs the tests of the programs' packages and the
// test that sets the machine's clock. It writes the results to the second serial port and powers
// the machine off.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"holocast/internal/bpfload"
	"holocast/internal/programtest"
	pair "holocast/netfunc/bpf"
	fastpath "holocast/relay/fastpath/kernel"
	"holocast/relay/steer"
	"holocast/tools/kernels/report"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "guest: this is the init process of a virtual machine; see tools/kernels")
		os.Exit(2)
	}
	if len(os.Args) == 1 {
		// Some packages read /proc during initialization, so start again now that it is mounted.
		err := mount()
		if err == nil {
			err = unix.Exec("/init", []string{"/init", "mounted"}, os.Environ())
		}
		fmt.Println("guest:", err)
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}
	g := &guest{}
	if err := g.run(); err != nil {
		g.fail("%v", err)
	}
	g.write(report.Line{End: &report.End{Failed: g.failed}})
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func mount() error {
	for _, m := range []struct{ kind, dir string }{
		{"devtmpfs", "/dev"},
		{"proc", "/proc"},
		{"sysfs", "/sys"},
		{"tmpfs", "/tmp"},
		{"tmpfs", "/run"},
		{"bpf", "/sys/fs/bpf"},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.dir, err)
		}
	}
	return nil
}

type guest struct {
	out    *os.File
	failed []string
}

func (g *guest) fail(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	fmt.Println("guest:", s)
	g.failed = append(g.failed, s)
}

func (g *guest) write(l report.Line) {
	if err := l.Write(g.out); err != nil {
		fmt.Println("guest: report:", err)
	}
}

func (g *guest) run() error {
	var err error
	if g.out, err = os.OpenFile("/dev/ttyS1", os.O_WRONLY|unix.O_NOCTTY, 0); err != nil {
		return err
	}
	t, err := unix.IoctlGetTermios(int(g.out.Fd()), unix.TCGETS)
	if err == nil {
		t.Oflag &^= unix.OPOST
		err = unix.IoctlSetTermios(int(g.out.Fd()), unix.TCSETS, t)
	}
	if err != nil {
		return fmt.Errorf("second serial port: %w", err)
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	g.write(report.Line{Kernel: &report.Kernel{Release: unix.ByteSliceToString(u.Release[:])}})
	if err := modules("/modules"); err != nil {
		return err
	}
	if err := interfaces(); err != nil {
		return err
	}
	missing := make(map[string]bool) // packages with a program that could not be attached
	for _, p := range programs {
		if !g.attach(p) {
			missing[p.pkg] = true
		}
	}
	for _, pkg := range []string{"netfunc/bpf", "relay/fastpath/kernel", "relay/steer"} {
		if !missing[pkg] {
			g.test(pkg)
		}
	}
	g.test("relay")
	return nil
}

// modules loads the kernel modules in a directory, in the order listed in its file "order".
func modules(dir string) error {
	order, err := os.ReadFile(filepath.Join(dir, "order"))
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(string(order)) {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		_ = f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("module %s: %w", name, err)
		}
	}
	return nil
}

// interfaces creates a veth pair, a and b, and brings up both and lo.
func interfaces() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "a"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "b"}); err != nil {
		return fmt.Errorf("veth: %w", err)
	}
	for _, name := range []string{"lo", "a", "b"} {
		l, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			return fmt.Errorf("interface %s: %w", name, err)
		}
	}
	return nil
}

// program is an eBPF program. attach attaches it and returns the hook's name and a function that
// detaches it.
type program struct {
	name, pkg string
	attach    func() (hook string, detach func() error, err error)
}

// programs lists all of the project's programs.
var programs = []program{
	{"duplicate", "netfunc/bpf", sender(pair.Ingress)},
	{"duplicate_out", "netfunc/bpf", sender(pair.Egress)},
	{"monitor", "netfunc/bpf", sender(pair.Monitor)},
	{"eliminate", "netfunc/bpf", eliminate},
	{"publisher_ingress, viewer_ingress, viewer_egress", "relay/fastpath/kernel", relay},
	{"steer", "relay/steer", steering},
}

const pins = "/sys/fs/bpf/holocast"

func sender(d pair.Direction) func() (string, func() error, error) {
	return func() (string, func() error, error) {
		s, err := pair.OpenSender(pair.SenderOptions{Pin: pins, Attach: []pair.Attach{{Interface: "a", Direction: d}}})
		if err != nil {
			return "", nil, err
		}
		return trafficControl(), s.Detach, nil
	}
}

func eliminate() (string, func() error, error) {
	r, err := pair.OpenReceiver(pair.ReceiverOptions{Pin: pins, Interfaces: []string{"b"}})
	if err != nil {
		return "", nil, err
	}
	return "XDP", r.Detach, nil
}

func relay() (string, func() error, error) {
	k, err := fastpath.Open(fastpath.Options{Port: 4443, ConnIDLen: steer.IDLength})
	if err != nil {
		return "", nil, err
	}
	i, err := net.InterfaceByName("a")
	if err != nil {
		return "", nil, errors.Join(err, k.Close())
	}
	a, err := k.Attach(i.Index, false)
	if err != nil {
		return "", nil, errors.Join(err, k.Close())
	}
	return trafficControl(), func() error { return errors.Join(a.Detach(), k.Close()) }, nil
}

func steering() (string, func() error, error) {
	g, err := steer.Listen("127.0.0.1:0", 2, nil)
	if err != nil {
		return "", nil, err
	}
	if err := g.Off(); err != nil {
		g.Close()
		return "", nil, err
	}
	return "reuseport", func() error { g.Close(); return nil }, nil
}

// trafficControl returns the hook in use for traffic control: clsact if that qdisc exists,
// otherwise TCX.
func trafficControl() string {
	l, err := netlink.LinkByName("a")
	if err != nil {
		return err.Error()
	}
	qdiscs, err := netlink.QdiscList(l)
	if err != nil {
		return err.Error()
	}
	for _, q := range qdiscs {
		if q.Type() == "clsact" {
			return "clsact"
		}
	}
	return "TCX"
}

// attach attaches and detaches a program and reports the result. It returns false if the program
// could not be attached.
func (g *guest) attach(p program) bool {
	r := report.Program{Name: p.name, Package: p.pkg}
	hook, detach, err := p.attach()
	switch {
	case err != nil:
		r.Error, r.TooOld = err.Error(), errors.Is(err, bpfload.ErrKernel)
		var verifier *ebpf.VerifierError
		if errors.As(err, &verifier) {
			fmt.Printf("%+v\n", verifier) // the full verifier log
		}
	default:
		r.Attach = hook
		if err := detach(); err != nil {
			g.fail("detach %s: %v", p.name, err)
		}
	}
	fmt.Printf("guest: %+v\n", r)
	g.write(report.Line{Program: &r})
	return err == nil
}

var verdict = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (\S+)`)

// test runs a package's tests.
func (g *guest) test(pkg string) {
	args := []string{"-test.v", "-test.timeout", "30m"}
	switch pkg {
	case "netfunc/bpf":
		// Limit the rate to one that an emulated CPU can handle. Skip the randomized packet tests,
		// since their coverage does not depend on the kernel.
		skip := "TestEliminateModel|TestDuplicateAny|Fuzz.*"
		if more := os.Getenv(report.SkipVariable); more != "" {
			skip += "|" + more
		}
		args = append(args, "-rate", "500", "-test.skip", "^("+skip+")$")
	case "relay":
		args = append(args, "-test.run", "^"+report.ClockTest+"$")
	}
	cmd := exec.Command(filepath.Join("/tests", pkg, "test"), args...)
	cmd.Dir = filepath.Join("/tests", pkg)
	cmd.Env = []string{"PATH=/bin", "HOME=/tmp", programtest.EnvPrograms + "=/programs", report.ClockVariable + "=1"}
	cmd.Stderr = os.Stdout
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		g.fail("%s: %v", pkg, err)
		return
	}
	s := bufio.NewScanner(out)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		fmt.Println(s.Text())
		if m := verdict.FindStringSubmatch(s.Text()); m != nil {
			g.write(report.Line{Test: &report.Test{Package: pkg, Name: m[2], Result: m[1]}})
		}
	}
	if err := errors.Join(s.Err(), cmd.Wait()); err != nil {
		g.fail("tests of %s: %v", pkg, err)
	}
}
