package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// bpffs is the standard mount point of the bpf file system, which is mounted if necessary.
const bpffs = "/sys/fs/bpf"

// preparePins creates the directory for pinned maps and links.
func preparePins(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%w: directory %s is not an absolute path", ErrPin, dir)
	}
	if rel, err := filepath.Rel(bpffs, dir); err == nil && !strings.HasPrefix(rel, "..") && !onBPFFS(bpffs) {
		if err := unix.Mount("bpf", bpffs, "bpf", 0, "mode=0700"); err != nil {
			return explain("mount "+bpffs, err, nil)
		}
	}
	parent := filepath.Clean(dir)
	for {
		if _, err := os.Stat(parent); err == nil || parent == "/" {
			break
		}
		parent = filepath.Dir(parent)
	}
	if !onBPFFS(parent) {
		return fmt.Errorf("%w: directory %s is not on a bpf file system, such as %s", ErrPin, dir, bpffs)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return explain("pin directory", err, nil)
	}
	return nil
}

func onBPFFS(dir string) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && uint32(s.Type) == unix.BPF_FS_MAGIC
}

// load loads the programs and creates their maps, or reuses maps pinned in dir. Maps named in
// resizable keep their pinned size, whatever spec says. It attaches nothing.
func load(spec *ebpf.CollectionSpec, dir string, resizable ...string) (*ebpf.Collection, error) {
	if err := rlimit.RemoveMemlock(); err != nil { // needed before Linux 5.11
		return nil, explain("memory limit", err, nil)
	}
	for _, m := range spec.Maps {
		if !strings.HasPrefix(m.Name, ".") {
			m.Pinning = ebpf.PinByName
		}
	}
	for _, name := range resizable {
		pinned, err := ebpf.LoadPinnedMap(filepath.Join(dir, name), nil)
		if err != nil {
			continue
		}
		spec.Maps[name].MaxEntries = pinned.MaxEntries()
		_ = pinned.Close()
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: dir}})
	if errors.Is(err, ebpf.ErrMapIncompatible) {
		return nil, fmt.Errorf("the maps in %s are from another version; detach first: %w", dir, err)
	}
	if err != nil {
		return nil, explain("load eBPF programs", err, requirements())
	}
	return c, nil
}

// pinnedMaps opens the maps of a specification that are pinned in dir.
func pinnedMaps(spec *ebpf.CollectionSpec, dir string) (map[string]*ebpf.Map, error) {
	maps := make(map[string]*ebpf.Map)
	for name := range spec.Maps {
		if strings.HasPrefix(name, ".") {
			continue
		}
		m, err := ebpf.LoadPinnedMap(filepath.Join(dir, name), nil)
		if err != nil {
			closeMaps(maps)
			if errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("nothing is pinned in %s: %w", dir, fs.ErrNotExist)
			}
			return nil, explain("open pinned map "+name, err, nil)
		}
		maps[name] = m
	}
	return maps, nil
}

func closeMaps(maps map[string]*ebpf.Map) {
	for _, m := range maps {
		_ = m.Close()
	}
}

// removePins removes everything pinned in dir, and dir's parent if it is then empty.
func removePins(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return explain("remove pins", err, nil)
	}
	_ = os.Remove(filepath.Dir(dir)) // fails while the other half of a pair has pins there
	return nil
}
