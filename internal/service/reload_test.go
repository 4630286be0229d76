package service

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// child starts this test binary as a program; see TestMain.
func child(t *testing.T, env []string, args ...string) (*exec.Cmd, *bufio.Scanner, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), programEnv+"=1"), env...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(stdout), bufio.NewScanner(stderr)
}

func TestReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program.yaml")
	write := func(yaml string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("limit: 1\n")
	cmd, out, log := child(t, nil, "--config", file)
	if !out.Scan() {
		t.Fatal("it does not run")
	}
	for _, c := range []struct{ yaml, out, log, warning string }{
		{"limit: 2\n", "limit 2", "configuration reloaded", ""},
		{"limit: 2\nfixed: 3\n", "limit 2", "configuration reloaded", "settings=fixed"},
		{"limit: -1\n", "", file + ":1: limit must not be negative", ""},
		{"limit: x\n", "", "is not a whole number", ""},
		{"limit: 13\n", "", "limit 13 is refused", ""},
		{"limit: 5\n", "limit 5", "configuration reloaded", ""},
	} {
		write(c.yaml)
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if c.out != "" && (!out.Scan() || out.Text() != c.out) {
			t.Errorf("%q: prints %q, want %q", c.yaml, out.Text(), c.out)
		}
		if !log.Scan() || !strings.Contains(log.Text(), c.log) {
			t.Errorf("%q: logs %q, want %q", c.yaml, log.Text(), c.log)
		}
		if c.warning != "" && (!log.Scan() || !strings.Contains(log.Text(), c.warning)) {
			t.Errorf("%q: warns %q, want %q", c.yaml, log.Text(), c.warning)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for out.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestNotify checks that the service manager receives readiness, liveness, reloading and
// stopping.
func TestNotify(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s") // socket addresses are limited to 108 bytes
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = manager.Close() }()
	next := func() string {
		t.Helper()
		b := make([]byte, 256)
		_ = manager.SetReadDeadline(time.Now().Add(time.Minute))
		n, err := manager.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	cmd, out, _ := child(t, []string{"NOTIFY_SOCKET=" + socket, "WATCHDOG_USEC=20000"})
	if s := next(); s != "READY=1" {
		t.Errorf("first %q", s)
	}
	for range 2 {
		if s := next(); s != "WATCHDOG=1" {
			t.Errorf("then %q", s)
		}
	}
	after := func(sig os.Signal) string {
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		for {
			if s := next(); s != "WATCHDOG=1" {
				return s
			}
		}
	}
	out.Scan() // the program runs and handles SIGHUP
	if s := after(syscall.SIGHUP); !strings.HasPrefix(s, "RELOADING=1\nMONOTONIC_USEC=") {
		t.Errorf("reloading: %q", s)
	}
	if s := after(syscall.Signal(0)); s != "READY=1" {
		t.Errorf("reloaded: %q", s)
	}
	if s := after(syscall.SIGTERM); s != "STOPPING=1" {
		t.Errorf("stopping: %q", s)
	}
	for out.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "program.yaml")
	for yaml, want := range map[string]string{
		"limit: 3\n":      file + " is valid\n",
		"\nlimit: -3\n":   "program: " + file + ":2: limit must not be negative\n",
		"limits: 3\n":     "program: " + file + ":1: unknown setting \"limits\"\n",
		"end: [1, 2]\n":   "program: " + file + ":1: end: \"\" is not text\n",
		"limit: 1\n- x\n": "program: " + file + ":1: did not find expected key\n",
	} {
		if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "check", file)
		cmd.Env = append(os.Environ(), programEnv+"=1")
		out, err := cmd.CombinedOutput()
		if string(out) != want || (err == nil) != strings.HasSuffix(want, "is valid\n") {
			t.Errorf("%q: %v, says %q, want %q", yaml, err, out, want)
		}
	}
}
