// Package config reads a program's YAML configuration so that its flags can
// override it: the file is loaded first and its values become the flags' defaults.
package config

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/goccy/go-yaml"
	"github.com/spf13/pflag"
)

// Flag is the name of the flag that names the file.
const Flag = "config"

// Load looks for --config in args and, where it is given, reads that file over
// into, a pointer to the program's configuration with its defaults set. A setting
// that into does not have is an error naming its line.
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
	// A file of comments alone is a null, which would clear the defaults.
	var what any
	if err := yaml.Unmarshal(b, &what); err == nil && what == nil {
		return nil
	}
	if err := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict()).Decode(into); err != nil {
		return fmt.Errorf("configuration %s: %s", *path, yaml.FormatError(err, false, true))
	}
	return nil
}
