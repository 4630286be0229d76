package api

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff spaces attempts: each wait is twice the last, from Min to Max, and a
// random part of up to a half is taken off so that edges do not come together.
type Backoff struct {
	Min, Max time.Duration // 0 stands for 50 ms and 2 s
	next     time.Duration
}

// Wait waits before another attempt; the error is that of ctx.
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
	t := time.NewTimer(d - rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reset starts over after a success.
func (b *Backoff) Reset() { b.next = 0 }
