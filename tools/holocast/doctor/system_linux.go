package doctor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// system accesses a Linux machine.
type system struct {
	root      string // prefix of file paths; "" except in tests
	release   func() (string, error)
	getenv    func(string) string
	loadEmpty func(programType uint32) error
	tryNetem  func() error
	tryGSO    func() error
	openFiles func() (unix.Rlimit, error)
	clock     func() (state int, t unix.Timex, err error)
	writable  func(device string) bool
	freeBytes func() (float64, error)
}

func thisSystem() system {
	return system{
		release: func() (string, error) {
			var u unix.Utsname
			err := unix.Uname(&u)
			release, _, _ := bytes.Cut(u.Release[:], []byte{0})
			return string(release), err
		},
		getenv: os.Getenv, loadEmpty: loadEmpty, tryNetem: tryNetem, tryGSO: tryGSO,
		openFiles: func() (l unix.Rlimit, err error) {
			err = unix.Getrlimit(unix.RLIMIT_NOFILE, &l)
			return l, err
		},
		clock: func() (state int, t unix.Timex, err error) {
			state, err = unix.Adjtimex(&t)
			return state, t, err
		},
		writable: func(device string) bool { return unix.Access(device, unix.R_OK|unix.W_OK) == nil },
		freeBytes: func() (float64, error) {
			var s unix.Statfs_t
			err := unix.Statfs(".", &s)
			return float64(s.Bavail) * float64(s.Bsize), err
		},
	}
}

func (m *machine) path(elem ...string) string { return filepath.Join(m.root, filepath.Join(elem...)) }

func (m *machine) systemChecks() []Check {
	return []Check{
		{"kernel", m.kernel},
		{"eBPF", m.ebpf},
		{"BTF", m.btf},
		{"native XDP", m.nativeXDP},
		{"netem", m.netem},
		{"UDP buffers", m.udpBuffers},
		{"UDP GSO", m.gso},
		{"open files", m.openFiles},
		{"clock", m.clockSync},
		{"codec libraries", m.codecLibraries},
		{"libk4a", m.libk4a},
		{"depth camera", m.depthCamera},
		{"disk space", m.diskSpace},
	}
}

func (m *machine) kernel(context.Context) Finding {
	release, err := m.release()
	var major, minor int
	_, _ = fmt.Sscanf(release, "%d.%d", &major, &minor)
	switch {
	case err != nil:
		return warn("", "unknown: %v", err)
	case major < 5 || major == 5 && minor < 15:
		return warn("upgrade to Linux 5.15 or later", "%s is older than 5.15, the minimum for the eBPF programs", release)
	case major < 6 || major == 6 && minor < 6:
		return ok("%s (TC programs attach by clsact; TCX needs 6.6)", release)
	}
	return ok("%s", release)
}

// capabilities reports the effective capabilities that eBPF networking needs
// (include/uapi/linux/capability.h).
func (m *machine) capabilities() (bpf, netAdmin bool) {
	f, err := os.Open(m.path("/proc/self/status"))
	if err != nil {
		return false, false
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if hex, found := strings.CutPrefix(s.Text(), "CapEff:"); found {
			caps, _ := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			has := func(c int) bool { return caps>>c&1 == 1 }
			return has(unix.CAP_BPF) || has(unix.CAP_SYS_ADMIN), has(unix.CAP_NET_ADMIN)
		}
	}
	return false, false
}

// ebpf loads minimal programs of the two types used by the duplication pair.
func (m *machine) ebpf(context.Context) Finding {
	bpf, admin := m.capabilities()
	if !bpf || !admin {
		return warn(
			"sudo setcap cap_bpf,cap_net_admin,cap_perfmon+ep bin/edge bin/relay   # or run them with sudo",
			"needs CAP_BPF and CAP_NET_ADMIN: the edge pair and the relay's fast path stay off",
		)
	}
	for _, p := range []struct {
		name string
		kind uint32
	}{{"TC", unix.BPF_PROG_TYPE_SCHED_CLS}, {"XDP", unix.BPF_PROG_TYPE_XDP}} {
		if err := m.loadEmpty(p.kind); err != nil {
			return warn(
				"check kernel.unprivileged_bpf_disabled, the container's seccomp profile and CONFIG_BPF_SYSCALL",
				"the kernel refuses a %s program: %v", p.name, err,
			)
		}
	}
	return ok("TC and XDP programs load")
}

func (m *machine) btf(context.Context) Finding {
	info, err := os.Stat(m.path("/sys/kernel/btf/vmlinux"))
	if err != nil {
		return warn(
			"use a kernel with CONFIG_DEBUG_INFO_BTF=y",
			"no /sys/kernel/btf/vmlinux: only programs without CO-RE relocations load",
		)
	}
	return ok("%d kB in /sys/kernel/btf/vmlinux", info.Size()/1000)
}

// nativeDrivers are network drivers with native XDP.
var nativeDrivers = []string{
	"atlantic", "bnxt_en", "cpsw", "dpaa2-eth", "ena", "fec", "gve", "hv_netvsc", "i40e", "ice", "igb", "igc", "ixgbe",
	"ixgbevf", "lan966x", "mana", "mlx4_en", "mlx5_core", "mvneta", "mvpp2", "netsec", "nfp", "octeontx2", "qede", "sfc",
	"stmmac", "tsnep", "tun", "veth", "virtio_net", "xen_netfront",
}

func (m *machine) nativeXDP(context.Context) Finding {
	links, err := os.ReadDir(m.path("/sys/class/net"))
	if err != nil {
		return warn("", "network interfaces cannot be listed: %v", err)
	}
	var can, cannot []string
	for _, l := range links {
		if l.Name() == "lo" {
			continue
		}
		driver := "virtual"
		if target, err := os.Readlink(m.path("/sys/class/net", l.Name(), "device/driver")); err == nil {
			driver = filepath.Base(target)
		} else if kind := m.linkKind(l.Name()); kind != "" {
			driver = kind
		}
		text := l.Name() + " (" + driver + ")"
		if slices.Contains(nativeDrivers, driver) {
			can = append(can, text)
		} else {
			cannot = append(cannot, text)
		}
	}
	if len(can) == 0 {
		return warn(
			"use a veth pair or an interface of a driver with native XDP for the receiving edge",
			"no interface is known to support it: %s", strings.Join(cannot, ", "),
		)
	}
	return ok("%s", strings.Join(can, ", "))
}

// linkKind returns the kind of a virtual interface, if sysfs has it.
func (m *machine) linkKind(name string) string {
	b, err := os.ReadFile(m.path("/sys/class/net", name, "uevent"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if kind, found := strings.CutPrefix(line, "DEVTYPE="); found {
			return strings.TrimSpace(kind)
		}
	}
	if _, err := os.Stat(m.path("/sys/class/net", name, "tun_flags")); err == nil {
		return "tun"
	}
	// A veth device's iflink is its peer's index.
	self, _ := os.ReadFile(m.path("/sys/class/net", name, "ifindex"))
	peer, _ := os.ReadFile(m.path("/sys/class/net", name, "iflink"))
	if len(self) > 0 && !bytes.Equal(self, peer) {
		return "veth"
	}
	return ""
}

// quicBuffer is the UDP buffer size that quic-go requests, in bytes.
const quicBuffer = 7 << 20

func (m *machine) udpBuffers(context.Context) Finding {
	var small []string
	var mend []string
	for _, name := range []string{"rmem_max", "wmem_max"} {
		b, err := os.ReadFile(m.path("/proc/sys/net/core", name))
		if err != nil {
			return warn("", "net.core.%s cannot be read: %v", name, err)
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil || n < quicBuffer {
			small = append(small, fmt.Sprintf("net.core.%s = %d kB", name, n/1000))
			mend = append(mend, fmt.Sprintf("net.core.%s=%d", name, quicBuffer+1<<19))
		}
	}
	if len(small) == 0 {
		return ok("7 MB and more")
	}
	detail := strings.Join(small, ", ") + ", QUIC needs 7 MB"
	if _, admin := m.capabilities(); admin {
		return ok("%s, which programs run with CAP_NET_ADMIN exceed", detail)
	}
	return warn("sudo sysctl -w "+strings.Join(mend, " "), "%s: packet bursts get lost", detail)
}

func (m *machine) gso(context.Context) Finding {
	if err := m.tryGSO(); err != nil {
		return warn("use Linux 4.18 or later", "the kernel does not segment UDP: a system call for every packet")
	}
	return ok("the kernel segments UDP")
}

func (m *machine) openFiles(context.Context) Finding {
	const want = 4096
	l, err := m.system.openFiles()
	if err != nil {
		return warn("", "unknown: %v", err)
	}
	if l.Max < want {
		return warn("ulimit -n 65536   # or LimitNOFILE=65536 in the service", "at most %d", l.Max)
	}
	return ok("%d, at most %d", l.Cur, l.Max)
}

func (m *machine) clockSync(context.Context) Finding {
	state, t, err := m.clock()
	switch {
	case err != nil:
		return warn("", "unknown: %v", err)
	case state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0:
		return warn(
			"sudo timedatectl set-ntp true",
			"not synchronized: delays within a session are correct, on the relay's clock, but dates are not",
		)
	}
	return ok("synchronized, error at most %.1f ms", float64(t.Maxerror)/1000)
}

// codecLibraries checks the libraries that this program has loaded.
func (m *machine) codecLibraries(context.Context) Finding {
	b, err := os.ReadFile(m.path("/proc/self/maps"))
	if err != nil {
		return warn("", "unknown: %v", err)
	}
	var found, missing []string
	for _, lib := range []string{"libzstd", "libturbojpeg"} {
		version := ""
		for line := range strings.Lines(string(b)) {
			if at := strings.Index(line, "/"); at >= 0 {
				if rest, ok := strings.CutPrefix(filepath.Base(strings.TrimSpace(line[at:])), lib+".so."); ok {
					version = rest
				}
			}
		}
		if version == "" {
			missing = append(missing, lib)
		} else {
			found = append(found, lib+" "+version)
		}
	}
	if len(missing) > 0 {
		return warn(
			"make build   # with CGO_ENABLED=1 and libzstd-dev, libturbojpeg0-dev",
			"%s not linked: coding is several times slower", strings.Join(missing, ", "),
		)
	}
	return ok("%s", strings.Join(found, ", "))
}

func (m *machine) libk4a(context.Context) Finding {
	dirs := []string{"/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/lib/*-linux-gnu", "/usr/local/lib/*-linux-gnu"}
	if set := m.getenv("HOLOCAST_LIBK4A"); set != "" {
		if _, err := os.Stat(m.path(set)); err != nil {
			return warn("export HOLOCAST_LIBK4A=/path/to/libk4a.so", "HOLOCAST_LIBK4A: %v", err)
		}
		dirs = append([]string{set, filepath.Dir(set)}, dirs...)
	}
	for _, d := range append(filepath.SplitList(m.getenv("LD_LIBRARY_PATH")), dirs...) {
		if found, _ := filepath.Glob(m.path(d, "libk4a*.so*")); len(found) > 0 {
			return ok("%s", found[0])
		}
	}
	return warn(
		"install the Azure Kinect SDK or Orbbec's K4A wrapper, or set HOLOCAST_LIBK4A; only live cameras need it",
		"not found",
	)
}

// cameras maps USB IDs to the names of the devices of cameras that libk4a opens.
var cameras = map[string]string{
	"045e:097a": "Azure Kinect hub", "045e:097b": "Azure Kinect hub", "045e:097c": "Azure Kinect depth camera",
	"045e:097d": "Azure Kinect color camera", "045e:097e": "Azure Kinect microphones",
	"2bc5:0669": "Orbbec Femto Mega", "2bc5:066b": "Orbbec Femto Bolt", "2bc5:0638": "Orbbec Femto",
}

func (m *machine) depthCamera(context.Context) Finding {
	devices, _ := filepath.Glob(m.path("/sys/bus/usb/devices/*/idVendor"))
	var found, closed []string
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	for _, vendor := range devices {
		dir := filepath.Dir(vendor)
		name, known := cameras[read(vendor)+":"+read(filepath.Join(dir, "idProduct"))]
		if !known {
			continue
		}
		found = append(found, name)
		bus, err1 := strconv.Atoi(read(filepath.Join(dir, "busnum")))
		dev, err2 := strconv.Atoi(read(filepath.Join(dir, "devnum")))
		if err1 == nil && err2 == nil && !m.writable(fmt.Sprintf("/dev/bus/usb/%03d/%03d", bus, dev)) {
			closed = append(closed, name)
		}
	}
	switch {
	case len(found) == 0:
		return warn(
			"connect an Azure Kinect or Orbbec Femto by USB 3; recordings and the synthetic performer need none",
			"none connected",
		)
	case len(closed) > 0:
		return warn(
			`echo 'SUBSYSTEM=="usb", ATTR{idVendor}=="045e|2bc5", MODE="0666"' | `+
				`sudo tee /etc/udev/rules.d/99-k4a.rules && sudo udevadm control --reload && sudo udevadm trigger`,
			"no permission for %s", strings.Join(closed, ", "),
		)
	}
	return ok("%s", strings.Join(found, ", "))
}

func (m *machine) diskSpace(context.Context) Finding {
	free, err := m.freeBytes()
	if err != nil {
		return warn("", "unknown: %v", err)
	}
	gb := free / 1e9
	switch {
	case gb < 0.5:
		return fail("df -h .   # and free space", "%.1f GB free here", gb)
	case gb < 10:
		return warn(
			"df -h .   # and free space, or record elsewhere", "%.1f GB free here; four cameras record 2 GB per minute",
			gb,
		)
	}
	return ok("%.0f GB free here; four cameras record 2 GB per minute", gb)
}

// errNotTried is reported for a check that needs root.
var errNotTried = errors.New("not tested without root")

func (m *machine) netem(context.Context) Finding {
	const mend = "sudo modprobe sch_netem   # Debian and Ubuntu: in linux-modules-extra-$(uname -r)"
	switch err := m.tryNetem(); {
	case err == nil:
		return ok("available in the kernel")
	case !errors.Is(err, errNotTried):
		return warn(mend, "refused by the kernel (%v): internal/netlab forwards packets itself", err)
	}
	release, err := m.release()
	if err == nil {
		builtin, _ := os.ReadFile(m.path("/lib/modules", release, "modules.builtin"))
		modules, _ := os.ReadFile(m.path("/lib/modules", release, "modules.dep"))
		loaded, _ := os.ReadFile(m.path("/proc/modules"))
		for _, list := range [][]byte{builtin, modules, loaded} {
			if bytes.Contains(list, []byte("sch_netem")) {
				return ok("available in the kernel (to root)")
			}
		}
	}
	return warn(mend, "not found: internal/netlab forwards packets itself")
}
