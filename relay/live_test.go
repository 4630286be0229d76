package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"holocast/internal/moqt"
)

// TestLivePage checks that the page loads with its files, and on public addresses only at admin.
func TestLivePage(t *testing.T) {
	p := start(t)
	_, page := p.get("/live/")
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"]+\.(?:js|css))"`).FindAllStringSubmatch(page, -1) {
		if status, _ := p.get("/live/" + m[1]); status != 200 {
			t.Errorf("%s: %d", m[1], status)
		}
	}
	if !strings.Contains(page, "live.js") {
		t.Errorf("no page:\n%s", page)
	}
	p = start(t, "--admin", "localhost:0")
	if status, _ := p.get("/live/"); status != 404 {
		t.Errorf("http has the live page though admin has: %d", status)
	}
}

// TestQlog checks that --qlog-dir writes one file per connection.
func TestQlog(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "--qlog-dir", dir)
	p.dial(moqt.Handler{})
	eventually(t, "a file of events", func() bool {
		list, err := filepath.Glob(filepath.Join(dir, "*_server.sqlog"))
		if err != nil || len(list) != 1 {
			return false
		}
		info, err := os.Stat(list[0])
		return err == nil && info.Mode().Perm() == 0o640
	})
}
