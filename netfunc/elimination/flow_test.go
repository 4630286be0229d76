package elimination

import (
	"cmp"
	"slices"
)

func sortArrivals(a []arrival) {
	slices.SortStableFunc(a, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
}
