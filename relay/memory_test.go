package main

import "testing"

func TestCacheSize(t *testing.T) {
	for _, c := range []struct{ total, limit, want int64 }{
		{1 << 30, 0, 1 << 30},
		{1 << 30, 8 << 30, 1 << 30},
		{1 << 30, 1_000_000_000, 400_000_000},
		{100 << 20, 256 << 20, 100 << 20},
		{1 << 20, 1 << 40, 1 << 20},
	} {
		if got := cacheSize(c.total, c.limit); got != c.want {
			t.Errorf("%d bytes with a limit of %d: %d, want %d", c.total, c.limit, got, c.want)
		}
	}
}
