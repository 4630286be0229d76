//go:build !linux

// Package cputime reads the CPU time of a process or of the calling thread.
package cputime

import (
	"errors"
	"fmt"
	"time"
)

// Of returns an error, since only Linux is supported.
func Of(pid int) (time.Duration, error) {
	return 0, fmt.Errorf("CPU time of process %d: %w", pid, errors.ErrUnsupported)
}

var epoch = time.Now()

// Thread returns the wall-clock time, since only Linux is supported.
func Thread() time.Duration { return time.Since(epoch) }
