package main

import (
	"strings"
	"testing"
)

func TestWrap(t *testing.T) {
	long := strings.Repeat("word ", 40) + "end"
	in := "# Title\n\n" + long + "\n\n| " + long + " |\n![" + long + "](x.svg)\n```sh\n" + long + "\n```\n" +
		strings.Repeat("x", 116) + " - is no list item\n"
	got := wrap(in)
	if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(in), " ") {
		t.Errorf("the words differ: %s", got)
	}
	for i, want := range []string{
		"# Title", "", strings.TrimSpace(strings.Repeat("word ", 24)), strings.Repeat("word ", 16) + "end", "",
		"| " + long + " |", "![" + long + "](x.svg)", "```sh", long, "```",
		strings.Repeat("x", 116) + " -", "is no list item",
	} {
		if line := strings.Split(got, "\n")[i]; line != want {
			t.Errorf("line %d: %q, want %q", i+1, line, want)
		}
	}
}
