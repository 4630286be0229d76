package programtest

import (
	"os"
	"strings"
	"testing"
)

// TestSources checks that a program's inputs are the files of this module that it contains, with embedded
// ones, and that they exist.
func TestSources(t *testing.T) {
	names, err := sources([]string{"holocast/relay"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"/go.mod", "/relay/main.go", "/internal/moqt/session.go", "/relay/fastpath/kernel/fastpath_bpfel.o",
	} {
		found := false
		for _, name := range names {
			found = found || strings.HasSuffix(name, want)
		}
		if !found {
			t.Errorf("no %s among %d inputs", want, len(names))
		}
	}
	for _, name := range names {
		if _, err := os.Stat(name); err != nil && !strings.HasSuffix(name, "/go.work") {
			t.Error(err)
		}
	}
}
