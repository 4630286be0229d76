//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A lock prevents two processes from running the same edge. The kernel releases it when the process
// ends.
type lock struct{ file *os.File }

// claim locks an edge. The lock is a file next to the edge's socket that holds the process ID.
func claim(cfg Config) (*lock, error) {
	if err := os.MkdirAll(filepath.Dir(cfg.Socket), 0o755); err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	for {
		f, err := os.OpenFile(cfg.Socket+".lock", os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("socket: %w", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			pid := make([]byte, 20)
			n, _ := f.ReadAt(pid, 0)
			_ = f.Close()
			return nil, fmt.Errorf("edge %s is already running as process %s", cfg.Name,
				strings.TrimSpace(string(pid[:n])))
		}
		opened, err := f.Stat()
		if err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("socket: %w", err)
		}
		if there, err := os.Stat(f.Name()); err != nil || !os.SameFile(opened, there) {
			_ = f.Close() // released by another process since it was opened
			continue
		}
		_ = f.Truncate(0)
		if _, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("socket: %w", err)
		}
		return &lock{f}, nil
	}
}

// release unlocks and removes the file.
func (l *lock) release() {
	_ = os.Remove(l.file.Name())
	_ = l.file.Close()
}
