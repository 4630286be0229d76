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

// prefix begins the names of lab namespaces: netlab-PID-START-GROUP-NODE. START is the process's
// start time in clock ticks since boot, which tells reused PIDs apart.
const prefix = "netlab"

// groups numbers the groups of this process.
var groups atomic.Int64

// A Group holds the namespaces of one lab.
type Group struct {
	Prefix     string // of its namespaces' names
	namespaces []*Namespace
	reaper     *exec.Cmd
	alive      io.Closer // the reaper's standard input
}

// reap waits for the end of its standard input, then kills the processes in the namespaces whose
// names begin with $1 and removes the namespaces.
const reap = `cat >/dev/null
for ns in /run/netns/"$1"*; do
  [ -e "$ns" ] || continue
  for p in /proc/[0-9]*; do
    [ "$p/ns/net" -ef "$ns" ] && kill -9 "${p#/proc/}"
  done
  umount -l "$ns"
  rm -f "$ns"
done`

// NewGroup returns an empty group.
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
	g.reaper.SysProcAttr = &unix.SysProcAttr{Setsid: true} // keeps terminal signals from the reaper
	if g.alive, err = g.reaper.StdinPipe(); err != nil {
		return nil, err
	}
	if err := g.reaper.Start(); err != nil {
		return nil, fmt.Errorf("start reaper: %w", err)
	}
	return g, nil
}

// Add creates a namespace.
func (g *Group) Add(node string) (*Namespace, error) {
	n, err := newNamespace(g.Prefix + node)
	if err != nil {
		return nil, err
	}
	g.namespaces = append(g.namespaces, n)
	return n, nil
}

// Close kills the processes in the group's namespaces and removes the namespaces.
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

// Clean kills the processes in the namespaces of dead labs and removes the namespaces, including
// those hidden under a mount. It returns their names.
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

// alive reports whether the process that created a namespace is running. It returns true for names
// that do not belong to a lab.
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

// started returns a process's start time in clock ticks since boot: field 22 of its stat. It fails
// for zombies and for processes that have ended.
func started(pid int) (uint64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The command name, field 2, may hold any character; it ends at the last parenthesis.
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
