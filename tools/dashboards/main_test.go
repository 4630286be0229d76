package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func TestFilesAreCurrent(t *testing.T) {
	t.Chdir(root)
	if err := run(true); err != nil {
		t.Error(err)
	}
	files, err := filepath.Glob(folder + "/*.json")
	if err != nil || len(files) != len(dashboards) {
		t.Errorf("%d files for %d dashboards (%v)", len(files), len(dashboards), err)
	}
}

// TestMetricsAreDeclared checks that every metric used in a dashboard or alert is declared by a
// program.
func TestMetricsAreDeclared(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(slices.Values(metricNames(t))) {
		declared := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if !strings.Contains(string(page), "| `"+declared+"` |") && !strings.Contains(string(page), "| `"+name+"` |") {
			t.Errorf("no program declares %s", name)
		}
	}
}

// queries returns the panels' queries in the form that Grafana sends to Prometheus.
func queries() (all []string) {
	fill := strings.NewReplacer("$instance", ".*", "$__rate_interval", "10s")
	for _, d := range dashboards {
		for _, r := range d.rows {
			for _, p := range r.panels {
				for _, q := range p.from {
					all = append(all, fill.Replace(q.expr))
				}
			}
		}
	}
	return all
}

var metricName = regexp.MustCompile(`\bholocast_[a-z_]+`)

func metricNames(t *testing.T) (names []string) {
	t.Helper()
	rules, err := os.ReadFile(root + "/deploy/prometheus/holocast.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?s)expr: (.*?)\n +(?:for|labels):`).FindAllStringSubmatch(string(rules), -1) {
		names = append(names, metricName.FindAllString(m[1], -1)...)
	}
	for _, q := range queries() {
		names = append(names, metricName.FindAllString(q, -1)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
