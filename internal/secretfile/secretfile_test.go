package secretfile

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no such modes")
	}
	dir := t.TempDir()
	large := strings.Repeat("x", MaxSize)
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string // in the error; "" for none
	}{
		"own":             {"secret", 0o600, ""},
		"of a group":      {"secret", 0o640, ""},
		"read by others":  {"secret", 0o604, "has mode 0604, which lets other users read"},
		"group may write": {"secret", 0o660, "run chmod 600 "},
		"largest":         {large, 0o600, ""},
		"too large":       {large + "x", 0o600, "more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			b, err := Read(path)
			switch {
			case c.want == "" && (err != nil || string(b) != c.text):
				t.Errorf("%d bytes, %v", len(b), err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), path)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if _, err := Read(filepath.Join(dir, "missing")); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestKeyPair(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no such modes")
	}
	path := filepath.Join(t.TempDir(), "both.pem")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := KeyPair(path, path); err == nil || !strings.Contains(err.Error(), "mode 0644") {
		t.Error(err)
	}
}
