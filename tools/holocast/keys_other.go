//go:build !linux

package main

import "os"

// readKeys reads no keys on this system.
func readKeys(*os.File) (keys <-chan key, restore func()) { return nil, func() {} }
