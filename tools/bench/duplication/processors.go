//go:build linux

package duplication

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is the unit of processor times in /proc, which Linux fixes for user space.
const tick = 10 * time.Millisecond

// processors is the processor time that programs other than this run's have used since the
// machine started; only differences mean something. Interrupts are nobody's.
func (s *session) processors() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	all := fields(line, 1, 3) // user, nice, system
	if own, err := os.ReadFile("/proc/self/stat"); err == nil {
		all -= ofProcess(own)
	}
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	for _, x := range s.group.list {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", x.cmd.Process.Pid)); err == nil {
			all -= ofProcess(stat)
		}
	}
	return all
}

// ofProcess is user and system time in a process's stat: fields 14 and 15, counted from
// behind the name, which may hold anything.
func ofProcess(stat []byte) time.Duration {
	return fields(stat[bytes.LastIndexByte(stat, ')')+1:], 11, 2)
}

// fields sums n fields of a line from first on.
func fields(line []byte, first, n int) (sum time.Duration) {
	list := bytes.Fields(line)
	for i := first; i < min(len(list), first+n); i++ {
		v, _ := strconv.ParseInt(string(list[i]), 10, 64)
		sum += time.Duration(v) * tick
	}
	return sum
}
