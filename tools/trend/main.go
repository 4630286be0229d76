// Command trend keeps the figures of benchmarks over time. It adds what "holocast-lab bench --out" wrote to a
// history, a JSON object a line, and draws the page of it: a line for each figure.
//
//	go run ./tools/trend --commit abc1234 --history trend.jsonl --page index.html build/bench/*.json
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

// keep is how many runs a history holds: a year of nights.
const keep = 365

// Run is a line of the history.
type Run struct {
	Time    time.Time          `json:"time"`
	Commit  string             `json:"commit"`
	Figures map[string]float64 `json:"figures"` // codec.nfov.a.encode_ms, for example
}

func main() {
	commit := flag.String("commit", "", "the commit that was measured")
	history := flag.String("history", "trend.jsonl", "history to add to; made where it is missing")
	page := flag.String("page", "", "HTML page to write of the history")
	flag.Parse()
	if err := run(time.Now().UTC(), *commit, *history, *page, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "trend:", err)
		os.Exit(1)
	}
}

func run(now time.Time, commit, history, page string, results []string) error {
	if commit == "" || len(results) == 0 {
		return errors.New("--commit and the results of benchmarks are needed: build/bench/*.json")
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

// replace writes a file whole, or leaves what was there.
func replace(name string, b []byte) error {
	if err := os.WriteFile(name+".new", b, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// read returns the runs of a history, oldest first.
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

// add takes in the figures of a benchmark's file.
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
		return fmt.Errorf("%s has no figures: is it a result of holocast-lab bench --out?", file)
	}
	return nil
}

// flatten names the numbers of a JSON value by their way. Lists are series of a run, and left out.
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
	Before string  // median of the ten runs before; "" without any
	Change float64 // of the newest against that, percent
	Moved  bool    // by more than the usual spread
	Points string  // of an SVG polyline
	Ends   string  // where it begins and what it spans, in words
}

const width, height = 240.0, 32.0

// lines makes the figures of the newest run into lines.
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
		l := Line{Name: name, Newest: newest.Figures[name], Ends: fmt.Sprintf("%d runs, %.4g to %.4g", len(values), low, high)}
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
			// A runner is another machine each night: less than three times the usual distance from the
			// median says nothing.
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
