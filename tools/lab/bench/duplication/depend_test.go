package duplication

import (
	"testing"

	"holocast/internal/programtest"
)

// TestPrograms makes the programs that the tests of this package run inputs of their cached result.
func TestPrograms(t *testing.T) {
	programtest.Depend(t, "holocast/capture-server", "holocast/netfunc/edge", "holocast/netfunc/controller",
		"holocast/tools/holocast", "holocast/relay")
}
