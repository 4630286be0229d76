// Package quantile sums up what a benchmark measured.
package quantile

import (
	"cmp"
	"slices"
)

// Of is the smallest of values, in any order, that more than a share q of them does not
// exceed, 0 ≤ q < 1. It is the zero value for none.
func Of[T cmp.Ordered](v []T, q float64) (of T) {
	if len(v) == 0 {
		return of
	}
	v = slices.Sorted(slices.Values(v))
	return v[min(int(q*float64(len(v))), len(v)-1)]
}
