package config

import (
	"fmt"
	"log/slog"
	"os"
)

// Log is the log section of a program's configuration.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn or error
	Format string `yaml:"format"` // text or json
}

// Logger returns a logger to stderr; the error names the setting that is wrong.
func (l Log) Logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return nil, fmt.Errorf("log.level %q is not debug, info, warn or error", l.Level)
	}
	o := &slog.HandlerOptions{Level: level}
	switch l.Format {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, o)), nil
	}
	return nil, fmt.Errorf("log.format %q is not text or json", l.Format)
}
