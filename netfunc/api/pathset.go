package api

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// MaxPaths is how many paths a pair of edges can have; their indices are 1 to MaxPaths.
const MaxPaths = 8

// PathSet is a set of paths as the policy map holds it: bit i is path i+1. The
// empty set leaves packets to plain routing. In JSON it is a sorted array of path
// indices.
type PathSet uint8

// Paths returns the set of the given path indices; those outside 1 to MaxPaths are
// left out.
func Paths(indices ...int) PathSet {
	var s PathSet
	for _, i := range indices {
		if i >= 1 && i <= MaxPaths {
			s |= 1 << (i - 1)
		}
	}
	return s
}

// Has tells whether path index is in s.
func (s PathSet) Has(index int) bool { return s&Paths(index) != 0 }

// Len is the number of paths in s.
func (s PathSet) Len() int { return bits.OnesCount8(uint8(s)) }

// Indices returns the paths of s in ascending order.
func (s PathSet) Indices() []int {
	out := make([]int, 0, s.Len())
	for ; s != 0; s &= s - 1 {
		out = append(out, bits.TrailingZeros8(uint8(s))+1)
	}
	return out
}

// String writes s as "1+2+5", and the empty set as "none".
func (s PathSet) String() string {
	if s == 0 {
		return "none"
	}
	var b strings.Builder
	for n, i := range s.Indices() {
		if n > 0 {
			b.WriteByte('+')
		}
		b.WriteString(strconv.Itoa(i))
	}
	return b.String()
}

// MarshalJSON implements json.Marshaler.
func (s PathSet) MarshalJSON() ([]byte, error) { return json.Marshal(s.Indices()) }

// UnmarshalJSON implements json.Unmarshaler. A path outside 1 to MaxPaths is an error.
func (s *PathSet) UnmarshalJSON(b []byte) error {
	var indices []int
	if err := json.Unmarshal(b, &indices); err != nil {
		return fmt.Errorf("paths are an array of numbers from 1 to %d", MaxPaths)
	}
	*s = 0
	for _, i := range indices {
		if i < 1 || i > MaxPaths {
			return fmt.Errorf("path %d is not between 1 and %d", i, MaxPaths)
		}
		*s |= Paths(i)
	}
	return nil
}
