// Package part validates the selected parts of a benchmark.
package part

import (
	"fmt"
	"slices"
	"strings"
)

// Check returns an error if a selected part is not among the benchmark's parts.
func Check(selected, parts []string) error {
	for _, part := range selected {
		if !slices.Contains(parts, part) {
			return fmt.Errorf("no part %q; want one of %s", part, strings.Join(parts, ", "))
		}
	}
	return nil
}
