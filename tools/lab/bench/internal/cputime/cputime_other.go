//go:build !linux

// Package cputime tells how much processor time another process has used.
package cputime

import (
	"errors"
	"fmt"
	"time"
)

// Of is the processor time, user and system, of a process: an error, but on Linux.
func Of(pid int) (time.Duration, error) {
	return 0, fmt.Errorf("processor time of process %d: %w", pid, errors.ErrUnsupported)
}
