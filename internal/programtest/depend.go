package programtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Depend records the sources of Go programs as inputs of a test's result, so go test repeats the test
// after a change instead of its cached result. Build does so for the tests that start its programs.
func Depend(t testing.TB, packages ...string) {
	t.Helper()
	names, err := sources(packages)
	if err != nil {
		t.Fatal(err)
	}
	record(names)
}

// built holds the sources of the programs that Build built. The first test that starts one records them,
// as go test records nothing before the tests run.
var built struct {
	sync.Mutex
	names []string
}

func recordBuilt() {
	built.Lock()
	defer built.Unlock()
	record(built.names)
	built.names = nil
}

// record makes go test record the sizes and times of files.
func record(names []string) {
	for _, name := range names {
		_, _ = os.Stat(name) // go.work may be missing
	}
}

// files is a template for go list. No file of the module has a space in its name.
const files = `{{if not .Standard}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}
{{end}}{{range .CgoFiles}}{{$d}}/{{.}}
{{end}}{{range .CFiles}}{{$d}}/{{.}}
{{end}}{{range .HFiles}}{{$d}}/{{.}}
{{end}}{{range .SFiles}}{{$d}}/{{.}}
{{end}}{{range .EmbedFiles}}{{$d}}/{{.}}
{{end}}{{end}}`

// sources returns the files of this module from which programs are built.
func sources(packages []string) (names []string, err error) {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOMOD: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(mod)))
	c := exec.Command("go", append([]string{"list", "-deps", "-f", files}, packages...)...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", strings.Join(packages, " "), err)
	}
	for _, name := range strings.Fields(string(out)) {
		if strings.HasPrefix(name, root+string(filepath.Separator)) {
			names = append(names, name)
		}
	}
	for _, name := range []string{"go.mod", "go.sum", "go.work"} {
		names = append(names, filepath.Join(root, name))
	}
	return names, nil
}
