package multipath

import "slices"

// span is the range of numbers from ≤ n < to.
type span struct{ from, to uint64 }

// spans are ranges of numbers in ascending order, with gaps between them.
type spans []span

// find returns the index of the first range that ends at n or later.
func (s spans) find(n uint64) int {
	i, _ := slices.BinarySearchFunc(s, n, func(r span, n uint64) int {
		if r.to < n {
			return -1
		}
		return 1
	})
	return i
}

// add adds a range and returns how many of its numbers are new.
func (s *spans) add(from, to uint64) uint64 {
	if from >= to {
		return 0
	}
	i := s.find(from)
	j, merged, known := i, span{from, to}, uint64(0)
	for ; j < len(*s) && (*s)[j].from <= to; j++ {
		r := (*s)[j]
		if lo, hi := max(r.from, from), min(r.to, to); lo < hi {
			known += hi - lo
		}
		merged.from, merged.to = min(merged.from, r.from), max(merged.to, r.to)
	}
	*s = slices.Replace(*s, i, j, merged)
	return to - from - known
}

// cut removes the numbers below n.
func (s *spans) cut(n uint64) {
	i := s.find(n)
	if i < len(*s) && (*s)[i].to == n {
		i++
	}
	*s = slices.Delete(*s, 0, i)
	if len(*s) > 0 {
		(*s)[0].from = max((*s)[0].from, n)
	}
}

// prefix returns the end of the range that begins at 0, or 0 if there is none.
func (s spans) prefix() uint64 {
	if len(s) == 0 || s[0].from > 0 {
		return 0
	}
	return s[0].to
}
