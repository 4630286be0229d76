//go:build linux

package namespace

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// isolated runs f in a copy of the test process with its own mount, PID and network namespaces
// and an empty /run, which is a shared mount if shared is set, as under systemd.
func isolated(t *testing.T, shared bool, f func(t *testing.T)) {
	t.Helper()
	const child = "NAMESPACE_TEST_CHILD"
	if os.Getenv(child) == t.Name() {
		if os.Getpid() != 1 {
			t.Fatal("not in a PID namespace")
		}
		if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
			t.Fatal(err)
		}
		for unix.Unmount(folder, unix.MNT_DETACH) == nil { // the machine's own
		}
		for _, m := range []struct{ target, kind string }{
			{"/proc", "proc"},
			{"/run", "tmpfs"},
		} {
			if err := unix.Mount(m.kind, m.target, m.kind, 0, ""); err != nil {
				t.Fatal(m.target, err)
			}
		}
		if shared {
			if err := unix.Mount("", "/run", "", unix.MS_SHARED, ""); err != nil {
				t.Fatal(err)
			}
		}
		f(t)
		return
	}
	if os.Getenv(child) != "" {
		return
	}
	if err := Supported(); err != nil {
		t.Skip(err)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip(err)
	}
	pattern := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+pattern, "-test.v")
	cmd.Env = append(os.Environ(), child+"="+t.Name())
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
}

func eachRun(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	for _, shared := range []bool{false, true} {
		name := map[bool]string{false: "private", true: "shared"}[shared]
		t.Run(name, func(t *testing.T) { isolated(t, shared, f) })
	}
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Errorf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// files returns the names in folder.
func files(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// leftMounts returns the mounts of namespaces in folder. It fails the test if any are hidden.
func leftMounts(t *testing.T) []string {
	t.Helper()
	mounts, err := readMounts()
	if err != nil {
		t.Fatal(err)
	}
	if mounts.covered() {
		t.Error("mounts are hidden")
	}
	var left []string
	for _, m := range mounts.mounts {
		if m.kind == "nsfs" && filepath.Dir(m.point) == folder {
			left = append(left, m.point)
		}
	}
	return left
}

func TestIPNetnsAddWhileGroupOpen(t *testing.T) {
	eachRun(t, func(t *testing.T) {
		g, err := NewGroup()
		if err != nil {
			t.Fatal(err)
		}
		n, err := g.Add("a")
		if err != nil {
			t.Fatal(err)
		}
		ip(t, "netns", "add", "other")
		if mounts, err := readMounts(); err != nil || mounts.covered() {
			t.Errorf("ip netns add hid the group's namespaces (%v)", err)
		}
		if _, err := g.Add("b"); err != nil {
			t.Error(err)
		}
		ip(t, "netns", "exec", n.Name, "ip", "link", "show", "lo")
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if left := files(t); !slices.Equal(left, []string{"other"}) {
			t.Errorf("files left: %v", left)
		}
		ip(t, "netns", "exec", "other", "true")
		ip(t, "netns", "del", "other")
		if left := leftMounts(t); len(left) > 0 {
			t.Errorf("mounts left: %v", left)
		}
	})
}

// mountDirectly mounts the calling process's network namespace in folder without making folder
// a shared mount first.
func mountDirectly(t *testing.T, name string) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, name)
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("/proc/self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
}

// bindFolder mounts folder onto itself.
func bindFolder(t *testing.T, flags uintptr) {
	t.Helper()
	if err := unix.Mount(folder, folder, "", unix.MS_BIND|flags, ""); err != nil {
		t.Fatal(err)
	}
}

// deadLab returns the name of a namespace whose lab's process does not exist.
func deadLab(t *testing.T, node string) string {
	t.Helper()
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s-%d-1-1-%s", prefix, ended.Process.Pid, node)
}

func TestCleanCoveredNamespaces(t *testing.T) {
	eachRun(t, func(t *testing.T) {
		dead := []string{deadLab(t, "a"), deadLab(t, "b"), deadLab(t, "c")}
		mountDirectly(t, dead[0])
		mountDirectly(t, "foreign")
		bindFolder(t, 0) // hides both namespaces without copying them
		if err := unix.Mount("", folder, "", unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		mountDirectly(t, dead[1])
		bindFolder(t, unix.MS_REC)
		if err := unix.Mount("", folder, "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
			t.Fatal(err)
		}
		ip(t, "netns", "add", "other") // in the third layer
		mountDirectly(t, dead[2])
		mounts, err := readMounts()
		if err != nil || !mounts.covered() {
			t.Fatalf("no namespace is hidden: %v", err)
		}
		if err := os.Remove(filepath.Join(folder, dead[0])); err == nil {
			t.Fatal("the file of a hidden namespace could be removed")
		}

		removed, err := Clean()
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(removed)
		slices.Sort(dead)
		if !slices.Equal(removed, dead) {
			t.Errorf("removed %v, not %v", removed, dead)
		}
		for _, name := range []string{"foreign", "other"} {
			ip(t, "netns", "exec", name, "true")
			ip(t, "netns", "del", name)
		}
		if left := files(t); len(left) > 0 {
			t.Errorf("files left: %v", left)
		}
		if left := leftMounts(t); len(left) > 0 {
			t.Errorf("mounts left: %v", left)
		}
	})
}

// A group can be closed even if its namespaces were hidden while it was open.
func TestCloseCoveredGroup(t *testing.T) {
	eachRun(t, func(t *testing.T) {
		g, err := NewGroup()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Add("a"); err != nil {
			t.Fatal(err)
		}
		bindFolder(t, unix.MS_REC)
		if err := unix.Mount("", folder, "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
			t.Fatal(err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if left := files(t); len(left) > 0 {
			t.Errorf("files left: %v", left)
		}
		if left := leftMounts(t); len(left) > 0 {
			t.Errorf("mounts left: %v", left)
		}
	})
}

func TestParseMounts(t *testing.T) {
	const base = `27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:21 / /run rw shared:5 - tmpfs tmpfs rw
31 30 0:21 /netns /run/netns rw shared:5 master:1 - tmpfs tmpfs rw
`
	for _, c := range []struct {
		name    string
		lines   string
		id      string // ID of the mount that holds the visible folder
		covered bool
		visible []string
	}{
		{"empty", "", "31", false, nil},
		{
			"visible", "40 31 0:4 net:[1] /run/netns/a\\040b rw shared:6 - nsfs nsfs rw\n", "31", false,
			[]string{"/run/netns/a b"},
		},
		{
			"twin in the peer group",
			"40 31 0:4 net:[1] /run/netns/a rw shared:6 - nsfs nsfs rw\n41 30 0:4 net:[1] /run/netns/a rw shared:6 - " +
				"nsfs nsfs rw\n",
			"31", false,
			[]string{"/run/netns/a"},
		},
		{
			"hidden",
			"40 31 0:4 net:[1] /run/netns/a rw - nsfs nsfs rw\n50 31 0:21 /netns /run/netns rw shared:9 - tmpfs " +
				"tmpfs rw\n",
			"50", true,
			nil,
		},
		{
			"twice on the top",
			"40 31 0:4 net:[1] /run/netns/a rw - nsfs nsfs rw\n41 40 0:4 net:[2] /run/netns/a rw - nsfs nsfs rw\n",
			"31", false,
			[]string{"/run/netns/a"},
		},
		{
			"under another mount of /run",
			"40 31 0:4 net:[1] /run/netns/a rw - nsfs nsfs rw\n60 30 0:99 / /run rw - tmpfs tmpfs rw\n",
			"60", false,
			nil,
		},
	} {
		mounts := newMountTable(parseMounts(base+c.lines), c.id)
		if got := mounts.covered(); got != c.covered {
			t.Errorf("%s: covered %v", c.name, got)
		}
		if got := mounts.namespaces(); !slices.Equal(got, c.visible) {
			t.Errorf("%s: visible %v, not %v", c.name, got, c.visible)
		}
		if !mounts.plain() {
			t.Errorf("%s: not plain", c.name)
		}
	}
	foreign := newMountTable(parseMounts(base+"50 31 0:99 / /run/netns rw - tmpfs tmpfs rw\n"), "50")
	if foreign.plain() {
		t.Error("plain accepts another file system over folder")
	}
}
