package config

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"holocast/internal/logqueue"
)

// Log is the log section of a program's configuration.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn or error
	Format string `yaml:"format"` // text or json
}

// Logger is a logger with an adjustable level.
type Logger struct {
	*slog.Logger
	level *slog.LevelVar
}

// brokenPipe receives SIGPIPE, which would otherwise end a program whose log has lost its reader.
// Unlike an ignored signal, it keeps its default effect in child processes.
var brokenPipe = make(chan os.Signal, 1)

// Logger returns a logger to stderr and makes it the default. Logging never blocks, and the program
// keeps running when the log's reader exits. The error names the invalid setting.
func (l Log) Logger() (*Logger, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	level := new(slog.LevelVar)
	o := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(logqueue.Stderr, o)
	if l.Format == "json" {
		h = slog.NewJSONHandler(logqueue.Stderr, o)
	}
	signal.Notify(brokenPipe, syscall.SIGPIPE)
	log := &Logger{slog.New(h), level}
	log.SetLevel(l)
	slog.SetDefault(log.Logger)
	return log, nil
}

// SetLevel applies l's level. l must be valid.
func (log *Logger) SetLevel(l Log) {
	var level slog.Level
	if level.UnmarshalText([]byte(l.Level)) == nil {
		log.level.Set(level)
	}
}

// Validate returns an error that names the invalid setting.
func (l Log) Validate() error {
	var level slog.Level
	if level.UnmarshalText([]byte(l.Level)) != nil {
		return fmt.Errorf("log.level %q: want debug, info, warn or error", l.Level)
	}
	if l.Format != "text" && l.Format != "json" {
		return fmt.Errorf("log.format %q is not text or json", l.Format)
	}
	return nil
}
