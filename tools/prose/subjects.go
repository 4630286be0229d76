package main

import (
	"fmt"
	"regexp"
	"strings"
)

// subjectsSince is the date from which commit subjects are checked.
const subjectsSince = "2026-11-25T13:15:00Z"

// maxSubject limits a commit's subject, in characters.
const maxSubject = 72

var (
	subject = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_./, -]*: [a-z][\w-]* \S`)
	// Third person, past tense and gerund, used where an imperative belongs.
	notImperative = regexp.MustCompile(`^(?:adds|added|adding|fixes|fixed|fixing|removes|removed|removing|moves|moved|moving|` +
		`renames|renamed|renaming|changes|changed|changing|updates|updated|updating|uses|used|using|makes|made|making|` +
		`the|a|an|no|new|of|for|in|what|where|when|there|it|is|are|tests|results|figures)$`)
)

// checkSubjects lists the commits since subjectsSince whose subject is not
// "area: imperative" within maxSubject characters.
func checkSubjects() ([]string, error) {
	log, err := git("log", "--no-merges", "--since="+subjectsSince, "--format=%h %s")
	if err != nil {
		return nil, err
	}
	var faults []string
	for line := range strings.Lines(log) {
		commit, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if why := subjectFault(text); why != "" {
			faults = append(faults, fmt.Sprintf("commit %s: %q: %s", commit, text, why))
		}
	}
	return faults, nil
}

// subjectFault returns why a subject is refused, or "".
func subjectFault(text string) string {
	_, rest, _ := strings.Cut(text, ": ")
	verb, _, _ := strings.Cut(rest, " ")
	switch {
	case len([]rune(text)) > maxSubject:
		return fmt.Sprintf("longer than %d characters", maxSubject)
	case !subject.MatchString(text):
		return `want "area: imperative", such as "relay: refuse unknown sessions"`
	case notImperative.MatchString(verb):
		return "want an imperative verb after the area"
	}
	return ""
}
