package main

import "syscall"

// childAttributes starts a child in its own process group, which a terminal's Ctrl-C does not
// reach, and has the kernel terminate it with this process.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
