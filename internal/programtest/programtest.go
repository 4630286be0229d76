// Package programtest builds programs and runs them for tests.
package programtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holocast/internal/leaktest"
	"holocast/internal/testlog"
)

// timeout bounds the start and the exit of a program on a busy machine.
const timeout = 3 * time.Minute

// Build compiles Go packages into a new folder that any user may enter. args are go build's flags
// and the packages. Programs are cached in build/programs, so tests of several packages and runs
// link them once.
func Build(args ...string) (dir string, err error) {
	flags, packages := args, []string(nil)
	if i := slices.IndexFunc(args, func(a string) bool { return !strings.HasPrefix(a, "-") }); i >= 0 {
		flags, packages = args[:i], args[i:]
	}
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	kept := filepath.Join(
		filepath.Dir(strings.TrimSpace(string(mod))),
		"build",
		"programs",
		"go"+strings.Join(flags, ""),
	)
	unlock, err := lock(kept)
	if err != nil {
		return "", err
	}
	defer unlock()
	args = slices.Concat([]string{"build", "-o", kept + string(filepath.Separator)}, flags, packages)
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}

	names, err := sources(packages)
	if err != nil {
		return "", err
	}
	built.Lock()
	built.names = append(built.names, names...)
	built.Unlock()

	dir, err = os.MkdirTemp("", "holocast-test-")
	if err != nil {
		return "", err
	}
	programs := []string{"--"}
	for _, p := range packages {
		if strings.HasPrefix(p, ".") {
			if p, err = filepath.Abs(p); err != nil {
				return "", err
			}
		}
		programs = append(programs, filepath.Join(kept, filepath.Base(p)))
	}
	// The sources of the programs are inputs of a test's cached result. The programs are not, since go
	// build changes the times of up-to-date ones: copy them in another process.
	out, err := exec.Command("cp", append(programs, dir)...).CombinedOutput()
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", fmt.Errorf("copying %s: %w %s", kept, err, out)
	}
	return dir, nil
}

// lock creates a folder and locks it against tests of other packages. It uses system calls because
// Go records files opened through package os as test inputs.
func lock(dir string) (unlock func(), err error) {
	if out, err := exec.Command("mkdir", "-p", dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mkdir: %w: %s", err, out)
	}
	fd, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	for {
		if err := syscall.Flock(fd, syscall.LOCK_EX); err == nil {
			return func() { _ = syscall.Close(fd) }, nil
		} else if err != syscall.EINTR {
			_ = syscall.Close(fd)
			return nil, fmt.Errorf("locking %s: %w", dir, err)
		}
	}
}

// EnvPrograms is the environment variable with the folder of prebuilt programs, for machines
// without Go.
const EnvPrograms = "HOLOCAST_TEST_PROGRAMS"

// Main implements TestMain. It builds programs as Build does unless EnvPrograms is set, passes
// their folder to built, runs the tests, and fails if they leak goroutines.
func Main(m *testing.M, built func(dir string), args ...string) {
	dir, remove := os.Getenv(EnvPrograms), func() {}
	if dir == "" {
		var err error
		if dir, err = Build(args...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		remove = func() { _ = os.RemoveAll(dir) }
	}
	built(dir)
	code := m.Run()
	remove()
	os.Exit(leaktest.Code(code))
}

// Process is a running program. It is killed at the end of its test, and its output is logged if
// the test failed.
type Process struct {
	Cmd            *exec.Cmd
	Stdout, Stderr testlog.Buffer

	t    testing.TB
	done chan struct{}
	err  error
}

// Start starts a program. Output streams not set in c go to the process's buffers. The program does
// not outlive the tests.
func Start(t testing.TB, c *exec.Cmd) *Process {
	t.Helper()
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return StartBy(t, c, (*exec.Cmd).Start)
}

// StartBy is Start with a custom function to start the command, for example in a network namespace.
func StartBy(t testing.TB, c *exec.Cmd, begin func(*exec.Cmd) error) *Process {
	t.Helper()
	recordBuilt()
	p := &Process{Cmd: c, t: t, done: make(chan struct{})}
	if c.Stdout == nil {
		c.Stdout = &p.Stdout
	}
	if c.Stderr == nil {
		c.Stderr = &p.Stderr
	}
	if err := begin(c); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = c.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s\nstdout:\n%s\nstderr:\n%s", c, tail(p.Stdout.String()), tail(p.Stderr.String()))
		}
	})
	return p
}

func tail(s string) string {
	if len(s) > 20_000 {
		s = "…" + s[len(s)-20_000:]
	}
	return s
}

// Done is closed after the program has ended and its output is complete.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is Wait with a timeout that suffices on a busy machine.
func (p *Process) Err() error {
	p.t.Helper()
	return p.Wait(timeout)
}

// Wait waits for the end of the program and returns the result of exec.Cmd's Wait. It fails the test
// after timeout.
func (p *Process) Wait(timeout time.Duration) error {
	p.t.Helper()
	select {
	case <-p.done:
		return p.err
	case <-time.After(timeout):
		p.t.Fatalf("%s did not end", p.Cmd)
		return nil
	}
}

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// Kill kills the program if it is running.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.done
}

// Stop stops the program with SIGTERM and checks that it exits with 0.
func (p *Process) Stop() {
	p.t.Helper()
	p.Signal(syscall.SIGTERM)
	if err := p.Err(); err != nil {
		p.t.Errorf("%s ended with %v", p.Cmd, err)
	}
}

// Line waits for a line that contains text on the program's standard error, and returns the line.
func (p *Process) Line(text string) string {
	p.t.Helper()
	find := func() (string, bool) {
		for line := range strings.Lines(p.Stderr.String()) {
			if strings.HasSuffix(line, "\n") && strings.Contains(line, text) {
				return line, true
			}
		}
		return "", false
	}
	for end := time.Now().Add(timeout); ; {
		if line, ok := find(); ok {
			return line
		}
		select {
		case <-p.done:
			if line, ok := find(); ok {
				return line
			}
			p.t.Fatalf("%s ended without %q: %v", p.Cmd, text, p.err)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s did not print %q", p.Cmd, text)
		}
	}
}
