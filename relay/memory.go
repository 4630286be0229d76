package main

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitMemory has the runtime collect garbage in time to keep the process within what its
// cache and its sessions need, or what its container has. GOMEMLIMIT says otherwise.
func limitMemory(cache int64) (limit int64) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return debug.SetMemoryLimit(-1)
	}
	b, _ := os.ReadFile("/sys/fs/cgroup/memory.max") // none outside containers
	limit = memoryLimit(cache, string(b))
	debug.SetMemoryLimit(limit)
	return limit
}

// memoryLimit leaves half as much as the cache and half a gigabyte for all else, and where a
// cgroup has less, a tenth of that for what the runtime does not count.
func memoryLimit(cache int64, cgroup string) int64 {
	limit := cache + cache/2 + 512<<20
	if most, err := strconv.ParseInt(strings.TrimSpace(cgroup), 10, 64); err == nil { // else "max"
		limit = min(limit, most-most/10)
	}
	return limit
}
