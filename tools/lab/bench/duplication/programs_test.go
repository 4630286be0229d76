//go:build linux

package duplication

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestOutputMissing checks the errors for programs that do not print a text, running or ended.
func TestOutputMissing(t *testing.T) {
	log := filepath.Join(t.TempDir(), "relay.log")
	if err := os.WriteFile(log, []byte("starting\nwaiting\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	close(ended)
	for name, c := range map[string]struct {
		done  chan struct{}
		limit time.Duration
		want  string
	}{
		"running": {make(chan struct{}), time.Millisecond, "relay did not print \"ready\" within 1ms\n  starting\n  waiting"},
		"ended":   {ended, time.Hour, "relay ended: exit status 0\n  starting\n  waiting"},
	} {
		x := &process{name: "relay", log: log, done: c.done}
		if _, err := x.awaitOutput(t.Context(), "ready", c.limit); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
