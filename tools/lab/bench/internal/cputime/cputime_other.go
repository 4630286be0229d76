//go:build !linux

// Package cputime reads the CPU time of another process.
package cputime

import (
	"errors"
	"fmt"
	"time"
)

// Of fails: only Linux is supported.
func Of(pid int) (time.Duration, error) {
	return 0, fmt.Errorf("processor time of process %d: %w", pid, errors.ErrUnsupported)
}
