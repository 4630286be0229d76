// Package pause sleeps until something else happens.
package pause

import (
	"context"
	"time"
)

// For sleeps for d, or not at all if d is negative. It returns ctx's error as soon as ctx is done.
func For(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Unless sleeps for d, or not at all if d is negative. It returns as soon as failed delivers an
// error, with that error.
func Unless(failed <-chan error, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case err := <-failed:
		return err
	case <-t.C:
		return nil
	}
}
