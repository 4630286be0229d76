package router

import (
	"slices"
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// TestUncovered checks that objects being fetched are not fetched again.
func TestUncovered(t *testing.T) {
	of := func(ends ...uint64) (list []origin.Span) {
		for s := range slices.Chunk(ends, 2) {
			list = append(list, origin.Span{First: s[0], Last: s[1]})
		}
		return list
	}
	for name, c := range map[string]struct {
		repairs, missing, rest []origin.Span
		waits                  int
	}{
		"no repair":           {nil, of(1, 3, 7, 7), of(1, 3, 7, 7), 0},
		"the same":            {of(1, 3), of(1, 3), nil, 1},
		"within":              {of(0, 9), of(1, 3, 7, 7), nil, 1},
		"its beginning":       {of(1, 9), of(5, 14), of(10, 14), 1},
		"its end":             {of(5, 14), of(1, 9), of(1, 4), 1},
		"its middle":          {of(4, 6), of(1, 9), of(1, 3, 7, 9), 1},
		"by two":              {of(1, 4, 5, 9), of(2, 8), nil, 2},
		"elsewhere":           {of(1, 4), of(5, 9), of(5, 9), 0},
		"to the group's end":  {of(1, 4), of(3, ^uint64(0)), of(5, ^uint64(0)), 1},
		"from the first":      {of(0, 4), of(0, 4, 6, 6), of(6, 6), 1},
		"all of it, and more": {of(0, ^uint64(0)), of(0, 4, 6, 6), nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			k := &track{repairs: []*repair{{group: 6, first: 0, last: 100}}} // of another group
			for _, s := range c.repairs {
				k.repairs = append(k.repairs, &repair{
					group: 7, first: s.First, last: s.Last,
					done: make(chan struct{}),
				})
			}
			rest, wait := k.uncovered(7, c.missing)
			if !slices.Equal(rest, c.rest) || len(wait) != c.waits {
				t.Errorf("%v is fetched after waiting for %d repairs, want %v after %d", rest, len(wait), c.rest,
					c.waits)
			}
		})
	}
}

// TestRepairTimeout checks that a repair lasts no longer than the objects' delivery timeout.
func TestRepairTimeout(t *testing.T) {
	for ms, want := range map[uint64]time.Duration{
		0: repairTimeout, 500: 500 * time.Millisecond, 60_000: repairTimeout,
		1<<62 - 1: repairTimeout,
	} {
		props := wire.AppendKeyValues(nil, wire.KeyValue{Type: wire.PropertyObjectDeliveryTimeout, Int: ms})
		k := &track{Track: origin.NewTrack(moqt.TrackName{Name: "t"}, props, origin.Limits{})}
		if got := k.repairTimeout(); got != want {
			t.Errorf("delivery timeout of %d ms: %v, want %v", ms, got, want)
		}
	}
}
