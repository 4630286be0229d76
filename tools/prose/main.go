// Command prose checks the repository's English and its line lengths, and the subjects of
// its commits. It is part of make lint.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const usage = `prose checks comments, messages and documentation for phrases that native engineers avoid,
source files for lines over 120 columns, and commit subjects for their form.

  prose            check the tree, as make lint does
  prose -list      also print every line that contains such a phrase
  prose -update    lower the limits in tools/prose/limits.txt to today's rates
  prose PATH...    print such lines of these files and folders

Flags:
`

// limitsFile holds each area's limit in phrases per 1,000 words.
const limitsFile = "tools/prose/limits.txt"

func main() {
	list := flag.Bool("list", false, "print every line that contains a listed phrase")
	update := flag.Bool("update", false, "lower the limits to today's rates")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(*list, *update, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(1)
	}
}

func run(list, update bool, paths []string) error {
	top, err := git("rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if err := os.Chdir(strings.TrimSpace(top)); err != nil {
		return err
	}
	names, err := git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	files, err := read(strings.Split(strings.Trim(names, "\x00"), "\x00"))
	if err != nil {
		return err
	}
	if len(paths) > 0 {
		files = below(files, paths)
	}
	if list || len(paths) > 0 {
		for _, h := range phrases(files) {
			fmt.Println(h)
		}
	}
	if len(paths) > 0 {
		return nil
	}
	rates := measure(files)
	limits, err := readLimits(limitsFile)
	if err != nil {
		return err
	}
	if update {
		return limits.lower(rates).write(limitsFile)
	}
	subjects, err := checkSubjects()
	if err != nil {
		return err
	}
	if faults := slices.Concat(limits.check(rates), longLines(files), subjects); len(faults) > 0 {
		return errors.New(strings.Join(faults, "\n"))
	}
	return nil
}

// file is a text file of the repository.
type file struct {
	name  string
	lines []string
}

// read returns the text files among names. Files deleted from the working tree are skipped.
func read(names []string) ([]file, error) {
	var files []file
	for _, name := range names {
		if name == "" || generated(name) {
			continue
		}
		info, err := os.Lstat(name)
		if errors.Is(err, os.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if bytes.IndexByte(b, 0) >= 0 {
			continue
		}
		files = append(files, file{filepath.ToSlash(name), strings.Split(string(b), "\n")})
	}
	return files, nil
}

// below returns the files named by paths or inside them.
func below(files []file, paths []string) []file {
	var kept []file
	for _, f := range files {
		for _, p := range paths {
			p = filepath.ToSlash(filepath.Clean(p))
			if p == "." || f.name == p || strings.HasPrefix(f.name, p+"/") {
				kept = append(kept, f)
				break
			}
		}
	}
	return kept
}

func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return "", fmt.Errorf("git %s: %s", args[0], bytes.TrimSpace(failed.Stderr))
	}
	return string(out), err
}
