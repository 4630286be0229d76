//go:build linux

package namespace

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

func TestAlive(t *testing.T) {
	start, err := started(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		want bool
	}{
		{fmt.Sprintf("netlab-%d-%d-1-a", os.Getpid(), start), true},
		{fmt.Sprintf("netlab-%d-%d-1-node-b", os.Getpid(), start), true},
		{fmt.Sprintf("netlab-%d-%d-1-a", os.Getpid(), start+1), false}, // PID reused by another process
		{fmt.Sprintf("netlab-%d-%d-1-a", ended.Process.Pid, start), false},
		{"netlab-of-somebody-else-s", true},
		{"netlab-1", true},
	} {
		if got := alive(c.name); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestNamesWithParentheses(t *testing.T) {
	// A process name with parentheses must not shift the fields of stat.
	shell := exec.Command("sh", "-c", `printf 'a) 1 (b' >/proc/$$/comm; echo; read _`)
	in, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	before, err := started(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if start, err := started(shell.Process.Pid); err != nil || start < before || start > before+1e6 {
		t.Errorf("started at %d: %v", start, err)
	}
	_ = in.Close()
	_ = shell.Wait() // read finds the end of its input
}

func TestMask(t *testing.T) {
	for _, c := range []struct {
		cpus []int
		want string
	}{
		{[]int{0}, "00000001"},
		{[]int{0, 1, 2, 31}, "80000007"},
		{[]int{1, 64}, "00000001,00000000,00000002"},
	} {
		if got := mask(c.cpus); got != c.want {
			t.Errorf("%v: %s, not %s", c.cpus, got, c.want)
		}
	}
}
