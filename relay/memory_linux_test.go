package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"holocast/internal/moqt"
	"holocast/internal/origin"
)

// newCgroup creates a cgroup, of version 1 or 2, with a memory limit in bytes.
func newCgroup(t *testing.T, limit int64) (procs string) {
	t.Helper()
	for parent, file := range map[string]string{
		"/sys/fs/cgroup": "memory.max", "/sys/fs/cgroup/memory": "memory.limit_in_bytes",
	} {
		dir := filepath.Join(parent, "holocast-test-"+strconv.Itoa(os.Getpid()))
		if _, err := os.Stat(filepath.Join(parent, "cgroup.procs")); err != nil || os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			eventually(t, "the cgroup is removed", func() bool { return os.Remove(dir) == nil })
		})
		f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
		if err != nil {
			continue // its parent has no memory controller
		}
		_, err = f.WriteString(strconv.FormatInt(limit, 10))
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, "cgroup.procs")
	}
	t.Skip("cannot create a cgroup with a memory limit (needs root)")
	return ""
}

// TestSmallCgroup checks that a relay whose tracks exceed its cgroup's memory limit survives, and
// that every viewer receives every frame.
func TestSmallCgroup(t *testing.T) {
	const (
		limit  = 96 << 20
		tracks = 2
		frames = 60 // of 1 MiB per track, within cache.maxBytes
	)
	procs := newCgroup(t, limit)
	p := startBy(t, func(c *exec.Cmd) error {
		c.Args = append([]string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, procs, binary}, c.Args[1:]...)
		c.Path = "/bin/sh"
		return c.Start()
	}, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--cache-max-age", "1h")
	payload := make([]byte, 1<<20)
	for i := range tracks {
		name := moqt.TrackName{Namespace: moqt.Namespace{"holocast", fmt.Sprint(i)}, Name: "points"}
		tr := origin.NewTrack(name, nil, origin.Limits{MaxBytes: 4 << 20})
		var set origin.Set
		set.Add(tr)
		if _, err := p.dial(set.Handler()).PublishNamespace(t.Context(), name.Namespace); err != nil {
			t.Fatal(err)
		}
		sub := subscribe(t, p.dial(moqt.Handler{}), name)
		for group := range uint64(frames) {
			write(t, tr, group, payload)
			expect(t, sub, group, payload)
		}
	}
	cached := 0.0
	for i := range tracks {
		cached += p.metric(fmt.Sprintf(`holocast_relay_cached_bytes{track="holocast-%d--points"}`, i))
	}
	if cached == 0 || cached > limit/10*4 {
		t.Errorf("%.0f bytes in the cache, want at most %d", cached, limit/10*4)
	}
	t.Logf("%d MiB resident", p.resident()>>20)
	p.Stop()
}
