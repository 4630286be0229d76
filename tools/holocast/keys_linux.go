package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// readKeys reads single key presses from a terminal until restore is called. Ctrl-C still sends
// SIGINT. It returns nil if the input is not a terminal or belongs to another process group.
func readKeys(in *os.File) (keys <-chan key, restore func()) {
	fd := int(in.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, func() {}
	}
	// Reading from a terminal in the background would stop the program.
	if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err != nil || group != unix.Getpgrp() {
		return nil, func() {}
	}
	now := *before
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &now); err != nil {
		return nil, func() {}
	}
	pressed := make(chan key)
	go followKeys(in, pressed)
	return pressed, func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, before) }
}
