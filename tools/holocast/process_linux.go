package main

import "syscall"

// childAttributes starts a child in its own process group, which a terminal's Ctrl-C does not
// reach. The kernel terminates the child with this process.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
