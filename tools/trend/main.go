// Command trend tracks benchmark figures over time. It appends the results of "holocast-lab bench
// --out" to a history of one JSON object per run and renders it as a page with one row per figure.
//
//	go run ./tools/trend --commit abc1234 --history trend.jsonl --page index.html build/bench/*.json
//
// benchstat does not suffice, since it compares sets of Go benchmark output and keeps no history.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// keep limits the history to a year of nightly runs.
const keep = 365

// Run is one line of the history.
type Run struct {
	Time    time.Time          `json:"time"`
	Commit  string             `json:"commit"`
	Figures map[string]float64 `json:"figures"` // for example codec.nfov.a.encode_ms
}

func main() {
	commit := flag.String("commit", "", "measured commit")
	history := flag.String("history", "trend.jsonl", "history to append to; created if missing")
	page := flag.String("page", "", "HTML page to write")
	flag.Parse()
	if err := run(time.Now().UTC(), *commit, *history, *page, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "trend:", err)
		os.Exit(1)
	}
}

func run(now time.Time, commit, history, page string, results []string) error {
	if commit == "" || len(results) == 0 {
		return errors.New("--commit and benchmark results (build/bench/*.json) are required")
	}
	runs, err := read(history)
	if err != nil {
		return err
	}
	added := Run{Time: now.Truncate(time.Second), Commit: commit, Figures: map[string]float64{}}
	for _, file := range results {
		if err := added.add(file); err != nil {
			return err
		}
	}
	runs = append(runs, added)
	runs = runs[max(0, len(runs)-keep):]
	var lines bytes.Buffer
	for _, r := range runs {
		if err := json.NewEncoder(&lines).Encode(r); err != nil {
			return err
		}
	}
	if err := replace(history, lines.Bytes()); err != nil || page == "" {
		return err
	}
	html, err := draw(runs)
	if err != nil {
		return err
	}
	return replace(page, html)
}

// replace writes a file atomically.
func replace(name string, b []byte) error {
	if err := os.WriteFile(name+".new", b, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// read returns a history's runs, oldest first.
func read(name string) (runs []Run, err error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for n := 1; lines.Scan(); n++ {
		var r Run
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		runs = append(runs, r)
	}
	return runs, lines.Err()
}

// add adds the figures of one result file.
func (r *Run) add(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var result struct {
		Result any `json:"result"`
	}
	if err := json.Unmarshal(b, &result); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	before := len(r.Figures)
	r.flatten(strings.TrimSuffix(filepath.Base(file), ".json"), result.Result)
	if len(r.Figures) == before {
		return fmt.Errorf("%s contains no figures: is it a result of holocast-lab bench --out?", file)
	}
	return nil
}

// flatten names the numbers of a JSON value by their path. It skips lists, which are time series of
// one run.
func (r *Run) flatten(name string, v any) {
	switch v := v.(type) {
	case float64:
		r.Figures[name] = v
	case map[string]any:
		for key, below := range v {
			r.flatten(name+"."+key, below)
		}
	}
}

// Line is one figure over time.
type Line struct {
	Name   string
	Newest float64
	Before string  // median of the ten previous runs; "" if there are none
	Change float64 // change of Newest relative to the median, in percent
	Moved  bool    // beyond the usual spread
	Points string  // points of an SVG polyline
	Ends   string  // number of runs and range of values, for the tooltip
}

const width, height = 240.0, 32.0

// lines returns a line for each figure of the newest run.
func lines(runs []Run) (out []Line) {
	newest := runs[len(runs)-1]
	for _, name := range slices.Sorted(maps.Keys(newest.Figures)) {
		var at []int
		var values []float64
		for i, r := range runs {
			if v, ok := r.Figures[name]; ok {
				at, values = append(at, i), append(values, v)
			}
		}
		low, high := slices.Min(values), slices.Max(values)
		l := Line{Name: name, Newest: newest.Figures[name], Ends: fmt.Sprintf("%d runs, %.4g to %.4g", len(values), low,
			high)}
		var points []string
		for i, v := range values {
			x, y := width/2, height/2
			if len(runs) > 1 {
				x = width * float64(at[i]) / float64(len(runs)-1)
			}
			if high > low {
				y = height * (1 - (v-low)/(high-low))
			}
			points = append(points, fmt.Sprintf("%.1f,%.1f", x, y))
		}
		l.Points = strings.Join(points, " ")
		if before := values[max(0, len(values)-11) : len(values)-1]; len(before) > 0 {
			middle := median(before)
			l.Before = fmt.Sprintf("%.4g", middle)
			if middle != 0 {
				l.Change = 100 * (l.Newest - middle) / math.Abs(middle)
			}

			// Runners differ from night to night, so ignore changes of up to three times the median
			// deviation or 10 %.
			distances := make([]float64, len(before))
			for i, v := range before {
				distances[i] = math.Abs(v - middle)
			}
			l.Moved = len(before) >= 5 && math.Abs(l.Newest-middle) > 3*median(distances) && math.Abs(l.Change) > 10
		}
		out = append(out, l)
	}
	return out
}

func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
