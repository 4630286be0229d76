// Package program finds Holocast's programs for benchmarks.
package program

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// packages maps programs to their packages.
var packages = map[string]string{
	"capture-server": "holocast/capture-server",
	"relay":          "holocast/relay",
	"holocast":       "holocast/tools/holocast",
	"edge":           "holocast/netfunc/edge",
	"controller":     "holocast/netfunc/controller",
}

// Path returns the path of a program: next to this one, or else in folder, where Path builds the
// program if it is missing.
func Path(ctx context.Context, name string, folder func() (string, error)) (string, error) {
	if self, err := os.Executable(); err == nil {
		sibling := filepath.Join(filepath.Dir(self), name)
		if regular(sibling) {
			return sibling, nil
		}
	}
	dir, err := folder()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	if regular(path) {
		return path, nil
	}
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", path, packages[name]).CombinedOutput(); err != nil {
		return "", fmt.Errorf("no %s next to this program, and building it failed: %w\n%s", name, err, out)
	}
	return path, nil
}

func regular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
