// Package servicetest has tests that every program must pass.
package servicetest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Check runs "program check FILE" for each configuration and compares the output after the file's
// name with the key: " is valid" with status 0, or line, setting and error with status 1, such as
// `:2: drain: "5" has no unit; write 5s`.
func Check(t *testing.T, program string, configurations map[string]string) {
	t.Helper()
	for want, yaml := range configurations {
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), program, "check", file).CombinedOutput()
		status := 0
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			status = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		wanted := 1
		if want == " is valid" {
			wanted = 0
		}
		if status != wanted || !strings.Contains(string(out), file+want) {
			t.Errorf("%q: status %d, says %q, want %q", yaml, status, out, want)
		}
	}
}
