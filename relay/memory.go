package main

import "holocast/internal/service"

// fitMemory fits a cache of total bytes into the memory limit of the container or service. It also sets
// the garbage collector's limit: 1.5 times the cache plus 512 MiB, or less under a lower memory limit.
// It returns both sizes in bytes.
func fitMemory(total int64) (cache, collector int64) {
	cache = cacheSize(total, service.MemoryLimit())
	return cache, service.LimitMemory(cache + cache/2 + 512<<20)
}

// cacheSize limits the cache to 40 % of the memory limit, or not at all if limit is 0. Sessions,
// buffers and garbage use the rest.
func cacheSize(total, limit int64) int64 {
	if limit <= 0 {
		return total
	}
	return min(total, limit/10*4)
}
