package main

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// highest is the largest limit that an area may have, in phrases per 1,000 words.
const highest = 2.0

// area is a part of the repository whose English is rated on its own.
type area struct {
	name string
	has  func(name string) bool
}

var areas = []area{
	{"core", func(n string) bool { return goCode(n) && under(n, "internal/", "relay/", "capture-server/") }},
	{"netfunc", func(n string) bool { return goCode(n) && under(n, "netfunc/") }},
	{"tools", func(n string) bool { return goCode(n) && under(n, "tools/") }},
	{"go-tests", func(n string) bool { return strings.HasSuffix(n, "_test.go") }},
	{"rust", ending(".rs")},
	{"typescript", ending(".ts", ".mjs")},
	{"csharp", ending(".cs", ".shader", ".hlsl")},
	{"c", ending(".c", ".h")},
	{"scripts", ending(".yaml", ".yml", ".sh", ".py", ".toml", ".conf", "Makefile")},
	{"documentation", func(n string) bool { return strings.HasSuffix(n, ".md") && !under(n, "docs/results/") }},
	{"results", func(n string) bool { return strings.HasSuffix(n, ".md") && under(n, "docs/results/") }},
}

func goCode(name string) bool {
	return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
}

func under(name string, folders ...string) bool {
	for _, f := range folders {
		if strings.HasPrefix(name, f) {
			return true
		}
	}
	return false
}

func ending(ends ...string) func(string) bool {
	return func(name string) bool {
		for _, e := range ends {
			if strings.HasSuffix(name, e) {
				return true
			}
		}
		return false
	}
}

// rates holds phrases per 1,000 words by area, rounded up to a tenth.
type rates map[string]float64

func measure(files []file) rates {
	r := rates{}
	for _, a := range areas {
		words, found := 0, 0
		for _, f := range files {
			if !a.has(f.name) {
				continue
			}
			for _, line := range f.lines {
				text := prose(f.name, line)
				words += len(strings.Fields(text))
				found += hits(text)
			}
		}
		if words > 0 {
			r[a.name] = math.Ceil(10*1000*float64(found)/float64(words)) / 10
		}
	}
	return r
}

// readLimits reads lines that each hold an area's name and its limit.
func readLimits(name string) (rates, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	limits := rates{}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		if len(f) != 2 {
			return nil, fmt.Errorf("%s: %q: want an area and a limit", name, s.Text())
		}
		v, err := strconv.ParseFloat(f[1], 64)
		if err != nil || !(v >= 0 && v <= highest) {
			return nil, fmt.Errorf("%s: %q: want a limit from 0 to %.1f", name, s.Text(), highest)
		}
		limits[f[0]] = v
	}
	return limits, nil
}

// check compares rates with their limits.
func (limits rates) check(now rates) []string {
	var faults []string
	for _, a := range areas {
		limit, ok := limits[a.name]
		if !ok {
			limit = highest
		}
		if now[a.name] > limit {
			faults = append(faults, fmt.Sprintf(
				"%s: %.1f listed phrases per 1,000 words; the limit is %.1f (go run ./tools/prose -list)",
				a.name,
				now[a.name],
				limit,
			))
		}
	}
	return faults
}

// lower returns, for each area, the lower of its limit and its current rate.
func (limits rates) lower(now rates) rates {
	lowered := rates{}
	for _, a := range areas {
		limit, ok := limits[a.name]
		if !ok {
			limit = highest
		}
		lowered[a.name] = min(limit, now[a.name])
	}
	return lowered
}

func (limits rates) write(name string) error {
	var b strings.Builder
	b.WriteString("# Limits of listed phrases per 1,000 words, by area. They only fall:\n")
	b.WriteString("# go run ./tools/prose -update\n")
	for _, a := range areas {
		fmt.Fprintf(&b, "%-14s %.1f\n", a.name, limits[a.name])
	}
	return os.WriteFile(name, []byte(b.String()), 0o644)
}
