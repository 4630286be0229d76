package filestate

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestChanges(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, change := range map[string]func(path string) error{
		"content":    func(path string) error { return os.WriteFile(path, []byte("three"), 0o600) },
		"permission": func(path string) error { return os.Chmod(path, 0o640) },
		"removal":    os.Remove,
		"another file of the same size and time": func(path string) error {
			if err := os.WriteFile(path+".new", []byte("two"), 0o600); err != nil {
				return err
			}
			if err := os.Chtimes(path+".new", at, at); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		},
		"another target": func(path string) error {
			if err := os.WriteFile(path+".new", []byte("two"), 0o600); err != nil {
				return err
			}
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Symlink(path+".new", path)
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, []byte("one"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
			before := Of(path)
			if Of(path) != before || before == (State{}) {
				t.Error("the state changes by itself")
			}
			if err := change(path); err != nil {
				t.Fatal(err)
			}
			if Of(path) == before {
				t.Error("the change is not detected")
			}
		})
	}
	if Of(filepath.Join(t.TempDir(), "none")) != (State{}) {
		t.Error("a missing file has a state")
	}
}
