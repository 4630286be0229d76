// Package config reads a program's YAML configuration so that its flags can
// override it: the file is loaded first and its values become the flags' defaults.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Flag is the name of the flag that names the file.
const Flag = "config"

// Load looks for --config in args and, where it is given, reads that file over
// into, a pointer to the program's configuration with its defaults set. A setting
// that into does not have is an error with its line.
func Load(args []string, into any) error {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	path := fs.String(Flag, "", "")
	fs.BoolP("help", "h", false, "") // else pflag answers it here
	_ = fs.Parse(args)               // the real flag set reports what is wrong
	if *path == "" {
		return nil
	}
	b, err := os.ReadFile(*path)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if err := Decode(b, into); err != nil {
		return fmt.Errorf("configuration %s: %w", *path, err)
	}
	return nil
}

// Decode reads YAML over into, a pointer to a struct. What the YAML does not name
// keeps its value; a name that into does not have is an error with its line.
func Decode(b []byte, into any) error {
	decoder := yaml.NewDecoder(bytes.NewReader(b))
	decoder.KnownFields(true)
	err := decoder.Decode(into)
	if errors.Is(err, io.EOF) { // nothing but comments
		return nil
	}
	if wrong := (*yaml.TypeError)(nil); errors.As(err, &wrong) {
		var lines []string
		for _, line := range wrong.Errors {
			lines = append(lines, unknownField.ReplaceAllString(line, `unknown setting "$1"`))
		}
		return errors.New(strings.Join(lines, "; "))
	}
	return err
}

// unknownField is how yaml says that a struct lacks a field, in Go's words.
var unknownField = regexp.MustCompile(`field (\S+) not found in type .*`)
