package csvtrace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestColumn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace.csv")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a,mbps\n1,8\n2,NA\n3,16\n")
	if v, err := Column(file, "mbps"); err != nil || len(v) != 2 || v[1] != 2e6 {
		t.Errorf("%v, %v", v, err)
	}
	for text, want := range map[string]string{
		"a,mbps\n": "no measurements", "a,b\n1,2\n": "no column mbps",
		"a,mbps\n1,fast\n": `"fast" is not a throughput`,
	} {
		write(text)
		if _, err := Column(file, "mbps"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
