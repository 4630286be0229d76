//go:build linux && race

package main

import "os"

func init() {
	buildFlags = append(buildFlags, "-race")
	// By default each exiting edge waits a second for pending race reports.
	_ = os.Setenv("GORACE", os.Getenv("GORACE")+" atexit_sleep_ms=10")
}
