package main

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// columns limits the length of a line; a tab counts as one.
const columns = 120

// literal matches long string literals. They count as 40 columns, because a message split over
// lines cannot be searched for.
var literal = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.){40,}\"|`[^`]{40,}`|'(?:[^'\\\\]|\\\\.){40,}'")

// longLines lists the source lines over the limit. It skips unwrappable text: tables, code
// blocks and images of documents, URLs, and the Go tool's directives.
func longLines(files []file) []string {
	var faults []string
	for _, f := range files {
		if kind(f.name) == other {
			continue
		}
		block := false // inside a code block or comment of a document
		for i, line := range f.lines {
			if kind(f.name) == document {
				switch {
				case strings.HasPrefix(line, "```"):
					block = !block
				case strings.HasPrefix(line, "<!--"):
					block = true
				}
				inside := block
				if strings.HasSuffix(line, "-->") {
					block = false
				}
				if inside {
					continue
				}
			}
			text := line
			if kind(f.name) != document {
				text = literal.ReplaceAllString(line, strings.Repeat("x", 40))
			}
			if n := utf8.RuneCountInString(text); n > columns && wrappable(f.name, line) {
				faults = append(faults, fmt.Sprintf("%s:%d: %d columns; the limit is %d", f.name, i+1, n, columns))
			}
		}
	}
	return faults
}

func wrappable(name, line string) bool {
	text := strings.TrimSpace(line)
	switch {
	case strings.HasPrefix(text, "//go:"), strings.HasPrefix(text, "//nolint"):
		return false
	case kind(name) == document && strings.HasPrefix(text, "|"), strings.HasPrefix(text, "!["):
		return false
	}
	longest := 0
	for _, word := range strings.Fields(text) {
		longest = max(longest, utf8.RuneCountInString(word))
	}
	return longest < columns/2
}
