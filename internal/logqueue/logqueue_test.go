package logqueue

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stalled is a writer that blocks until released.
type stalled struct {
	bytes.Buffer
	release chan struct{}
}

func (s *stalled) Write(b []byte) (int, error) {
	<-s.release
	return s.Buffer.Write(b)
}

// TestStalledReader checks that writes do not block while nobody reads the log, and that dropped
// records are counted, and reported once reading resumes.
func TestStalledReader(t *testing.T) {
	for name, c := range map[string]struct {
		records, size, dropped int
	}{
		"few":       {10, 100, 0},
		"full":      {1024, 1024, 0},
		"too many":  {1124, 1024, 100},
		"too large": {3, maxBytes + 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &stalled{release: make(chan struct{})}
				q := New(w)
				defer slog.SetDefault(slog.Default())
				slog.SetDefault(slog.New(slog.NewTextHandler(q, nil)))
				record := []byte(strings.Repeat("x", c.size-1) + "\n")
				for range c.records {
					if n, err := q.Write(record); n != len(record) || err != nil {
						t.Fatalf("%d, %v", n, err)
					}
				}
				q.Flush(time.Second) // must return: synctest reports a deadlock otherwise
				if got := q.Dropped(); got != uint64(c.dropped) {
					t.Errorf("%d records dropped, want %d", got, c.dropped)
				}
				close(w.release)
				q.Flush(time.Hour)
				if _, err := q.Write([]byte("last\n")); err != nil {
					t.Fatal(err)
				}
				q.Flush(time.Hour)
				if got := strings.Count(w.String(), string(record)); got != c.records-c.dropped {
					t.Errorf("%d records written, want %d", got, c.records-c.dropped)
				}
				want := fmt.Sprintf("records=%d\n", c.dropped)
				if said := strings.Contains(w.String(), want); said != (c.dropped > 0) {
					t.Errorf("the log reports %s: %v", want, said)
				}
				if !strings.Contains(w.String(), "last\n") {
					t.Error("the last record is missing")
				}
			})
		})
	}
}

// failing fails every write.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// TestFailingWriter checks that records are dropped and counted when their reader is gone.
func TestFailingWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(failing{})
		for range 3 {
			fmt.Fprintln(q, "record")
		}
		q.Flush(time.Hour)
		if got := q.Dropped(); got != 3 {
			t.Errorf("%d records dropped, want 3", got)
		}
	})
}

// recovering fails the first writes.
type recovering struct {
	bytes.Buffer
	failures int
}

func (r *recovering) Write(b []byte) (int, error) {
	if r.failures > 0 {
		r.failures--
		return 0, errors.New("no space left on device")
	}
	return r.Buffer.Write(b)
}

// TestRecoveredWriter checks that records lost to failed writes are reported as such.
func TestRecoveredWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recovering{failures: 2}
		q := New(w)
		defer slog.SetDefault(slog.Default())
		slog.SetDefault(slog.New(slog.NewTextHandler(q, nil)))
		for range 3 {
			fmt.Fprintln(q, "record")
		}
		q.Flush(time.Hour)
		const want = `msg="log records dropped: writing the log failed" records=2 err="no space left on device"`
		if log := w.String(); !strings.Contains(log, want) || strings.Contains(log, "slowly") {
			t.Errorf("the log is %q, want %s", log, want)
		}
	})
}

// TestReuse checks that the caller may reuse a record's memory.
func TestReuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &stalled{release: make(chan struct{})}
		q := New(w)
		b := []byte("one\n")
		_, _ = q.Write(b)
		copy(b, "two\n")
		_, _ = q.Write(b)
		close(w.release)
		q.Flush(time.Hour)
		if got := w.String(); got != "one\ntwo\n" {
			t.Errorf("%q", got)
		}
	})
}
