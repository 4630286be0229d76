package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// readKeys has a terminal hand on every key as it is pressed, until restore is called; Ctrl-C
// stays what it is. Nothing comes of an input that is no terminal, or not this program's to
// read.
func readKeys(in *os.File) (keys <-chan key, restore func()) {
	fd := int(in.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, func() {}
	}
	// A program in the background would be stopped.
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
