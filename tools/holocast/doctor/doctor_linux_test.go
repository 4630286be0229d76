package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// fake is a machine with every capability; tests remove some of them.
type fake struct {
	*machine
	t *testing.T
}

type nothing struct{}

func (nothing) Close() error { return nil }

func newFake(t *testing.T) fake {
	f := fake{t: t, machine: &machine{
		cores: 8, arch: "amd64", avx2: true,
		listen: func(context.Context, string, string) (io.Closer, error) { return nothing{}, nil },
		system: system{
			root:      t.TempDir(),
			release:   func() (string, error) { return "6.18.0-1-amd64", nil },
			getenv:    func(string) string { return "" },
			loadEmpty: func(uint32) error { return nil },
			tryNetem:  func() error { return nil },
			tryGSO:    func() error { return nil },
			openFiles: func() (unix.Rlimit, error) { return unix.Rlimit{Cur: 1024, Max: 1 << 20}, nil },
			clock:     func() (int, unix.Timex, error) { return 0, unix.Timex{Maxerror: 1500}, nil },
			writable:  func(string) bool { return true },
			freeBytes: func() (float64, error) { return 100e9, nil },
		},
	}}
	f.write("/proc/self/status", "Name:\tholocast\nCapEff:\t000001ffffffffff\n")
	f.write(
		"/proc/self/maps",
		"7f00-7f01 r-xp 0 0 0 /usr/lib/libzstd.so.1.5.4\n7f02-7f03 r-xp 0 0 0 /usr/lib/libturbojpeg.so.0.2.0\n",
	)
	f.write("/proc/sys/net/core/rmem_max", "8388608\n")
	f.write("/proc/sys/net/core/wmem_max", "8388608\n")
	f.write("/sys/kernel/btf/vmlinux", strings.Repeat("b", 5000))
	f.link("eth0", "igc")
	f.write("/usr/lib/libk4a.so.1.4", "")
	f.usb("1-1", "2bc5", "066b")
	return f
}

func (f fake) write(path, content string) {
	f.t.Helper()
	path = filepath.Join(f.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f fake) remove(path string) {
	f.t.Helper()
	if err := os.RemoveAll(filepath.Join(f.root, path)); err != nil {
		f.t.Fatal(err)
	}
}

// link adds a network interface, virtual if it has no driver.
func (f fake) link(name, driver string) {
	f.t.Helper()
	dir := "/sys/class/net/" + name
	f.write(dir+"/ifindex", "2\n")
	f.write(dir+"/iflink", "2\n")
	f.write(dir+"/uevent", "INTERFACE="+name+"\n")
	if driver == "" {
		return
	}
	f.write("/sys/bus/drivers/"+driver+"/bind", "")
	f.write(dir+"/device/vendor", "")
	target, link := filepath.Join(f.root, "/sys/bus/drivers", driver), filepath.Join(f.root, dir, "device/driver")
	if err := os.Symlink(target, link); err != nil {
		f.t.Fatal(err)
	}
}

func (f fake) usb(port, vendor, product string) {
	dir := "/sys/bus/usb/devices/" + port
	for name, content := range map[string]string{"idVendor": vendor, "idProduct": product, "busnum": "1", "devnum": "4"} {
		f.write(dir+"/"+name, content+"\n")
	}
}

func (f fake) env(key, value string) {
	f.getenv = func(k string) string {
		if k == key {
			return value
		}
		return ""
	}
}

func TestFindings(t *testing.T) {
	unprivileged := func(f fake) { f.write("/proc/self/status", "CapEff:\t0000000000000000\n") }
	refuse := func(err error) func(context.Context, string, string) (io.Closer, error) {
		return func(_ context.Context, network, address string) (io.Closer, error) {
			if network == "udp" {
				return nothing{}, nil
			}
			return nil, fmt.Errorf("listen %s %s: %w", network, address, err)
		}
	}
	tests := []struct {
		name   string
		change func(fake)
		check  string
		status Status
		detail string // substring
		mend   string // substring
	}{
		{"everything there", nil, "processor", OK, "8 cores, AVX2", ""},
		{"two cores", func(f fake) { f.cores = 2 }, "processor", Warn, "2 cores", "fewer cameras"},
		{"no AVX2", func(f fake) { f.avx2 = false }, "processor", Warn, "without AVX2", "2013"},
		{"ARM", func(f fake) { f.arch, f.avx2 = "arm64", false }, "processor", OK, "no SIMD kernels for arm64", ""},

		{"port free", nil, "UDP and TCP port", OK, "4443 is free", ""},
		{
			"port in use",
			func(f fake) { f.listen = refuse(syscall.EADDRINUSE) },
			"UDP and TCP port",
			Warn,
			"4443 is in use",
			"ss -lnptu",
		},
		{
			"port not permitted",
			func(f fake) { f.listen = refuse(fs.ErrPermission) },
			"UDP and TCP port",
			Fail,
			"no permission",
			"setcap",
		},
		{
			"no network",
			func(f fake) { f.listen = refuse(syscall.EAFNOSUPPORT) },
			"UDP and TCP port",
			Fail,
			"cannot listen on 4443",
			"--listen",
		},

		{"kernel", nil, "kernel", OK, "6.18.0", ""},
		{
			"kernel without TCX",
			func(f fake) { f.release = func() (string, error) { return "6.1.0-18-amd64", nil } },
			"kernel",
			OK,
			"clsact",
			"",
		},
		{
			"old kernel",
			func(f fake) { f.release = func() (string, error) { return "5.10.0-28-amd64", nil } },
			"kernel",
			Warn,
			"older than 5.15",
			"upgrade",
		},
		{
			"no uname",
			func(f fake) { f.release = func() (string, error) { return "", unix.EFAULT } },
			"kernel",
			Warn,
			"unknown",
			"",
		},

		{"eBPF", nil, "eBPF", OK, "TC and XDP", ""},
		{"no capability", unprivileged, "eBPF", Warn, "CAP_BPF", "setcap"},
		{"no /proc", func(f fake) { f.remove("/proc/self/status") }, "eBPF", Warn, "CAP_BPF", "setcap"},
		{"kernel refuses XDP", func(f fake) {
			f.loadEmpty = func(programType uint32) error {
				if programType == unix.BPF_PROG_TYPE_XDP {
					return unix.EINVAL
				}
				return nil
			}
		}, "eBPF", Warn, "refuses a XDP program", "seccomp"},

		{"BTF", nil, "BTF", OK, "5 kB", ""},
		{"no BTF", func(f fake) { f.remove("/sys/kernel/btf") }, "BTF", Warn, "CO-RE", "CONFIG_DEBUG_INFO_BTF"},

		{"native XDP", nil, "native XDP", OK, "eth0 (igc)", ""},
		{
			"driver without XDP",
			func(f fake) { f.remove("/sys/class/net/eth0"); f.link("eth1", "r8169") },
			"native XDP",
			Warn,
			"eth1 (r8169)",
			"veth",
		},
		{
			"virtual interface",
			func(f fake) { f.remove("/sys/class/net/eth0"); f.link("dummy0", "") },
			"native XDP",
			Warn,
			"dummy0 (virtual)",
			"veth",
		},
		{"veth", func(f fake) {
			f.remove("/sys/class/net/eth0")
			f.link("v0", "")
			f.write("/sys/class/net/v0/iflink", "3\n")
		}, "native XDP", OK, "v0 (veth)", ""},
		{"tun", func(f fake) {
			f.remove("/sys/class/net/eth0")
			f.link("t0", "")
			f.write("/sys/class/net/t0/tun_flags", "0x1\n")
		}, "native XDP", OK, "t0 (tun)", ""},
		{"VLAN", func(f fake) {
			f.remove("/sys/class/net/eth0")
			f.link("eth0.7", "")
			f.write("/sys/class/net/eth0.7/uevent", "DEVTYPE=vlan\nINTERFACE=eth0.7\n")
		}, "native XDP", Warn, "eth0.7 (vlan)", "veth"},
		{"no /sys", func(f fake) { f.remove("/sys/class/net") }, "native XDP", Warn, "cannot be listed", ""},

		{"netem", nil, "netem", OK, "available in the kernel", ""},
		{"no netem", func(f fake) { f.tryNetem = func() error { return unix.ENOENT } }, "netem", Warn, "refused", "modprobe"},
		{"netem as a module, not root", func(f fake) {
			f.tryNetem = func() error { return errNotTried }
			f.write("/lib/modules/6.18.0-1-amd64/modules.dep", "kernel/net/sched/sch_netem.ko:\n")
		}, "netem", OK, "to root", ""},
		{
			"no netem, not root",
			func(f fake) { f.tryNetem = func() error { return errNotTried } },
			"netem",
			Warn,
			"not found",
			"modprobe",
		},

		{"UDP buffers", nil, "UDP buffers", OK, "7 MB", ""},
		{"small UDP buffers, unprivileged", func(f fake) {
			unprivileged(f)
			f.write("/proc/sys/net/core/rmem_max", "212992\n")
		}, "UDP buffers", Warn, "net.core.rmem_max = 212 kB", "sysctl -w net.core.rmem_max="},
		{
			"small UDP buffers, CAP_NET_ADMIN",
			func(f fake) { f.write("/proc/sys/net/core/wmem_max", "212992\n") },
			"UDP buffers",
			OK,
			"CAP_NET_ADMIN",
			"",
		},
		{"no sysctl", func(f fake) { f.remove("/proc/sys/net/core/rmem_max") }, "UDP buffers", Warn, "cannot be read", ""},

		{"UDP GSO", nil, "UDP GSO", OK, "segments UDP", ""},
		{
			"no UDP GSO",
			func(f fake) { f.tryGSO = func() error { return unix.ENOPROTOOPT } },
			"UDP GSO",
			Warn,
			"does not segment",
			"4.18",
		},

		{"open files", nil, "open files", OK, "1024, at most 1048576", ""},
		{"few open files", func(f fake) {
			f.system.openFiles = func() (unix.Rlimit, error) { return unix.Rlimit{Cur: 256, Max: 1024}, nil }
		}, "open files", Warn, "at most 1024", "ulimit"},

		{"clock", nil, "clock", OK, "1.5 ms", ""},
		{"clock not synchronized", func(f fake) {
			f.clock = func() (int, unix.Timex, error) { return unix.TIME_ERROR, unix.Timex{}, nil }
		}, "clock", Warn, "not synchronized", "set-ntp"},

		{"codec libraries", nil, "codec libraries", OK, "libzstd 1.5.4, libturbojpeg 0.2.0", ""},
		{"no libturbojpeg", func(f fake) {
			f.write("/proc/self/maps", "7f00-7f01 r-xp 0 0 0 /usr/lib/libzstd.so.1.5.4\n")
		}, "codec libraries", Warn, "libturbojpeg not linked", "libturbojpeg0-dev"},

		{"libk4a", nil, "libk4a", OK, "/usr/lib/libk4a.so.1.4", ""},
		{"no libk4a", func(f fake) { f.remove("/usr/lib") }, "libk4a", Warn, "not found", "HOLOCAST_LIBK4A"},
		{"libk4a elsewhere", func(f fake) {
			f.remove("/usr/lib")
			f.write("/opt/k4a/libk4a.so", "")
			f.env("HOLOCAST_LIBK4A", "/opt/k4a/libk4a.so")
		}, "libk4a", OK, "/opt/k4a/libk4a.so", ""},
		{
			"libk4a set and missing",
			func(f fake) { f.env("HOLOCAST_LIBK4A", "/opt/none.so") },
			"libk4a",
			Warn,
			"HOLOCAST_LIBK4A",
			"export",
		},

		{"camera", nil, "depth camera", OK, "Orbbec Femto Bolt", ""},
		{"no camera", func(f fake) { f.remove("/sys/bus/usb") }, "depth camera", Warn, "none connected", "USB 3"},
		{
			"another USB device",
			func(f fake) { f.remove("/sys/bus/usb"); f.usb("1-2", "1d6b", "0002") },
			"depth camera",
			Warn,
			"none connected",
			"USB 3",
		},
		{"no permission for the camera", func(f fake) {
			f.writable = func(device string) bool { return device != "/dev/bus/usb/001/004" }
		}, "depth camera", Warn, "no permission for Orbbec Femto Bolt", "udev"},

		{"disk space", nil, "disk space", OK, "100 GB", ""},
		{
			"little disk space",
			func(f fake) { f.freeBytes = func() (float64, error) { return 3e9, nil } },
			"disk space",
			Warn,
			"3.0 GB",
			"df -h",
		},
		{
			"no disk space",
			func(f fake) { f.freeBytes = func() (float64, error) { return 1e8, nil } },
			"disk space",
			Fail,
			"0.1 GB",
			"df -h",
		},
	}
	seen := map[string]bool{}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t)
			if tt.change != nil {
				tt.change(f)
			}
			seen[tt.check] = true
			for _, found := range Run(t.Context(), f.checks(4443)) {
				switch {
				case found.Name != tt.check:
				case found.Status != tt.status || !strings.Contains(found.Detail, tt.detail) ||
					!strings.Contains(found.Mend, tt.mend):
					t.Errorf("%+v, want status %s, %q, mend %q", found, tt.status, tt.detail, tt.mend)
				case found.Status == OK && found.Mend != "":
					t.Errorf("a fix without a fault: %q", found.Mend)
				}
			}
		})
	}
	for _, c := range newFake(t).checks(4443) {
		if !seen[c.Name] {
			t.Errorf("check %q has no test", c.Name)
		}
	}
}

// A fully capable machine yields only ok findings.
func TestNothingMissing(t *testing.T) {
	for _, f := range Run(t.Context(), newFake(t).checks(4443)) {
		if f.Status != OK {
			t.Errorf("%+v", f)
		}
	}
}

// Checks that run on the real machine succeed or fail with their own error.
func TestTry(t *testing.T) {
	for name, try := range map[string]func() error{
		"empty TC program":  func() error { return loadEmpty(unix.BPF_PROG_TYPE_SCHED_CLS) },
		"empty XDP program": func() error { return loadEmpty(unix.BPF_PROG_TYPE_XDP) },
		"netem":             tryNetem,
		"UDP GSO":           tryGSO,
	} {
		var errno unix.Errno
		if err := try(); err != nil && !errors.As(err, &errno) && !errors.Is(err, errNotTried) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
