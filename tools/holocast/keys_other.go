//go:build !linux

package main

import "os"

// readKeys reads none: terminals differ.
func readKeys(*os.File) (keys <-chan key, restore func()) { return nil, func() {} }
