// Package clocktest creates times as read after a step of the wall clock, for tests of code that
// must use the monotonic clock.
package clocktest

import (
	"time"
	"unsafe"
)

// Bits of time.Time's first word: a flag for a monotonic reading, seconds of the wall clock, and
// nanoseconds. The second word is the monotonic reading.
const (
	hasMonotonic = 1 << 63
	second       = 1 << 30
)

// Step returns t as time.Now would have returned it after the wall clock stepped by d, which must
// be whole seconds. t must come from time.Now.
func Step(t time.Time, d time.Duration) time.Time {
	word := (*uint64)(unsafe.Pointer(&t))
	if *word&hasMonotonic == 0 {
		panic("clocktest: time has no monotonic reading")
	}
	*word += uint64(int64(d/time.Second) * second)
	return t
}
