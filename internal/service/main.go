package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"holocast/internal/config"
)

// Main runs a program: it loads the file of --config over the defaults in cfg, makes the
// command line, whose flags write to cfg, and executes it. An error goes to stderr after the
// program's name and ends the process with status 1, unless it is the cancellation by a signal. Signals are as in [Context].
func Main[C any](name string, cfg *C, command func(*C) *cobra.Command) {
	ctx, stop := Context()
	defer stop()
	err := config.Load(os.Args[1:], cfg)
	if err == nil {
		err = command(cfg).ExecuteContext(ctx)
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return // asked to stop, whatever it was doing
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// Context returns a context that SIGINT or SIGTERM ends. By then the signals have their
// default effect again: a second one ends the process at once. stop ends the context, too.
func Context() (ctx context.Context, stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case <-signals:
		case <-ctx.Done():
		}
		signal.Stop(signals)
		cancel()
	}()
	return ctx, cancel
}
