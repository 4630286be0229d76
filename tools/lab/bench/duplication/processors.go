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
	used := map[string]time.Duration{interrupts: fields(line, 6, 2)}
	ours := map[int]string{os.Getpid(): emulation}
	s.group.mu.Lock()
	for _, x := range s.group.list {
		ours[x.cmd.Process.Pid] = x.title
	}
	s.group.mu.Unlock()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it ended
		}
		if title, is := ours[pid]; is {
			used[title] += ofProcess(stat)
		} else {
			used[others] += ofOther(stat)
		}
	}
	return used
}

// share is how many processors were used in a time, by who used them.
func share(before, after map[string]time.Duration, elapsed time.Duration) map[string]float64 {
	s := map[string]float64{}
	for who, t := range after {
		// A program that ended takes its time along: a difference may come out below 0.
		s[who] = max(0, round((t-before[who]).Seconds()/elapsed.Seconds(), 2))
	}
	return s
}

// ofProcess is user and system time in a process's stat: fields 14 and 15, counted from
// behind the name, which may hold anything.
func ofProcess(stat []byte) time.Duration {
	return fields(stat[bytes.LastIndexByte(stat, ')')+1:], 11, 2)
}

// ofOther is the same of a process that is none of the run's, with that of its children that
// ended: a build is many short processes. The sums of /proc/stat do not show it, for
// they leave out what programs did while an interrupt was served, and the sums of programs do not.
// The kernel's own threads count for nothing, since they work for the run's packets.
func ofOther(stat []byte) time.Duration {
	behind := stat[bytes.LastIndexByte(stat, ')')+1:]
	if f := bytes.Fields(behind); len(f) < 2 || string(f[1]) == kthreadd || bytes.HasPrefix(stat, []byte(kthreadd+" ")) {
		return 0
	}
	return fields(behind, 11, 4)
}

// kthreadd is the process ID of the parent of all threads of the kernel.
const kthreadd = "2"

// fields sums n fields of a line from first on.
func fields(line []byte, first, n int) (sum time.Duration) {
	list := bytes.Fields(line)
	for i := first; i < min(len(list), first+n); i++ {
		v, _ := strconv.ParseInt(string(list[i]), 10, 64)
		sum += time.Duration(v) * tick
	}
	return sum
}
