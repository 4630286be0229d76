package main

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// phrase is a pattern that rarely occurs in native technical English. Matches of except do
// not count.
type phrase struct {
	pattern, except *regexp.Regexp
}

func pattern(s string) phrase {
	return phrase{pattern: regexp.MustCompile(`(?i)` + s)}
}

func patternExcept(s, except string) phrase {
	p := pattern(s)
	p.except = regexp.MustCompile(`(?i)` + except)
	return p
}

var listed = []phrase{
	// Headless clauses, used where a noun belongs.
	pattern(`\bwhat (?:is|are|was|it|comes|came|others|they|has|had|arrives|arrived|one|a|an|the)\b`),
	pattern(`\b(?:who|what)(?:so)?ever\b`),
	pattern(`\bthose (?:that|of|which|who)\b`),
	pattern(`\b(?:of|for|in|by) (?:which|whom)\b`),
	pattern(`\b[A-Za-z]+ is (?:how (?:long|many|much|far|often)|where|when|why|whether) `),
	pattern(`\bof (?:it|them) that\b`),
	pattern(`\bthere (?:is|are) none\b`),
	patternExcept(`\b[a-z]+ (?:is|are|was|were) no [a-z]+\b`, `^(?:there|that|it|this) |no (?:longer|more|less|one|such|way|need|other|better|worse|different)`),
	// Phrases translated from other languages.
	pattern(`\b(?:is|are|was|were|be|been) told\b`),
	pattern(`\bbeside\b`),
	pattern(`\b(?:goes|go|went|going|gone) on\b`),
	pattern(`\banew\b`),
	pattern(`\ball the same\b`),
	pattern(`\bfor good\b`),
	pattern(`\bof late\b`),
	pattern(`\bin vain\b`),
	pattern(`\bas good as\b`),
	pattern(`\bbe it\b`),
	pattern(`\bfurther ones?\b`),
	pattern(`\bso many\b`),
	pattern(`\b(?:is|are) to (?:be|come|have|do)\b`),
	pattern(`\btaken for\b|\btakes? .{1,20} for a\b`),
	pattern(`\bmostly\b`),
	pattern(`\b(?:no|some|every)body\b`),
	pattern(`\bhas .{1,30} (?:told|looked at|made|sent|dropped|opened)\b`),
	pattern(`\bfor want of\b`),
	pattern(`\bone after the other\b|\bside by side\b`),
	pattern(`\bso that\b`),
	pattern(`\bof (?:its own|ours|theirs)\b`),
	patternExcept(`\bno more\b(?: than)?`, `than$`),
	pattern(`\bsees? to it\b`),
	pattern(`\b(?:is|are) by\b`),
	pattern(`\bnot of\b`),
	pattern(`\bthere is no\w* \w+ that\b`),
	pattern(`\bcame of\b|\bcomes of it\b`),
	pattern(`\bthe like of\b|\band its like\b`),
}

// hits counts the listed phrases in a text.
func hits(text string) int {
	n := 0
	for _, p := range listed {
		for _, m := range p.pattern.FindAllString(text, -1) {
			if p.except == nil || !p.except.MatchString(m) {
				n++
			}
		}
	}
	return n
}

// phrases lists the lines that contain a listed phrase.
func phrases(files []file) []string {
	var found []string
	for _, f := range files {
		for i, line := range f.lines {
			if hits(prose(f.name, line)) > 0 {
				found = append(found, fmt.Sprintf("%s:%d: %s", f.name, i+1, strings.TrimSpace(line)))
			}
		}
	}
	return found
}

var (
	hashComment  = regexp.MustCompile(`(?:^|\s)#\s?(.*)$`)
	slashComment = regexp.MustCompile(`(?:^|\s)//[/!]?\s?(.*)$|^\s*(?:/\*\*?|\*)\s?(.*)$`)
	sentence     = regexp.MustCompile(`"((?:[^"\\]|\\.){24,})"`)
	notProse     = regexp.MustCompile(`go:|nolint|SPDX|https?:`)
)

// prose returns the words of a line that people read: comments and quoted sentences of
// code, comments of scripts and configuration, and all text of documents.
func prose(name, line string) string {
	switch kind(name) {
	case document:
		if strings.HasPrefix(line, "```") || strings.HasPrefix(line, "|--") || strings.HasPrefix(line, "| --") {
			return ""
		}
		return line
	case script:
		if m := hashComment.FindStringSubmatch(line); m != nil {
			return m[1]
		}
		return ""
	case code:
		if notProse.MatchString(line) {
			return ""
		}
		var words []string
		if m := slashComment.FindStringSubmatch(line); m != nil {
			words = append(words, m[1]+m[2])
		}
		for _, m := range sentence.FindAllStringSubmatch(line, -1) {
			if strings.Contains(m[1], " ") {
				words = append(words, m[1])
			}
		}
		return strings.Join(words, " ")
	}
	return ""
}

type fileKind int

const (
	other fileKind = iota
	document
	script
	code
)

func kind(name string) fileKind {
	switch path.Ext(name) {
	case ".md":
		return document
	case ".yaml", ".yml", ".sh", ".py", ".toml", ".conf":
		return script
	case ".go", ".c", ".h", ".rs", ".ts", ".mjs", ".cs", ".shader", ".hlsl":
		return code
	}
	if path.Base(name) == "Makefile" {
		return script
	}
	return other
}

// generated reports whether a file is written by a program or is test data.
func generated(name string) bool {
	for _, s := range []string{"_bpfe", "vmlinux", "/vendor/", "package-lock", "/testdata/", "/node_modules/", "tools/prose/phrases.go"} {
		if strings.Contains(name, s) {
			return true
		}
	}
	return false
}
