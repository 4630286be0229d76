package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSIGHUP: certificates that the file names are used, and others after SIGHUP; what
// needs a restart is named, and a wrong file changes nothing.
func TestSIGHUP(t *testing.T) {
	dir, soon := t.TempDir(), time.Now().Add(24*time.Hour)
	config := filepath.Join(dir, "relay.yaml")
	write := func(sub, more string) (hash string) {
		d := filepath.Join(dir, sub)
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
		cert, key, sum := pair(t, d, soon)
		yaml := fmt.Sprintf("tls: {certificate: %s, key: %s}\n%s", cert, key, more)
		if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%x\n", sum)
	}
	first := write("first", "")
	p := start(t, "--config", config)
	if _, hash := p.get("/certificate.sha256"); hash != first {
		t.Fatalf("certificate %s, want the file's, %s", hash, first)
	}
	hup := func(says string) {
		t.Helper()
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, says, func() bool { return strings.Contains(p.output(), says) })
	}
	second := write("second", "maxSessions: 9\n")
	hup(`"settings":"maxSessions"`)
	if _, hash := p.get("/certificate.sha256"); hash != second {
		t.Errorf("after SIGHUP certificate %s, want %s", hash, second)
	}
	write("third", "maxSessions: 0\n")
	hup("maxSessions must be above 0")
	if _, hash := p.get("/certificate.sha256"); hash != second {
		t.Errorf("after a wrong file certificate %s, want %s", hash, second)
	}
}
