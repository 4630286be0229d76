//go:build linux

package namespace

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// prefix begins the names of all namespaces of labs: netlab-PID-START-GROUP-NODE, where
// START is when the process began, in clock ticks since boot, for PIDs come again.
const prefix = "netlab"

// groups counts those of this process.
var groups atomic.Int64

// A Group is the namespaces of one lab.
type Group struct {
	Prefix     string // of the names of its namespaces
	namespaces []*Namespace
	reaper     *exec.Cmd
	alive      io.Closer // the reaper's standard input
}

// reap waits for the end of its standard input and removes the namespaces whose names begin
// with $1, and the processes in them.
const reap = `cat >/dev/null
for ns in /run/netns/"$1"*; do
  [ -e "$ns" ] || continue
  for p in /proc/[0-9]*; do
    [ "$p/ns/net" -ef "$ns" ] && kill -9 "${p#/proc/}"
  done
  umount -l "$ns"
  rm -f "$ns"
done`

// NewGroup starts a group without namespaces.
func NewGroup() (*Group, error) {
	if err := Supported(); err != nil {
		return nil, err
	}
	start, err := started(os.Getpid())
	if err != nil {
		return nil, err
	}
	g := &Group{Prefix: fmt.Sprintf("%s-%d-%d-%d-", prefix, os.Getpid(), start, groups.Add(1))}
	g.reaper = exec.Command("sh", "-c", reap, "sh", g.Prefix)
	g.reaper.SysProcAttr = &unix.SysProcAttr{Setsid: true} // the terminal's signals are not for it
	if g.alive, err = g.reaper.StdinPipe(); err != nil {
		return nil, err
	}
	if err := g.reaper.Start(); err != nil {
		return nil, fmt.Errorf("the shell that cleans up: %w", err)
	}
	return g, nil
}

// Add makes a namespace.
func (g *Group) Add(node string) (*Namespace, error) {
	n, err := newNamespace(g.Prefix + node)
	if err != nil {
		return nil, err
	}
	g.namespaces = append(g.namespaces, n)
	return n, nil
}

// Close ends the processes in the group's namespaces and removes them.
func (g *Group) Close() error {
	errs := make([]error, 0, len(g.namespaces)+1)
	for _, n := range g.namespaces {
		errs = append(errs, n.close())
	}
	g.namespaces = nil
	_ = g.alive.Close()
	errs = append(errs, g.reaper.Wait())
	return errors.Join(errs...)
}

// Clean kills the processes in the namespaces of labs whose process is dead, removes the
// namespaces, also those hidden under a mount, and returns their names.
func Clean() ([]string, error) {
	if _, err := os.Stat(folder); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err := uncover(); err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(folder, prefix+"-*"))
	if err != nil {
		return nil, err
	}
	var removed []string
	for _, path := range paths {
		name := filepath.Base(path)
		if alive(name) {
			continue
		}
		killInside(name)
		if err := remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return removed, err
		}
		removed = append(removed, name)
	}
	return removed, nil
}

// alive reports whether the process that made a namespace runs. It is true for names that
// are not of a lab.
func alive(name string) bool {
	parts := strings.SplitN(name, "-", 5)
	if len(parts) < 5 {
		return true
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil {
		return true
	}
	start, err := started(pid)
	return err == nil && strconv.FormatUint(start, 10) == parts[2]
}

// started returns when a process began, in clock ticks since boot: field 22 of its stat. It
// fails for processes that are gone and for zombies.
func started(pid int) (uint64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, field 2, may hold anything; it ends with the last parenthesis.
	_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat: too short", pid)
	}
	if fields[0] == "Z" {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}
