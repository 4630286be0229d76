package main

import "holocast/internal/service"

// fitMemory returns the size of a cache of total bytes and the garbage collector's limit, which it
// sets: 1.5 times the cache size plus 512 MiB, or what the container's or service's memory limit
// allows.
func fitMemory(total int64) (cache, collector int64) {
	cache = cacheSize(total, service.MemoryLimit())
	return cache, service.LimitMemory(cache + cache/2 + 512<<20)
}

// cacheSize bounds the cache by 40 % of the memory limit; 0 means no limit. Sessions, buffers and
// garbage use the rest.
func cacheSize(total, limit int64) int64 {
	if limit <= 0 {
		return total
	}
	return min(total, limit/10*4)
}
