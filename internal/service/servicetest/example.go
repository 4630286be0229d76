package servicetest

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"holocast/internal/config"
)

var update = flag.Bool("update", false, "rewrite the example configuration file")

// Example fails the test unless file is the example that the table generates for the defaults. With
// go test -update it writes the file instead. defaults is a pointer to the configuration.
func Example(t *testing.T, file, header string, defaults config.Described) {
	t.Helper()
	want, err := defaults.Settings().Example(header, defaults)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from the table of settings; run go test -run %s -update", file, t.Name())
	}
}
