package service

import (
	"context"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Ready reports readiness to the service manager and then, until ctx is done, that the program is
// alive: it calls alive twice per watchdog period. A hanging program blocks in alive, so its
// watchdog expires. Without a service manager Ready does nothing. See sd_notify(3).
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

// Replaced notifies the service manager that another process is now the main process. This process
// sends no further notifications.
func Replaced(pid int) {
	notify("MAINPID=" + strconv.Itoa(pid))
	_ = os.Unsetenv("NOTIFY_SOCKET")
}

// watchdog returns the service manager's watchdog period, or 0 if there is none.
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

// notify sends a state to the service manager, if there is one. It ignores errors.
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // do not hang if the service manager does
	_, _ = conn.Write([]byte(state))
	_ = conn.Close()
}
