// Package filestate detects changes of files.
package filestate

import "golang.org/x/sys/unix"

// State identifies a state of a file. It differs before and after a change, even one that keeps
// size and modification time, such as replacing the file or changing its permissions. The zero
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
