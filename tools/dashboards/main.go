// Command dashboards writes the Grafana dashboards defined in dashboards.go to
// deploy/grafana/dashboards/*.json. Run it in the repository root. With --check it fails if a file
// is out of date.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

const folder = "deploy/grafana/dashboards"

func main() {
	check := flag.Bool("check", false, "fail if a file in "+folder+" is out of date")
	flag.Parse()
	if err := run(*check); err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		os.Exit(1)
	}
}

func run(check bool) error {
	var errs error
	for _, d := range dashboards {
		path := filepath.Join(folder, d.file+".json")
		text := d.json()
		if !check {
			errs = errors.Join(errs, os.WriteFile(path, text, 0o644)) //nolint:gosec // read by Grafana
		} else if old, err := os.ReadFile(path); err != nil || !bytes.Equal(old, text) {
			errs = errors.Join(errs, errors.New(path+" is out of date; run go run ./tools/dashboards"))
		}
	}
	return errs
}
