// Package filestate detects changes of files.
package filestate

import "golang.org/x/sys/unix"

// State is one state of a file. States before and after a change differ, even if size and
// modification time stay the same: if the file was replaced, or its permissions changed. The zero
// State is that of a missing file.
type State struct {
	device, inode     uint64
	size              int64
	modified, changed unix.Timespec // mtime and ctime of inode(7)
}

// Of returns the state of a file; for a symbolic link, of its target.
func Of(path string) State {
	var s unix.Stat_t
	if unix.Stat(path, &s) != nil {
		return State{}
	}
	return State{uint64(s.Dev), s.Ino, s.Size, s.Mtim, s.Ctim} //nolint:unconvert // Dev's type varies
}
