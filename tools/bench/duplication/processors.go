//go:build linux

package duplication

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

// tick is the unit of processor times in /proc, which Linux fixes for user space.
const tick = 10 * time.Millisecond

// Names of what uses processors besides the programs of a run.
const (
	emulation  = "network"    // this process: the emulated paths
	interrupts = "interrupts" // with what the kernel does in them for packets
	others     = "others"     // other programs of the machine
)

// processors is the processor time used since the machine and the programs started, by who
// used it; only differences mean something.
func (s *session) processors() map[string]time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil
	}
	line, _, _ := bytes.Cut(text, []byte("\n"))
	used := map[string]time.Duration{others: fields(line, 1, 3) /* user, nice, system */, interrupts: fields(line, 6, 2)}
	add := func(who, process string) {
		if stat, err := os.ReadFile("/proc/" + process + "/stat"); err == nil {
			t := ofProcess(stat)
			used[who] += t
			used[others] -= t
		}
	}
	add(emulation, "self")
	s.group.mu.Lock()
	defer s.group.mu.Unlock()
	for _, x := range s.group.list {
		add(x.title, strconv.Itoa(x.cmd.Process.Pid))
	}
	return used
}

// share is how many processors were used in a time, by who used them.
func share(before, after map[string]time.Duration, elapsed time.Duration) map[string]float64 {
	s := map[string]float64{}
	for who, t := range after {
		// The kernel's sums and those of programs are counted differently: a difference may
		// come out below 0.
		s[who] = max(0, round((t-before[who]).Seconds()/elapsed.Seconds(), 2))
	}
	return s
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
