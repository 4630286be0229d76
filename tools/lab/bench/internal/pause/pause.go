// Package pause waits, as long as a benchmark goes on.
package pause

import (
	"context"
	"time"
)

// For waits for d. It returns early, with ctx's error, when ctx ends.
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
