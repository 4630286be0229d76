//go:build linux

package namespace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// share makes folder a shared mount, as ip netns add does. Otherwise the next ip netns add would
// bind-mount folder onto itself, which would hide the namespaces mounted there. A hidden mount has
// no path, so it cannot be unmounted, and its file cannot be removed.
func share() error {
	unlock, err := lock()
	if err != nil {
		return err
	}
	defer unlock()
	return shareLocked()
}

// lock creates folder and takes the lock that ip netns add holds while it mounts folder.
func lock() (unlock func(), err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	unlock = func() { _ = f.Close() } // closing releases the lock
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		switch {
		case err == nil:
			return unlock, nil
		case !errors.Is(err, unix.EINTR):
			unlock()
			return nil, fmt.Errorf("lock %s: %w", folder, err)
		}
	}
}

func shareLocked() error {
	err := unix.Mount("", folder, "", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) { // not a mount point
		if err := unix.Mount(folder, folder, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind-mount %s: %w", folder, err)
		}
		err = unix.Mount("", folder, "", unix.MS_SHARED|unix.MS_REC, "")
	}
	if err != nil {
		return fmt.Errorf("make %s a shared mount: %w", folder, err)
	}
	return nil
}

// uncover makes every namespace in folder reachable again after folder was mounted over. It
// removes the mounts on folder, top first, then mounts folder once and the namespaces on it.
// Processes in the namespaces do not notice. It does nothing if no namespace is hidden.
func uncover() (err error) {
	unlock, err := lock()
	if err != nil {
		return err
	}
	defer unlock()
	mounts, err := readMounts()
	if err != nil {
		return err
	}
	if !mounts.covered() {
		return nil
	}
	if !mounts.plain() {
		return fmt.Errorf("another file system hides namespaces in %s: run umount %s", folder, folder)
	}
	// A cloned mount keeps a namespace alive while no path leads to it.
	clones := make(map[string]int)
	defer func() {
		for _, fd := range clones {
			_ = unix.Close(fd)
		}
	}()
	// The deferred restore mounts the clones even if a step fails.
	defer func() { err = errors.Join(err, restore(clones)) }()
	for {
		for _, path := range mounts.namespaces() {
			if err := detach(path, clones); err != nil {
				return err
			}
		}
		if len(mounts.layers) == 0 {
			return nil
		}
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", folder, err)
		}
		if mounts, err = readMounts(); err != nil {
			return err
		}
	}
}

// detach unmounts the visible namespace at path. It clones only the first namespace that it finds
// at a path.
func detach(path string, clones map[string]int) error {
	if _, ok := clones[path]; !ok {
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return fmt.Errorf("clone the mount of %s: %w", path, err)
		}
		clones[path] = fd
	}
	// The same layer may have several mounts at the path.
	for {
		switch err := unix.Unmount(path, unix.MNT_DETACH); {
		case errors.Is(err, unix.EINVAL):
			return nil
		case err != nil:
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
}

// restore mounts folder and the cloned namespaces.
func restore(clones map[string]int) error {
	errs := []error{shareLocked()}
	for path, fd := range clones {
		if err := unix.MoveMount(fd, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			errs = append(errs, fmt.Errorf("mount %s again: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// A mount is a line of /proc/self/mountinfo; see proc_pid_mountinfo(5).
type mount struct {
	id, parent string
	device     string // major:minor
	point      string
	peers      string // "shared:N", "" for a private mount
	kind       string // file system type
}

// mountTable holds the mounts of a mount namespace and marks the mounts on folder.
type mountTable struct {
	mounts []mount
	layers []mount // visible mounts on folder, top first; empty if folder is a plain directory
	base   *mount  // the mount that holds the directory; nil if unknown
}

func readMounts() (mountTable, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return mountTable{}, err
	}
	var stat unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, folder, 0, unix.STATX_MNT_ID, &stat); err != nil {
		return mountTable{}, fmt.Errorf("statx %s: %w", folder, err)
	}
	if stat.Mask&unix.STATX_MNT_ID == 0 {
		return mountTable{}, fmt.Errorf("statx %s: no mount ID: needs Linux 5.8", folder)
	}
	return newMountTable(parseMounts(string(text)), strconv.FormatUint(stat.Mnt_id, 10)), nil
}

// newMountTable returns the table of the given mounts. id is the ID of the mount to which folder
// resolves.
func newMountTable(mounts []mount, id string) mountTable {
	t := mountTable{mounts: mounts}
	for m := t.byID(id); m != nil; m = t.byID(m.parent) {
		if m.point != folder {
			t.base = m
			break
		}
		t.layers = append(t.layers, *m)
	}
	return t
}

func parseMounts(text string) []mount {
	var mounts []mount
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		dash := slices.Index(fields, "-") // ends the optional fields
		if dash < 6 || dash+1 >= len(fields) {
			continue
		}
		m := mount{
			id: fields[0], parent: fields[1], device: fields[2], point: unescape.Replace(fields[4]),
			kind: fields[dash+1],
		}
		for _, optional := range fields[6:dash] {
			if strings.HasPrefix(optional, "shared:") {
				m.peers = optional
			}
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// unescape decodes the characters that mountinfo escapes.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func (t mountTable) byID(id string) *mount {
	if i := slices.IndexFunc(t.mounts, func(m mount) bool { return m.id == id }); i >= 0 {
		return &t.mounts[i]
	}
	return nil
}

// covered reports whether a mount on folder hides a namespace. A hidden mount in the top mount's
// peer group does not count: it duplicates a visible mount and disappears with it.
func (t mountTable) covered() bool {
	if len(t.layers) == 0 {
		return false
	}
	top, below := t.layers[0], slices.Clone(t.layers[1:])
	if t.base != nil {
		below = append(below, *t.base)
	}
	return slices.ContainsFunc(below, func(layer mount) bool {
		return (layer.peers == "" || layer.peers != top.peers) && len(t.on(layer)) > 0
	})
}

// on returns the paths of the namespaces mounted in folder on one of its layers.
func (t mountTable) on(layer mount) []string {
	var paths []string
	for _, m := range t.mounts {
		if m.kind == "nsfs" && filepath.Dir(m.point) == folder && m.parent == layer.id {
			paths = append(paths, m.point)
		}
	}
	return paths
}

// plain reports whether every mount on folder is a bind mount from the file system underneath.
func (t mountTable) plain() bool {
	return !slices.ContainsFunc(t.layers, func(m mount) bool { return t.base == nil || m.device != t.base.device })
}

// namespaces returns the paths of the visible namespaces.
func (t mountTable) namespaces() []string {
	switch {
	case len(t.layers) > 0:
		return t.on(t.layers[0])
	case t.base != nil:
		return t.on(*t.base)
	}
	return nil
}
