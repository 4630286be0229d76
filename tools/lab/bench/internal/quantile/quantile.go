// Package quantile computes quantiles of measurements.
package quantile

import (
	"cmp"
	"slices"
)

// Of returns the q-quantile of v for 0 ≤ q < 1, which is the value at index ⌊q·n⌋ of the n sorted
// values. v may be in any order. If v is empty, Of returns the zero value.
func Of[T cmp.Ordered](v []T, q float64) (of T) {
	if len(v) == 0 {
		return of
	}
	v = slices.Sorted(slices.Values(v))
	return v[min(int(q*float64(len(v))), len(v)-1)]
}
