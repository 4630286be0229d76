package api

import (
	"context"
	"math/rand/v2"
	"time"

	"holocast/internal/pause"
)

// Backoff spaces retries. Waits double from Min to Max; up to half of each is subtracted at random so
// that edges do not retry in step.
type Backoff struct {
	Min, Max time.Duration // defaults: 50 ms and 2 s
	next     time.Duration
}

// Wait waits before the next attempt. The only error is ctx.Err().
func (b *Backoff) Wait(ctx context.Context) error {
	lo, hi := b.Min, b.Max
	if lo <= 0 {
		lo = 50 * time.Millisecond
	}
	if hi <= 0 {
		hi = 2 * time.Second
	}
	d := min(max(b.next, lo), hi)
	b.next = 2 * d
	return pause.For(ctx, d-rand.N(d/2+1))
}

// Reset makes the next wait Min again. Call it after a success.
func (b *Backoff) Reset() { b.next = 0 }
