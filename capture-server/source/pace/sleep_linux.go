package pace

import (
	"time"

	"golang.org/x/sys/unix"
)

// sleep blocks the thread for d, to within some tens of microseconds.
func sleep(d time.Duration) {
	if d > 0 {
		ts := unix.NsecToTimespec(int64(d))
		_ = unix.Nanosleep(&ts, nil) // the caller compensates for an interrupted sleep
	}
}
