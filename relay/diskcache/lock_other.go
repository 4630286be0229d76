//go:build !linux && !darwin

package diskcache

import (
	"errors"
	"os"
)

// lockFile fails: the cache on disk needs file locks.
func lockFile(string, int) (*os.File, error) {
	return nil, errors.New("the cache on disk is not available on this system")
}
