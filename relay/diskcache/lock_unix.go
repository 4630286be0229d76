//go:build linux || darwin

package diskcache

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile opens and locks a file, with os.O_CREATE a new one. It fails if another process has the lock.
func lockFile(path string, create int) (*os.File, error) {
	f, err := os.OpenFile(path, create|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
