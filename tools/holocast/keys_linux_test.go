package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holocast/internal/programtest"
	"holocast/tools/holocast/player"
)

func TestKeys(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []key
	}{
		{"letters", " lLqQx", []key{keyToggle, keyShare, keyShare, keyQuit, keyQuit, keyNone}},
		{"arrows", "\x1b[A\x1b[B\x1b[C\x1b[D", []key{keyFarForward, keyFarBack, keyForward, keyBack}},
		{"arrows in application mode", "\x1bOA\x1bOD", []key{keyFarForward, keyBack}},
		{"home", "\x1b[H\x1b[1~", []key{keyBeginning, keyBeginning}},
		{"unassigned keys", "\x1b[15~ \x1b[1;5C ", []key{keyNone, keyToggle, keyNone, keyToggle}},
		{"escape", "\x1b", []key{keyNone}},
		{"no sequence", "\x1b[" + strings.Repeat("1", 20), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := bufio.NewReader(strings.NewReader(tt.in))
			var got []key
			for {
				k, err := nextKey(r)
				if err != nil {
					break
				}
				got = append(got, k)
			}
			for i, want := range tt.want {
				if i >= len(got) || got[i] != want {
					t.Fatalf("got %v, want %v", got, tt.want)
				}
			}
		})
	}
}

// terminal opens a pseudo-terminal.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	return master, slave
}

// TestPlayKeys controls a player with keys: pause, seek to the beginning, shared replay, quit.
func TestPlayKeys(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	startRelay(t, port)
	first := filepath.Join(t.TempDir(), "first.mcap")
	writeRecording(t, first)
	url := sessionURL(port, "again")
	start(t, "holocast", "replay", first, url, "--loop")
	master, slave := terminal(t)
	before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(filepath.Join(programs, "holocast"), "play", url, "--wait", "--json")
	c.Stdin, c.SysProcAttr = slave, &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p := &process{programtest.Start(t, c), t}
	press := func(keys string) {
		t.Helper()
		if _, err := master.WriteString(keys); err != nil {
			t.Fatal(err)
		}
	}
	newest := func() string {
		lines := strings.Split(strings.TrimSpace(p.Stderr.String()), "\n")
		return lines[len(lines)-1]
	}
	until(t, "the shared replay", func() bool { return strings.Contains(newest(), " / 0:0") && p.fps() > 0 })
	press(" ")
	until(t, "the pause", func() bool { return strings.Contains(newest(), " paused") })
	press("\x1b[H")
	until(t, "the beginning", func() bool { return strings.HasPrefix(newest(), "0:00.0 / ") })
	press("l")
	until(t, "the shared replay again", func() bool { return !strings.Contains(newest(), " paused") })
	press("q")
	p.mustSucceed()
	var r player.Report
	p.lastLine(&r)
	if x := r.Recording; x == nil || x.Own || x.PausedS == 0 {
		t.Errorf("recording %+v", x)
	}
	after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("terminal settings %+v, %v; before %+v", after, err, before)
	}
}
