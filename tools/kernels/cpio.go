package main

import (
	"fmt"
	"io"
	"io/fs"
	"path"
)

// archive writes an initramfs: a cpio archive in the "new ASCII" format (Linux,
// Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	w    io.Writer
	dirs map[string]bool // directories written
	next uint32          // last inode
}

// file adds a file and its parent directories.
func (a *archive) file(name string, mode fs.FileMode, content []byte) error {
	if err := a.above(name); err != nil {
		return err
	}
	return a.entry(name, 0o100000|uint32(mode.Perm()), content)
}

func (a *archive) above(name string) error {
	dir := path.Dir(name)
	if dir == "." || a.dirs[dir] {
		return nil
	}
	if err := a.above(dir); err != nil {
		return err
	}
	if a.dirs == nil {
		a.dirs = make(map[string]bool)
	}
	a.dirs[dir] = true
	return a.entry(dir, 0o040755, nil)
}

// end writes the trailer.
func (a *archive) end() error { return a.entry("TRAILER!!!", 0, nil) }

func (a *archive) entry(name string, mode uint32, content []byte) error {
	a.next++
	fields := [...]uint32{
		a.next, mode, 0, 0, 1, 0, uint32(len(content)), // inode, mode, uid, gid, links, mtime, size
		0, 0, 0, 0, uint32(len(name) + 1), 0, // devices, length of the name, checksum
	}
	header := "070701"
	for _, f := range fields {
		header += fmt.Sprintf("%08X", f)
	}
	header += name + "\x00"
	for _, b := range [][]byte{[]byte(header), content} {
		if _, err := a.w.Write(append(b[:len(b):len(b)], make([]byte, -len(b)&3)...)); err != nil {
			return err
		}
	}
	return nil
}
