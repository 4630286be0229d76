package service

import (
	"context"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Ready tells the service manager that the program is ready, and from then on that it is
// alive, until ctx ends: alive is called twice in each watchdog period and must return, as it
// does unless the program hangs. Without a manager Ready does nothing. See sd_notify(3).
func Ready(ctx context.Context, alive func()) {
	if os.Getenv("NOTIFY_SOCKET") == "" {
		return
	}
	notify("READY=1")
	var tick <-chan time.Time
	if period := watchdog(); period > 0 {
		t := time.NewTicker(period / 2)
		context.AfterFunc(ctx, t.Stop)
		tick = t.C
	}
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick:
				alive()
				notify("WATCHDOG=1")
			}
		}
	}()
}

// Replaced tells the service manager that another process is the program from now on. This
// one is no longer of interest to the manager, which hears nothing more of it.
func Replaced(pid int) {
	notify("MAINPID=" + strconv.Itoa(pid))
	_ = os.Unsetenv("NOTIFY_SOCKET")
}

// watchdog is the period in which the manager wants to hear of the program; 0 = it does not.
func watchdog() time.Duration {
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	us, _ := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	return time.Duration(us) * time.Microsecond
}

func notifyReloading() {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // cannot fail for this clock
	notify("RELOADING=1\nMONOTONIC_USEC=" + strconv.FormatInt(now.Nano()/1000, 10))
}

// notify sends a state to the service manager, if there is one. It is of no consequence to
// the program if that fails.
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // a manager that hangs does not hold us up
	_, _ = conn.Write([]byte(state))
	_ = conn.Close()
}
