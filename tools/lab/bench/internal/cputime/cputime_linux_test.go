package cputime

import (
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain also serves as the main function of TestOf's child. The child uses CPU time in a thread
// that ends, then waits.
func TestMain(m *testing.M) {
	if os.Getenv("CPUTIME_TEST_CHILD") == "" {
		os.Exit(m.Run())
	}
	used := make(chan time.Duration)
	go func() {
		runtime.LockOSThread() // locked until it ends, so the thread ends with the goroutine
		var t unix.Timespec
		for t.Nano() < int64(100*time.Millisecond) {
			_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
		}
		used <- time.Duration(t.Nano())
	}()
	_, _ = io.WriteString(os.Stdout, (<-used).String()+"\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestOf(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), self)
	child.Env = append(os.Environ(), "CPUTIME_TEST_CHILD=1")
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 64)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	thread, err := time.ParseDuration(string(line[:n-1]))
	if err != nil {
		t.Fatal(err)
	}

	// The child's thread ends now or has already ended.
	before, err := Of(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if before < thread {
		t.Errorf("process used %v, less than one of its threads: %v", before, thread)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := Of(child.Process.Pid); err == nil {
		t.Error("an ended process still has CPU time")
	}
	all := child.ProcessState.UserTime() + child.ProcessState.SystemTime()
	if before > all {
		t.Errorf("process used %v before its end, more than in total: %v", before, all)
	}
}
