package sound

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// niceness gives the programs under test priority over the machine's other programs.
const niceness = -15

// host is where programs run.
type host struct {
	addr string
	do   func(func() error) error // runs a function on a thread of the host
}

// here is this machine, without a network namespace.
var here = host{"127.0.0.1", func(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return f()
}}

// start starts a program in a session of its own, which does not outlive this process. Without
// privileges the program has no priority.
func (h host) start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	err := h.do(func() error {
		// Niceness belongs to the thread, and children inherit it.
		if unix.Setpriority(unix.PRIO_PROCESS, 0, niceness) == nil {
			defer func() { _ = unix.Setpriority(unix.PRIO_PROCESS, 0, 0) }()
		}
		return cmd.Start()
	})
	if err == nil { // with autogroup scheduling, niceness applies within a session only
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid), []byte(fmt.Sprint(niceness)), 0)
	}
	return err
}
