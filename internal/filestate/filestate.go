// Package filestate detects changes to files.
package filestate

import "golang.org/x/sys/unix"

// State identifies the state of a file. Any change to the file changes it, even if size and
// modification time stay the same, as when the file is replaced or its permissions change. The zero
// State is that of a missing file.
type State struct {
	device, inode     uint64
	size              int64
	modified, changed unix.Timespec // mtime and ctime of inode(7)
}

// Of returns the state of a file. It follows symbolic links.
func Of(path string) State {
	var s unix.Stat_t
	if unix.Stat(path, &s) != nil {
		return State{}
	}
	return State{uint64(s.Dev), s.Ino, s.Size, s.Mtim, s.Ctim} //nolint:unconvert // Dev's type varies
}
