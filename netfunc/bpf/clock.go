package bpf

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time on CLOCK_MONOTONIC, the clock of all times in this package.
func Now() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail for this clock
	return time.Duration(ts.Nano())
}
