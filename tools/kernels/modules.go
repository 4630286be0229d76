package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// wanted lists the kernel modules that the tests need, for network interfaces and traffic control.
var wanted = []string{"veth", "bridge", "8021q", "dummy", "sch_ingress", "cls_bpf", "sch_netem"}

// module is an uncompressed kernel module.
type module struct {
	name string
	elf  []byte
}

// modules finds modules below a directory and returns them, each after its dependencies.
func modules(dir string, names []string) ([]module, error) {
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if name, _, ok := strings.Cut(filepath.Base(path), ".ko"); ok && err == nil && !d.IsDir() {
			files[underscored(name)] = path
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var found []module
	var add func(name string) error
	add = func(name string) error {
		name = underscored(name)
		if slices.ContainsFunc(found, func(m module) bool { return m.name == name }) {
			return nil
		}
		path, ok := files[name]
		if !ok {
			return fmt.Errorf("no module %s in %s", name, dir)
		}
		m := module{name: name}
		var needs []string
		if m.elf, err = uncompressed(path); err == nil {
			needs, err = dependencies(m.elf)
		}
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		for _, n := range needs {
			if err := add(n); err != nil {
				return err
			}
		}
		found = append(found, m)
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// underscored returns the kernel's name for a module; the module's file name may contain dashes.
func underscored(name string) string { return strings.ReplaceAll(name, "-", "_") }

func uncompressed(path string) ([]byte, error) {
	var unpack *exec.Cmd
	switch filepath.Ext(path) {
	case ".ko":
		return os.ReadFile(path)
	case ".xz":
		unpack = exec.Command("xz", "--decompress", "--stdout", path)
	case ".zst":
		unpack = exec.Command("zstd", "--decompress", "--stdout", "--quiet", path)
	default:
		return nil, fmt.Errorf("%s has an unknown extension; want .ko, .xz or .zst", path)
	}
	unpack.Stderr = os.Stderr
	return unpack.Output()
}

// dependencies returns the dependencies listed in a module's .modinfo section.
func dependencies(object []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		return nil, err
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, errors.New("no .modinfo section")
	}
	info, err := s.Data()
	if err != nil {
		return nil, err
	}
	for _, field := range strings.Split(string(info), "\x00") {
		if list, ok := strings.CutPrefix(field, "depends="); ok && list != "" {
			return strings.Split(list, ","), nil
		}
	}
	return nil, nil
}
