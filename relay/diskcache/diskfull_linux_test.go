package diskcache

import (
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// TestDiskFull fills the disk: further groups are dropped, with one message, and the earlier ones are served.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount a small tmpfs (needs root): %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	s := open(t, Config{Dir: filepath.Join(dir, "cache")})
	var log strings.Builder
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	tr := s.Track(points, "p", false, nil)
	for id := range uint64(8) {
		payload := [][]byte{make([]byte, 300_000)}
		tr.Put(origin.Group{ID: id, Arrived: time.Now(), Objects: []origin.GroupObject{{Payload: payload}}})
	}
	settle(s)
	if st := s.Stats(); st.Groups != 3 || st.Dropped != 5 {
		t.Errorf("%d groups, %d dropped", st.Groups, st.Dropped)
	}
	if n := strings.Count(log.String(), "cannot write"); n != 1 {
		t.Errorf("%d messages, want one:\n%s", n, log.String())
	}
	if got := fetched(t, alone(tr), 0, 3, wire.Ascending); len(got) != 4 || got[3] != "unknown to 3" ||
		len(got[2]) != 300_000 {
		t.Errorf("fetched %d entries", len(got))
	}
}
