package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// child is a program that runs until this one ends.
type child struct {
	name string
	log  string // path of its output
	pid  int
	done chan struct{}
	err  error // valid once done is closed
}

// findProgram finds another Holocast program in this one's folder or in PATH.
func findProgram(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither next to this program nor in PATH; run make build", name)
	}
	return path, nil
}

// startChild starts a program and writes its output to dir/name.log.
func startChild(dir, name string, args ...string) (*child, error) {
	path, err := findProgram(name)
	if err != nil {
		return nil, err
	}
	c := &child{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	out, err := os.Create(c.log)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = childAttributes()
	started := make(chan error)
	go func() {
		// Pdeathsig acts when the starting thread exits, so keep that thread alive.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		_ = out.Close()
		if err == nil {
			c.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return c, nil
}

// childExitTimeout bounds how long stop waits for a child to exit before killing it.
const childExitTimeout = 3 * time.Second

// stop terminates the child and its children. It kills them if they do not exit.
func (c *child) stop() {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		_ = syscall.Kill(-c.pid, sig)
		select {
		case <-c.done:
			return
		case <-time.After(childExitTimeout):
		}
	}
}

// failure describes a child's unexpected exit.
func (c *child) failure() error {
	why := "ended"
	if c.err != nil {
		why = "failed: " + c.err.Error()
	}
	return fmt.Errorf("%s %s\n%s", c.name, why, c.tail())
}

// tail returns the end of the child's output.
func (c *child) tail() string {
	b, err := os.ReadFile(c.log)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	lines = lines[max(0, len(lines)-15):]
	return fmt.Sprintf("the last lines of %s:\n  %s", c.log, strings.Join(lines, "\n  "))
}
