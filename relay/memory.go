package main

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitMemory sets the garbage collector's memory limit from the cache size and the container's
// limit. GOMEMLIMIT overrides it.
func limitMemory(cache int64) (limit int64) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return debug.SetMemoryLimit(-1)
	}
	b, _ := os.ReadFile("/sys/fs/cgroup/memory.max") // missing outside containers
	limit = memoryLimit(cache, string(b))
	debug.SetMemoryLimit(limit)
	return limit
}

// memoryLimit returns 1.5 times the cache size plus 512 MiB, or 90 % of a smaller cgroup limit,
// which leaves a tenth for memory outside the runtime.
func memoryLimit(cache int64, cgroup string) int64 {
	limit := cache + cache/2 + 512<<20
	// the text is "max" without a limit
	if most, err := strconv.ParseInt(strings.TrimSpace(cgroup), 10, 64); err == nil {
		limit = min(limit, most-most/10)
	}
	return limit
}
