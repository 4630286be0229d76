package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holocast/internal/config"
	"holocast/internal/logqueue"
)

// Settings is a program's configuration.
type Settings[C any] interface {
	*C
	// Validate returns an error that begins with the name of the invalid setting.
	Validate() error
}

// program is the program that Main runs.
type program[C any, P Settings[C]] struct {
	defaults func() C
	command  func(P) *cobra.Command
}

// Main runs a program. It loads the --config file over the defaults, creates the command line,
// whose flags write to the configuration, adds the command "check FILE", and executes it. An error
// other than cancellation by a signal is printed to stderr after the program's name and exits with
// status 1. For signals see [Context] and, for SIGHUP, [OnReload]; for memory [LimitMemory].
func Main[C any, P Settings[C]](name string, defaults func() C, command func(P) *cobra.Command) {
	ctx, stop := Context()
	defer stop()
	LimitMemory(0)
	err := (&program[C, P]{defaults, command}).run(ctx)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil { // stopped by a signal
		err = nil
	}
	Exit(name, err)
}

// flushLimit bounds the wait for an unread log.
const flushLimit = time.Second

// Exit writes the rest of the log. It prints an error to stderr after the program's name and exits
// with status 1; without an error it returns.
func Exit(name string, err error) {
	if err != nil {
		fmt.Fprintln(logqueue.Stderr, name+":", err)
	}
	logqueue.Stderr.Flush(flushLimit)
	if err != nil {
		os.Exit(1)
	}
}

func (p *program[C, P]) run(ctx context.Context) error {
	cfg := p.defaults()
	file, err := config.Load(os.Args[1:], &cfg)
	if err != nil {
		return err
	}
	c := p.command(&cfg)
	c.CompletionOptions.DisableDefaultCmd = true // packages contain completions
	c.AddCommand(p.checkCommand())
	Document(c)
	executed, err := c.ExecuteContextC(context.WithValue(ctx, reloaderKey{}, reloader[C](p.load)))
	return locate(file, executed, err)
}

// load loads the configuration again, as the running command would.
func (p *program[C, P]) load() (C, error) {
	cfg := p.defaults()
	file, err := config.Load(os.Args[1:], &cfg)
	if err != nil {
		return cfg, err
	}
	c, args, err := p.command(&cfg).Find(os.Args[1:])
	if err == nil {
		err = c.ParseFlags(args)
	}
	if err == nil && c.PreRunE != nil {
		err = c.PreRunE(c, c.Flags().Args())
	}
	return cfg, locate(file, c, err)
}

// locate adds file and line to an error, unless flags may have caused it.
func locate(file string, c *cobra.Command, err error) error {
	fromFlags := false
	c.Flags().Visit(func(f *pflag.Flag) { fromFlags = fromFlags || f.Name != config.Flag })
	if fromFlags {
		return err
	}
	return config.Locate(file, err)
}

func (p *program[C, P]) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file",
		Long: `Check a configuration file.

An error names the file, the line and the setting. Files that the configuration names are
not read, and no address is tried.`,
		Args: Arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg := p.defaults()
			if err := config.Read(args[0], &cfg); err != nil {
				return err
			}
			if err := config.Locate(args[0], P(&cfg).Validate()); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), args[0]+" is valid")
			return err
		},
	}
}

// ErrInterrupted is the cause with which Context is cancelled after SIGINT, which a user at a
// terminal sends.
var ErrInterrupted = fmt.Errorf("interrupted: %w", context.Canceled)

// Context returns a context that is cancelled on SIGINT or SIGTERM, after notifying the service
// manager. From then on the signals have their default effect, so a second one terminates the
// process. stop also cancels the context.
func Context() (ctx context.Context, stop context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		var cause error
		select {
		case s := <-signals:
			notify("STOPPING=1") // before the program can exit
			if s == os.Interrupt {
				cause = ErrInterrupted
			}
		case <-ctx.Done():
		}
		signal.Stop(signals)
		cancel(cause)
	}()
	return ctx, func() { cancel(nil) }
}
