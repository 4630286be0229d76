package config

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Main runs a program: it loads the configuration over the defaults in cfg and executes
// the command line made of it, until that ends; SIGINT and SIGTERM end its context.
func Main[C any](name string, cfg C, command func(C) *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := Load(os.Args[1:], &cfg)
	if err == nil {
		err = command(cfg).ExecuteContext(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

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

// Version is what --version prints of a program with these parts: the protocol it
// speaks, what its build has.
func Version(parts ...string) string {
	version := "development"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	if len(parts) == 0 {
		return version
	}
	return version + " (" + strings.Join(parts, "; ") + ")"
}
