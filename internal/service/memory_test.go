package service

import (
	"testing"
	"testing/fstest"
)

func TestMemoryLimit(t *testing.T) {
	const (
		v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
		v1 = "33 32 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" +
			"36 32 0:32 / /sys/fs/cgroup/memory rw,relatime shared:15 - cgroup cgroup rw,memory\n"
		container = "36 32 0:32 /docker/7f /sys/fs/cgroup/memory ro master:15 - cgroup cgroup rw,memory\n"
		hybrid    = v1 + "45 32 0:40 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	)
	for name, c := range map[string]struct {
		cgroup, mounts string
		files          map[string]string // below sys/fs/cgroup
		want           int64
	}{
		"no files": {want: 0},
		"unit": {
			"0::/system.slice/holocast-relay.service\n", v2,
			map[string]string{"system.slice/holocast-relay.service/memory.max": "268435456\n"},
			256 << 20,
		},
		"slice above": {
			"0::/system.slice/holocast-relay.service\n", v2, map[string]string{
				"system.slice/holocast-relay.service/memory.max": "max\n", "system.slice/memory.max": "1000000\n",
			}, 1000000,
		},
		"lower limit above": {
			"0::/a/b/c\n", v2, map[string]string{
				"a/b/c/memory.max": "3000000", "a/b/memory.max": "1000000", "a/memory.max": "2000000",
			}, 1000000,
		},
		"namespace":        {"0::/\n", v2, map[string]string{"memory.max": "268435456\n"}, 256 << 20},
		"outside its root": {"0::/../../other\n", v2, map[string]string{"memory.max": "7000000\n"}, 7000000},
		"no limit":         {"0::/a\n", v2, map[string]string{"a/memory.max": "max\n"}, 0},
		"controller off":   {"0::/a\n", v2, nil, 0},
		"unit, version 1": {
			"5:cpu:/\n4:memory:/system.slice/relay.service\n", v1,
			map[string]string{"memory/system.slice/relay.service/memory.limit_in_bytes": "268435456\n"},
			256 << 20,
		},
		"no limit, version 1": {
			"4:memory:/\n", v1,
			map[string]string{"memory/memory.limit_in_bytes": "9223372036854771712\n"},
			0,
		},
		"container, version 1": {
			"4:cpu,memory:/docker/7f\n", container,
			map[string]string{"memory/memory.limit_in_bytes": "268435456\n"},
			256 << 20,
		},
		"group in a container, version 1": {
			"4:memory:/docker/7f/sub\n", container,
			map[string]string{"memory/sub/memory.limit_in_bytes": "5000000\n"},
			5000000,
		},
		"hybrid": {
			"4:memory:/a\n0::/a\n", hybrid, map[string]string{"memory/a/memory.limit_in_bytes": "5000000\n"}, 5000000,
		},
		"damaged": {"4:memory\n::\n\n", v1 + "36 - cgroup2\n - \n", nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{
				"proc/self/cgroup":    {Data: []byte(c.cgroup)},
				"proc/self/mountinfo": {Data: []byte(c.mounts)},
			}
			for file, text := range c.files {
				root["sys/fs/cgroup/"+file] = &fstest.MapFile{Data: []byte(text)}
			}
			if got := memoryLimit(root); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

func TestCollectorLimit(t *testing.T) {
	for cgroup, want := range map[int64]int64{
		0:         0,
		64 << 20:  48 << 20,
		256 << 20: 208 << 20,
		2 << 30:   2<<30 - 2<<30/10,
	} {
		if got := collectorLimit(cgroup); got != want {
			t.Errorf("%d: %d, want %d", cgroup, got, want)
		}
	}
}
