//go:build linux || darwin

package record

import (
	"os"

	"golang.org/x/sys/unix"
)

// freeBytes returns the free space of a directory's file system.
func freeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil //nolint:unconvert // uint32 on macOS
}

// lock locks a file until it is closed or the process ends. It fails if another process has the lock.
func lock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
