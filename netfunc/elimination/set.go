package elimination

import (
	"math/bits"
	"strconv"
	"strings"
)

// MaxPaths is how many paths there can be; their indices i are 1 to MaxPaths.
const MaxPaths = 8

// Set is a path set such as P, as the policy map of the sender holds it: bit i−1 is path i.
type Set uint8

// Of returns the set of the given paths. Those outside 1 to MaxPaths are left out.
func Of(paths ...int) Set {
	var s Set
	for _, i := range paths {
		if i >= 1 && i <= MaxPaths {
			s |= 1 << (i - 1)
		}
	}
	return s
}

// Has tells whether path i is in s.
func (s Set) Has(i int) bool { return s&Of(i) != 0 }

// Len is the number of paths in s.
func (s Set) Len() int { return bits.OnesCount8(uint8(s)) }

// String writes s as "1+2+5", and the empty set as "none".
func (s Set) String() string {
	if s == 0 {
		return "none"
	}
	var names []string
	for ; s != 0; s &= s - 1 {
		names = append(names, strconv.Itoa(s.first()+1))
	}
	return strings.Join(names, "+")
}

// first is the index, from 0, of the lowest path in s.
func (s Set) first() int { return bits.TrailingZeros8(uint8(s)) }
