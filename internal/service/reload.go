package service

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"holocast/internal/config"
)

// reloader loads a program's configuration. Main stores it in the context.
type reloader[C any] func() (C, error)

type reloaderKey struct{}

// OnReload handles SIGHUP until ctx is done or stop is called. It loads the configuration again and
// passes it to apply. current is the configuration at the start. live lists the settings and
// sections that apply handles; changes to others are logged as a warning. A configuration that is
// invalid or that apply rejects is logged and ignored.
func OnReload[C any](ctx context.Context, log *slog.Logger, current C, live []string,
	apply func(C) error,
) (stop func()) {
	load, ok := ctx.Value(reloaderKey{}).(reloader[C])
	if !ok {
		return func() {} // not started by Main
	}
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer signal.Stop(signals)
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
			}
			notifyReloading()
			next, err := load()
			if err == nil {
				err = apply(next)
			}
			if err != nil {
				log.Error("configuration not reloaded", "err", err)
			} else {
				log.Info("configuration reloaded")
				if rest := config.Changed(current, next, live...); rest != nil {
					log.Warn("changed settings take effect after a restart", "settings", strings.Join(rest, ", "))
				}
			}
			notify("READY=1")
		}
	}()
	return func() { cancel(); <-done }
}
