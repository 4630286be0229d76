package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Each run extends the history, and the page highlights changed figures.
func TestTrend(t *testing.T) {
	dir := t.TempDir()
	history, page, result := filepath.Join(dir, "trend.jsonl"), filepath.Join(dir, "index.html"),
		filepath.Join(dir, "codec.json")
	night := time.Date(2026, 11, 1, 2, 0, 0, 0, time.UTC)
	measure := func(encode float64) {
		t.Helper()
		text := fmt.Sprintf(`{"command": "holocast-lab bench codec", "result": {"source": "synthetic", "nfov": {"a": {"encode_ms": %g, "bytes_per_point": 1.5}, "series": [1, 2]}}}`, encode)
		if err := os.WriteFile(result, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		night = night.AddDate(0, 0, 1)
		if err := run(night, "abc1234", history, page, []string{result}); err != nil {
			t.Fatal(err)
		}
	}
	for _, encode := range []float64{5, 5.1, 4.9, 5.05, 5, 4.95} {
		measure(encode)
	}
	runs, err := read(history)
	if err != nil || len(runs) != 6 || !runs[5].Time.Equal(night) {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	if got := lines(runs); len(got) != 2 || got[0].Name != "codec.nfov.a.bytes_per_point" || got[0].Moved ||
		got[1].Moved {
		t.Errorf("%+v", got)
	}
	measure(7)
	runs, err = read(history)
	if err != nil {
		t.Fatal(err)
	}
	got := lines(runs)[1]
	if !got.Moved || got.Before != "5" || got.Change < 39.9 || got.Change > 40.1 || strings.Count(got.Points,
		",") != 7 {
		t.Errorf("%+v", got)
	}
	html, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(html),
		`<tr class="moved"><td>codec.nfov.a.encode_ms<td>7<td>5<td>&#43;40.0 %`) {
		t.Errorf("%v\n%s", err, html)
	}
}

func TestTrendRefuses(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	good := file("good.json", `{"result": {"a": 1}}`)
	for name, c := range map[string]struct {
		commit, history string
		results         []string
		want            string
	}{
		"no commit":  {"", "none", []string{good}, "--commit"},
		"no results": {"abc", "none", nil, "benchmark results"},
		"no file":    {"abc", "none", []string{filepath.Join(dir, "missing.json")}, "no such file"},
		"no figures": {"abc", "none", []string{file("text.json", `{"result": {"a": "b"}}`)}, "no figures"},
		"no JSON":    {"abc", "none", []string{file("broken.json", `{`)}, "broken.json: "},
		"damaged":    {"abc", file("history", "{}\nx\n"), []string{good}, "history:2: "},
	} {
		if c.history == "none" {
			c.history = filepath.Join(dir, "none.jsonl")
		}
		if err := run(time.Unix(0, 0), c.commit, c.history, "", c.results); err == nil || !strings.Contains(err.Error(),
			c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "none.jsonl")); err == nil {
		t.Error("the history contains a failed run")
	}
}

// A history is limited to keep runs.
func TestHistoryLimit(t *testing.T) {
	dir := t.TempDir()
	history := filepath.Join(dir, "trend.jsonl")
	if err := os.WriteFile(history, []byte(strings.Repeat(`{"commit": "old", "figures": {}}`+"\n", keep)),
		0o600); err != nil {
		t.Fatal(err)
	}
	result := filepath.Join(dir, "a.json")
	if err := os.WriteFile(result, []byte(`{"result": {"a": 1}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(time.Unix(0, 0), "new", history, filepath.Join(dir, "page.html"), []string{result}); err != nil {
		t.Fatal(err)
	}
	if runs, err := read(history); err != nil || len(runs) != keep || runs[keep-1].Commit != "new" ||
		runs[0].Commit != "old" {
		t.Errorf("%d runs, %v", len(runs), err)
	}
}
