//go:build linux

package duplication

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"holocast/internal/qoe"
)

// tick is the unit of CPU times in /proc, which Linux fixes for user space.
const tick = 10 * time.Millisecond

// Users of CPU time other than a run's programs.
const (
	emulation  = "network"    // this process: the emulated paths
	interrupts = "interrupts" // packet processing in the kernel
	others     = "others"     // other programs of the machine
)

// processors returns the CPU time used so far, by user. Only differences are meaningful.
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
			continue // ended meanwhile
		}
		if title, is := ours[pid]; is {
			used[title] += ofProcess(stat)
		} else {
			used[others] += ofOther(stat)
		}
	}
	return used
}

// share returns the number of processors used between two readings, by user.
func share(before, after map[string]time.Duration, elapsed time.Duration) map[string]float64 {
	s := map[string]float64{}
	for who, t := range after {
		// The total of other programs lacks programs that have ended since, so a difference may be
		// negative.
		s[who] = max(0, qoe.Round((t-before[who]).Seconds()/elapsed.Seconds(), 2))
	}
	return s
}

// ofProcess returns a process's user and system time, fields 14 and 15 of its stat file. It counts
// fields from the end of the name, which may contain any character.
func ofProcess(stat []byte) time.Duration {
	return fields(stat[bytes.LastIndexByte(stat, ')')+1:], 11, 2)
}

// ofOther returns the CPU time of a process outside the run, including that of its ended children,
// since a build consists of many short processes. Summing over processes avoids /proc/stat, which
// misattributes time spent serving interrupts. Kernel threads count as 0, since they process the
// run's packets.
func ofOther(stat []byte) time.Duration {
	behind := stat[bytes.LastIndexByte(stat, ')')+1:]
	if f := bytes.Fields(behind); len(f) < 2 || string(f[1]) == kthreadd || bytes.HasPrefix(stat,
		[]byte(kthreadd+" ")) {
		return 0
	}
	return fields(behind, 11, 4)
}

// kthreadd is the process ID of the parent of all kernel threads.
const kthreadd = "2"

// fields sums n fields of a line, starting with field first (from 0), and returns them as a time.
func fields(line []byte, first, n int) (sum time.Duration) {
	list := bytes.Fields(line)
	for i := first; i < min(len(list), first+n); i++ {
		v, _ := strconv.ParseInt(string(list[i]), 10, 64)
		sum += time.Duration(v) * tick
	}
	return sum
}
