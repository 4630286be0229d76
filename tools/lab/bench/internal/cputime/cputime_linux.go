// Package cputime reads the CPU time of a process or of the calling thread.
package cputime

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Of returns the CPU time, user and system, of all present and former threads of a process. It uses
// the scheduler's nanoseconds, since /proc/PID/stat counts ticks of 10 ms and /proc/PID/task omits
// threads that have ended. Running threads are counted up to their last tick. Of fails if the
// process does not exist.
func Of(pid int) (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(clock(pid), &t); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// clock returns the ID of a process's CPU clock, like clock_getcpuclockid(3). It is the complement
// of the process ID, followed by three bits for CPUCLOCK_SCHED of the whole process.
func clock(pid int) int32 { return ^int32(pid)<<3 | 2 }
