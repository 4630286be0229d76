package main

import "syscall"

// childAttributes puts a child in a process group of its own, so that a terminal's
// Ctrl-C reaches it only through us, and has the kernel stop it should we die.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
