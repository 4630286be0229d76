//go:build linux

package pulse

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
)

// TestServer checks that a sink's monitor is a microphone, and that Close leaves no files.
func TestServer(t *testing.T) {
	s, err := Start(t.Context())
	if errors.Is(err, ErrMissing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.AddSink(t.Context(), "mouth", 48000); err != nil {
		t.Fatal(err)
	}
	if list, err := s.Control(t.Context(), "list", "sources"); err != nil || !strings.Contains(list, "Monitor of mouth") {
		t.Errorf("sources: %s: %v", list, err)
	}
	if _, err := s.Control(t.Context(), "unload-module", "999"); err == nil {
		t.Error("no error for a missing module")
	}
	s.Close()
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", s.dir, err)
	}
}

func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Start(t.Context()); !errors.Is(err, ErrMissing) {
		t.Errorf("%v", err)
	}
}

// TestCanceled checks that an interrupted start ends the server.
func TestCanceled(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx); err == nil {
		t.Error("started")
	}
	if list, err := os.ReadDir(os.TempDir()); err != nil || len(list) > 0 {
		t.Errorf("%v: %v", list, err)
	}
}
