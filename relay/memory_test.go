package main

import "testing"

func TestMemoryLimit(t *testing.T) {
	for _, c := range []struct {
		cache  int64
		cgroup string
		want   int64
	}{
		{1 << 30, "", 2 << 30},
		{1 << 30, "max\n", 2 << 30},
		{1 << 30, "1000000000\n", 900_000_000},
		{1 << 30, "100000000000\n", 2 << 30},
		{1 << 20, "0", 0},
	} {
		if got := memoryLimit(c.cache, c.cgroup); got != c.want {
			t.Errorf("cache %d, cgroup %q: %d, want %d", c.cache, c.cgroup, got, c.want)
		}
	}
}
