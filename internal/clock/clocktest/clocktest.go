// Package clocktest has times as a program reads them after its wall clock was stepped, for tests
// of what has to go by the monotonic clock.
package clocktest

import (
	"time"
	"unsafe"
)

// Bits of time.Time's first word: a flag for a monotonic reading, seconds of the wall clock, and
// nanoseconds. The monotonic reading is another word.
const (
	hasMonotonic = 1 << 63
	second       = 1 << 30
)

// Step returns t as time.Now would have returned it if the wall clock had been stepped by d,
// whole seconds, before. t comes from time.Now.
func Step(t time.Time, d time.Duration) time.Time {
	word := (*uint64)(unsafe.Pointer(&t))
	if *word&hasMonotonic == 0 {
		panic("clocktest: a time without a monotonic reading")
	}
	*word += uint64(int64(d/time.Second) * second)
	return t
}
