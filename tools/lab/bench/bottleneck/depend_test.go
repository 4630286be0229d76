package bottleneck

import (
	"testing"

	"holocast/internal/programtest"
)

// TestPrograms makes the programs that the tests of this package run inputs of their cached result.
func TestPrograms(t *testing.T) { programtest.Depend(t, "holocast/relay") }
