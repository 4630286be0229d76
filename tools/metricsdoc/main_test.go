package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The page must be up to date. Every metric needs a prefix, a help text and, if it is a counter,
// the suffix _total.
func TestPageIsCurrent(t *testing.T) {
	all, err := find("../..")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	if string(write(all)) != string(page) {
		t.Error("docs/metrics.md is out of date; run go run ./tools/metricsdoc")
	}
	for _, m := range all {
		known := slices.ContainsFunc(
			programs, func(p struct{ prefix, title string }) bool { return strings.HasPrefix(m.name, p.prefix) },
		)
		if !known || m.help == "" || (m.kind == "counter") != strings.HasSuffix(m.name, "_total") {
			t.Errorf("%+v", m)
		}
	}
}

// Alerts may use only declared metrics and labels.
func TestAlertsNameMetrics(t *testing.T) {
	all, err := find("../..")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile("../../deploy/prometheus/holocast.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`\b(holocast_[a-z_]+)(?:\{(\w+)=)?`).FindAllStringSubmatch(string(rules), -1)
	if len(found) < 16 {
		t.Errorf("only %d metrics in the alerts", len(found))
	}
	for _, f := range found {
		i := slices.IndexFunc(all, func(m metric) bool { return m.name == f[1] })
		if i < 0 {
			t.Errorf("no program has the metric %s", f[1])
		} else if f[2] != "" && !slices.Contains(all[i].labels, f[2]) {
			t.Errorf("%s has no label %s", f[1], f[2])
		}
	}
}
