package service

import (
	"io/fs"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// LimitMemory sets the garbage collector's limit from the memory limit of the process's cgroup, but
// to no more than most bytes unless most is 0. GOMEMLIMIT overrides it. LimitMemory returns the
// limit in force, or 0 if it found none.
func LimitMemory(most int64) int64 {
	if os.Getenv("GOMEMLIMIT") != "" {
		return debug.SetMemoryLimit(-1)
	}
	limit := collectorLimit(MemoryLimit())
	if most > 0 && (limit == 0 || most < limit) {
		limit = most
	}
	if limit > 0 {
		debug.SetMemoryLimit(limit)
	}
	return limit
}

// collectorLimit returns the limit of the garbage collector in a cgroup with a limit in bytes. It
// leaves a tenth, but at least 48 MiB, for memory outside the runtime, such as socket buffers. In a
// cgroup too small for that it leaves a quarter.
func collectorLimit(cgroup int64) int64 {
	return cgroup - max(cgroup/10, min(48<<20, cgroup/4))
}

// MemoryLimit returns the memory limit of the process in bytes, the lowest of its cgroup and the
// cgroups above it, of version 1 or 2. It returns 0 without a limit. See cgroups(7).
func MemoryLimit() int64 { return memoryLimit(os.DirFS("/")) }

// noLimit is the value from which a limit counts as none. Cgroups of version 1 without a limit
// report the largest integer, rounded down to pages.
const noLimit = 1 << 60

func memoryLimit(root fs.FS) (lowest int64) {
	groups, _ := fs.ReadFile(root, "proc/self/cgroup") // missing outside Linux
	mounts, _ := fs.ReadFile(root, "proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		m, ok := parseMount(line)
		if !ok {
			continue
		}
		group, ok := cgroupOf(string(groups), m.v1)
		if !ok {
			continue
		}
		file := "memory.max"
		if m.v1 {
			file = "memory.limit_in_bytes"
		}
		// A container may see only its own part of the hierarchy, or have its own namespace.
		below, ok := strings.CutPrefix(group, strings.TrimSuffix(m.root, "/"))
		if !ok || strings.Contains(below, "..") {
			below = ""
		}
		for dir := path.Join(m.dir, below); ; dir = path.Dir(dir) {
			b, _ := fs.ReadFile(root, path.Join(strings.TrimPrefix(dir, "/"), file))
			n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64) // the text "max" is no limit
			if err == nil && n > 0 && n < noLimit && (lowest == 0 || n < lowest) {
				lowest = n
			}
			if dir == m.dir || len(dir) <= len(m.dir) {
				break
			}
		}
	}
	return lowest
}

// mount is a mounted cgroup hierarchy that may have a memory controller.
type mount struct {
	root, dir string // the mounted part of the hierarchy, and where it is mounted
	v1        bool
}

// parseMount parses a line of /proc/self/mountinfo. See proc_pid_mountinfo(5).
func parseMount(line string) (m mount, ok bool) {
	before, after, _ := strings.Cut(line, " - ")
	fields, kind := strings.Fields(before), strings.Fields(after)
	if len(fields) < 5 || len(kind) < 3 {
		return m, false
	}
	m.root, m.dir, m.v1 = fields[3], fields[4], kind[0] == "cgroup"
	return m, kind[0] == "cgroup2" || m.v1 && strings.Contains(","+kind[2]+",", ",memory,")
}

// cgroupOf returns the process's cgroup from /proc/self/cgroup, in version 2 or in the hierarchy of
// version 1's memory controller.
func cgroupOf(groups string, v1 bool) (group string, ok bool) {
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && (!v1 && parts[0] == "0" && parts[1] == "" ||
			v1 && strings.Contains(","+parts[1]+",", ",memory,")) {
			return parts[2], true
		}
	}
	return "", false
}
