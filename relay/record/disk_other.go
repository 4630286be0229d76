//go:build !linux && !darwin

package record

import (
	"math"
	"os"
)

// freeBytes is unknown on this system.
func freeBytes(string) (int64, error) { return math.MaxInt64, nil }

// lock does nothing: on Windows a file cannot be renamed while another process writes it.
func lock(*os.File) error { return nil }
