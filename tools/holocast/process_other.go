//go:build unix && !linux

package main

import "syscall"

// childAttributes starts a child in its own process group, which a terminal's Ctrl-C does not
// reach.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
