// Command metricsdoc writes docs/metrics.md from the code that declares the metrics. Run it in the
// repository root. With --check it fails if the file is out of date.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const page = "docs/metrics.md"

func main() {
	check := flag.Bool("check", false, "fail if "+page+" is out of date")
	flag.Parse()
	if err := run(*check); err != nil {
		fmt.Fprintln(os.Stderr, "metricsdoc:", err)
		os.Exit(1)
	}
}

func run(check bool) error {
	all, err := find(".")
	if err != nil {
		return err
	}
	text := write(all)
	if !check {
		return os.WriteFile(page, text, 0o644) //nolint:gosec // a page of documentation
	}
	if old, err := os.ReadFile(page); err != nil || !bytes.Equal(old, text) {
		return errors.New(page + " is out of date; run go run ./tools/metricsdoc")
	}
	return nil
}

// metric is a declared metric.
type metric struct {
	name, kind, help string
	labels           []string
}

// programs lists the sections of the page by metric prefix.
var programs = []struct{ prefix, title string }{
	{"holocast_relay_", "Relay"},
	{"holocast_capture_", "Capture server"},
	{"holocast_tiles_", "Capture server: 360° tiles"},
	{"holocast_viewer_", "Monitor: viewers"},
	{"holocast_bridge_", "Bridge: LiveScan3D's viewers"},
	{"holocast_edge_", "Edge"},
	{"holocast_controller_", "Controller"},
	{"holocast_log_", "All programs"},
}

// find returns the metrics declared in the Go files below dir, sorted by name.
func find(dir string) (all []metric, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != dir ||
			slices.Contains([]string{"build", "node_modules", "testdata", "bin"}, d.Name())):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all = append(all, inFile(f)...)
		return nil
	})
	slices.SortFunc(all, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	return all, err
}

// inFile finds the metrics that a file declares through service.Metrics or the Prometheus client's
// option types.
func inFile(f *ast.File) (all []metric) {
	prefix := ""
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		fun, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		args := literals(call.Args)
		switch name := fun.Sel.Name; {
		case name == "NewMetrics" && len(args) == 1:
			prefix = args[0]
		case (name == "Gauge" || name == "Counter") && prefix != "" && len(args) >= 2 && len(args) == len(call.Args):
			all = append(all, metric{prefix + args[0], strings.ToLower(name), args[1], args[2:]})
		case len(call.Args) > 0:
			if m, ok := options(call.Args[0]); ok {
				if len(call.Args) > 1 {
					if list, ok := call.Args[1].(*ast.CompositeLit); ok {
						m.labels = literals(list.Elts)
					}
				}
				all = append(all, m)
			}
		}
		return true
	})
	return all
}

// options parses a literal such as prometheus.HistogramOpts{Name: "…", Help: "…"}.
func options(e ast.Expr) (m metric, ok bool) {
	literal, ok := e.(*ast.CompositeLit)
	if !ok {
		return m, false
	}
	t, ok := literal.Type.(*ast.SelectorExpr)
	if !ok || !strings.HasSuffix(t.Sel.Name, "Opts") {
		return m, false
	}
	m.kind = strings.ToLower(strings.TrimSuffix(t.Sel.Name, "Opts"))
	for _, element := range literal.Elts {
		field, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, _ := field.Key.(*ast.Ident)
		value := literals([]ast.Expr{field.Value})
		switch {
		case key == nil || len(value) == 0:
		case key.Name == "Name":
			m.name = value[0]
		case key.Name == "Help":
			m.help = value[0]
		}
	}
	return m, m.name != ""
}

// literals returns the values of the string literals in list.
func literals(list []ast.Expr) (values []string) {
	for _, e := range list {
		if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if s, err := strconv.Unquote(l.Value); err == nil {
				values = append(values, s)
			}
		}
	}
	return values
}

// write renders the page.
func write(all []metric) []byte {
	var b bytes.Buffer
	b.WriteString(`# Metrics

The programs' Prometheus metrics, served under ` + "`/metrics`" + `. Every program also exports metrics of the Go
runtime (` + "`go_`" + `) and the process (` + "`process_`" + `). Alerts:
[holocast.rules.yml](../deploy/prometheus/holocast.rules.yml). This page is generated from the code: ` + "`go run ./tools/metricsdoc`" + `.
`)
	for _, p := range programs {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | |\n| --- | --- | --- | --- |\n", p.title)
		for _, m := range all {
			if strings.HasPrefix(m.name, p.prefix) {
				fmt.Fprintf(
					&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(m.labels, ", "),
					strings.ReplaceAll(m.help, "|", `\|`),
				)
			}
		}
	}
	return b.Bytes()
}
