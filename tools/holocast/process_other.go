//go:build unix && !linux

package main

import "syscall"

// childAttributes puts a child in a process group of its own, so that a terminal's
// Ctrl-C reaches it only through us.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
