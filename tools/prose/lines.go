package main

import (
	"fmt"
	"iter"
	"regexp"
	"strings"
	"unicode/utf8"
)

// columns limits the length of a line; a tab counts as one column.
const columns = 120

// literal matches long string literals. They count as 40 columns, because a message that is split
// over lines cannot be searched for.
var literal = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.){40,}\"|`[^`]{40,}`|'(?:[^'\\\\]|\\\\.){40,}'")

// longLines lists the source lines over the limit. It skips text that cannot be wrapped: tables,
// code blocks and images in documents, URLs, and the Go tool's directives.
func longLines(files []file) []string {
	var faults []string
	check := func(f file, i int, text string) {
		if n := utf8.RuneCountInString(text); n > columns && wrappable(f.name, f.lines[i]) {
			faults = append(faults, fmt.Sprintf("%s:%d: %d columns; the limit is %d", f.name, i+1, n, columns))
		}
	}
	for _, f := range files {
		switch kind(f.name) {
		case document:
			for i, line := range outsideBlocks(f.lines) {
				check(f, i, line)
			}
		case script, code:
			for i, line := range f.lines {
				check(f, i, literal.ReplaceAllString(line, strings.Repeat("x", 40)))
			}
		}
	}
	return faults
}

// outsideBlocks yields the lines of a document outside code blocks and comments.
func outsideBlocks(lines []string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		fence, comment := false, false
		for i, line := range lines {
			fenceLine := strings.HasPrefix(line, "```")
			comment = comment || strings.HasPrefix(line, "<!--")
			if fenceLine {
				fence = !fence
			}
			if !fence && !fenceLine && !comment && !yield(i, line) {
				return
			}
			comment = comment && !strings.HasSuffix(line, "-->")
		}
	}
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
