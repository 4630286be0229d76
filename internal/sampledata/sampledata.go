// Package sampledata locates the recordings of real sensors that the demo, tests and benchmarks use.
package sampledata

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrNotFound is returned on a machine without sample data.
var ErrNotFound = errors.New("no data: HOLOCAST_DATA is not set and ../shared/data does not exist")

// Find returns the folder in HOLOCAST_DATA, or else shared/data next to the source tree.
func Find() (string, error) {
	if dir := os.Getenv("HOLOCAST_DATA"); dir != "" {
		if _, err := os.Stat(dir); err != nil {
			return "", fmt.Errorf("HOLOCAST_DATA: %w", err)
		}
		return dir, nil
	}
	candidates := []string{filepath.Join("..", "shared", "data")}
	if self, err := os.Executable(); err == nil {
		candidates = append(candidates, filepath.Join(filepath.Dir(self), "..", "..", "shared", "data"))
	}
	for _, dir := range candidates {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir, nil
		}
	}
	return "", ErrNotFound
}
