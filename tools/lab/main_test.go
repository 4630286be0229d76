package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestHelp prints the help of every command, which fails if two flags have one name.
func TestHelp(t *testing.T) {
	var help func(c *cobra.Command)
	help = func(c *cobra.Command) {
		if c.LocalFlags(); c.UsageString() == "" {
			t.Errorf("%s has no help", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			help(sub)
		}
	}
	help(command())
}

// Installed programs must not link plotting, emulated networks, benchmarks or attacks.
func TestInstalledPrograms(t *testing.T) {
	excluded := []string{"gonum.org/v1", "holocast/internal/netlab", "holocast/tools/lab"}
	// The calibration solver needs gonum/mat; see capture-server/calibrate.
	allowed := map[string]string{"holocast/capture-server": "gonum.org/v1/gonum"}
	for _, program := range []string{
		"holocast/capture-server", "holocast/netfunc/controller", "holocast/netfunc/edge", "holocast/relay",
		"holocast/tools/holocast",
	} {
		t.Run(program, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", program).Output()
			if err != nil {
				t.Fatalf("go list: %v", err)
			}
			for dependency := range strings.FieldsSeq(string(out)) {
				in := func(tree string) bool { return dependency == tree || strings.HasPrefix(dependency, tree+"/") }
				if slices.ContainsFunc(excluded, in) && (allowed[program] == "" || !in(allowed[program])) {
					t.Errorf("imports %s", dependency)
				}
			}
		})
	}
}
