package main

import (
	"os"
	"strings"
	"testing"
)

func TestHits(t *testing.T) {
	for _, c := range []struct {
		text string
		want int
	}{
		{"Queue holds one session's in-flight subgroups, across tracks.", 0},
		{"Queue is what is in flight to one session", 1},
		{"a track nobody watches", 1},
		{"there is no such track; no more than two", 0},
		{"a deleted interface is no error", 1},
		{"nothing more, no more", 1},
		{"patience is how long subgroups may wait", 1},
	} {
		if got := hits(c.text); got != c.want {
			t.Errorf("hits(%q) = %d, want %d", c.text, got, c.want)
		}
	}
}

func TestProse(t *testing.T) {
	for _, c := range []struct{ name, line, want string }{
		{"a.go", "x := 1 // first byte", "first byte"},
		{"a.go", `return errors.New("the certificate file is unreadable")`, "the certificate file is unreadable"},
		{"a.go", "//go:build linux", ""},
		{"a.rs", "/// Shape: width by height.", "Shape: width by height."},
		{"a.ts", " * Decodes a tile.", "Decodes a tile."},
		{"a.yaml", "listen: x # UDP address", "UDP address"},
		{"Makefile", "# Builds.", "Builds."},
		{"a.md", "Plain text", "Plain text"},
		{"a.md", "| --- | --- |", ""},
		{"a.png", "binary", ""},
	} {
		if got := prose(c.name, c.line); strings.TrimSpace(got) != c.want {
			t.Errorf("prose(%s, %q) = %q, want %q", c.name, c.line, got, c.want)
		}
	}
}

func TestLongLines(t *testing.T) {
	long := strings.Repeat("word ", 30)
	files := []file{
		{"a.go", []string{"// " + long, "//go:generate " + long, "// https://" + strings.Repeat("x", 130)}},
		{"a.md", []string{"| " + long, long, "```", long, "```", "<!-- run: " + long, long + " -->", "text"}},
		{"a.json", []string{long}},
		{"b.go", []string{`	return fmt.Errorf("` + long + `", x)`}},
	}
	got := longLines(files)
	if len(got) != 2 || !strings.HasPrefix(got[0], "a.go:1: ") || !strings.HasPrefix(got[1], "a.md:2: ") {
		t.Errorf("longLines = %q", got)
	}
}

func TestLimits(t *testing.T) {
	limits := rates{"core": 1.5}
	if faults := limits.check(rates{"core": 1.6, "rust": 2.0}); len(faults) != 1 ||
		!strings.HasPrefix(faults[0], "core: 1.6") {
		t.Errorf("check = %q", faults)
	}
	if got := limits.lower(rates{"core": 1.8, "rust": 0.4}); got["core"] != 1.5 || got["rust"] != 0.4 {
		t.Errorf("lower = %v", got)
	}
}

func TestReadLimits(t *testing.T) {
	for name, text := range map[string]string{
		"too high": "core 2.1\n", "no number": "core x\n", "NaN": "core NaN\n", "extra field": "core 1 2\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir() + "/limits.txt"
			if err := (rates{}).write(path); err != nil {
				t.Fatal(err)
			}
			if _, err := readLimits(path); err != nil {
				t.Fatal(err)
			}
			writeFile(t, path, text)
			if _, err := readLimits(path); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestSubjectFault(t *testing.T) {
	for text, ok := range map[string]bool{
		"relay: refuse unknown sessions":                          true,
		"relay/limits: compute filter quotas in one place":        true,
		"crew: pool per-frame goroutines":                         true,
		"Relay refuses unknown sessions":                          false,
		"relay: added a test":                                     false,
		"relay: the limits":                                       false,
		"relay: Refuse unknown sessions":                          false,
		"relay: refuse " + strings.Repeat("unknown ", 8) + "ones": false,
	} {
		if got := subjectFault(text); (got == "") != ok {
			t.Errorf("subjectFault(%q) = %q", text, got)
		}
	}
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
