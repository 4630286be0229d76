// Package cputime tells how much processor time another process has used.
package cputime

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Of is the processor time, user and system, of all threads that the process has or had, in
// nanoseconds as the scheduler counts it: /proc/PID/stat has whole ticks of 10 ms, and
// /proc/PID/task forgets threads that ended. A thread that runs meanwhile is counted up to its
// last tick. An error says that there is no such process.
func Of(pid int) (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(clock(pid), &t); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// clock is the ID of a process's clock, as clock_getcpuclockid(3) makes it: the complement of
// the process ID above three bits that say CPUCLOCK_SCHED, of the whole process.
func clock(pid int) int32 { return ^int32(pid)<<3 | 2 }
