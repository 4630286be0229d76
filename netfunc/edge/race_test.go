//go:build linux && race

package main

import "os"

func init() {
	buildFlags = append(buildFlags, "-race")
	// Else each edge that ends waits a second for reports of races that are under way.
	_ = os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=10")
}
