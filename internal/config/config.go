// Package config reads a program's YAML configuration so that its flags can
// override it: the file is loaded first and its values become the flags' defaults.
package config

import (
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
	if err := fs.Parse(args); err != nil || *path == "" {
		return nil // the real flag set reports what is wrong
	}
	f, err := os.Open(*path)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	if err := yaml.NewDecoder(f, yaml.Strict()).Decode(into); err != nil && err != io.EOF {
		return fmt.Errorf("configuration %s: %s", *path, yaml.FormatError(err, false, true))
	}
	return nil
}
