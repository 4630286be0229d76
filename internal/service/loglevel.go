package service

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"holocast/internal/logqueue"
)

// LogLevel adds the flag --log-level, by default warn, to a command and its subcommands. They then
// log as text to standard error.
func LogLevel(c *cobra.Command) {
	level := c.PersistentFlags().String("log-level", "warn", "debug, info, warn or error")
	c.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		var l slog.Level
		if err := l.UnmarshalText([]byte(*level)); err != nil {
			return fmt.Errorf("--log-level %q: want debug, info, warn or error", *level)
		}
		w := cmd.ErrOrStderr()
		if w == os.Stderr {
			w = logqueue.Stderr
		}
		slog.SetDefault(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: l})))
		return nil
	}
}
