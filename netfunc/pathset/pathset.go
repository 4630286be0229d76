// Package pathset implements sets of paths between two edges, as used in policies, signalling
// packets, REST calls and elimination.
package pathset

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Max is the maximum number of paths of a pair of edges. Path indices are 1 to Max.
const Max = 8

// Set is a set of paths in the format of the policy map, where bit i is path i+1. With the empty set,
// packets follow plain routing. Its JSON form is a sorted array of path indices.
type Set uint8

// Of returns the set of the given path indices. It ignores indices outside 1 to Max.
func Of(indices ...int) Set {
	var s Set
	for _, i := range indices {
		if i >= 1 && i <= Max {
			s |= 1 << (i - 1)
		}
	}
	return s
}

// Has reports whether path index is in s.
func (s Set) Has(index int) bool { return s&Of(index) != 0 }

// Len returns the number of paths in s.
func (s Set) Len() int { return bits.OnesCount8(uint8(s)) }

// First returns the lowest path index in s, or 0 if s is empty.
func (s Set) First() int {
	if s == 0 {
		return 0
	}
	return bits.TrailingZeros8(uint8(s)) + 1
}

// Indices returns the paths of s in ascending order.
func (s Set) Indices() []int {
	out := make([]int, 0, s.Len())
	for ; s != 0; s &= s - 1 {
		out = append(out, bits.TrailingZeros8(uint8(s))+1)
	}
	return out
}

// String writes s as "1+2+5", and the empty set as "none".
func (s Set) String() string {
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
func (s Set) MarshalJSON() ([]byte, error) { return json.Marshal(s.Indices()) }

// UnmarshalJSON implements json.Unmarshaler. A path outside 1 to Max is an error.
func (s *Set) UnmarshalJSON(b []byte) error {
	var indices []int
	if err := json.Unmarshal(b, &indices); err != nil {
		return fmt.Errorf("paths must be an array of numbers from 1 to %d", Max)
	}
	*s = 0
	for _, i := range indices {
		if i < 1 || i > Max {
			return fmt.Errorf("path %d is not between 1 and %d", i, Max)
		}
		*s |= Of(i)
	}
	return nil
}
