package sound

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"holocast/internal/qoe"
	"holocast/tools/lab/bench/internal/cputime"
)

// tick is the unit of /proc/stat.
const tick = 10 * time.Millisecond

// usage is CPU time used so far.
type usage struct {
	at        time.Time
	all, ours time.Duration // of all programs, and of the benchmark's
}

// processors returns the CPU time used so far. Only differences are meaningful.
func (s *session) processors() usage {
	u := usage{at: time.Now()}
	text, _ := os.ReadFile("/proc/stat") // its loss only loses a remark in the results
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line) {
		if i == 0 || i == 4 || i == 5 || i > 8 { // the name, idle, iowait; guests are in user
			continue
		}
		ticks, _ := strconv.ParseInt(field, 10, 64)
		u.all += time.Duration(ticks) * tick
	}
	pids := []int{os.Getpid(), s.pulse.PID(), s.relay.PID()}
	for _, x := range s.list {
		pids = append(pids, x.cmd.Process.Pid)
	}
	for _, pid := range pids {
		used, _ := cputime.Of(pid) // 0 after its end
		u.ours += used
	}
	return u
}

// since returns the share of the processors' time used between two readings in percent: by all
// programs, and by others than the benchmark's.
func (u usage) since(later usage) (busy, others float64) {
	total := later.at.Sub(u.at).Seconds() * float64(runtime.NumCPU()) / 100
	all, ours := (later.all - u.all).Seconds(), (later.ours - u.ours).Seconds()
	return qoe.Round(min(all/total, 100), 0), qoe.Round(max(0, all-ours)/total, 0)
}
