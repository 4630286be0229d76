package timeline

import (
	"math"
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

func TestPlace(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name        string
		start, step time.Duration
		recorded    []time.Duration
		want        []time.Duration
		jumps       []int
	}{
		{
			"steady", 1000 * ms, 33 * ms,
			[]time.Duration{1000 * ms, 1033 * ms, 1050 * ms, 6050 * ms},
			[]time.Duration{0, 33 * ms, 50 * ms, 5050 * ms},
			nil,
		},
		{
			"begins late", 0, 33 * ms,
			[]time.Duration{99 * ms, 132 * ms},
			[]time.Duration{99 * ms, 132 * ms},
			nil,
		},
		{
			"back a minute", 60000 * ms, 33 * ms,
			[]time.Duration{60000 * ms, 60033 * ms, 0, 33 * ms, 60 * ms},
			[]time.Duration{0, 33 * ms, 66 * ms, 99 * ms, 126 * ms},
			[]int{2},
		},
		{
			"back less than a frame", 0, 33 * ms,
			[]time.Duration{0, 33 * ms, 23 * ms, 99 * ms, 132 * ms},
			[]time.Duration{0, 33 * ms, 66 * ms, 99 * ms, 132 * ms},
			[]int{2},
		},
		{
			"to the epoch", 0, 33 * ms,
			[]time.Duration{0, 33 * ms, 20000 * day, 20000*day + 30*ms},
			[]time.Duration{0, 33 * ms, 66 * ms, 96 * ms},
			[]int{2},
		},
		{
			"an hour's pause", 0, 33 * ms,
			[]time.Duration{0, time.Hour, time.Hour + 33*ms},
			[]time.Duration{0, time.Hour, time.Hour + 33*ms},
			nil,
		},
		{
			"stands still", 0, 33 * ms,
			[]time.Duration{0, 0, 0, 0},
			[]time.Duration{0, 33 * ms, 66 * ms, 99 * ms},
			[]int{1, 2, 3},
		},
		{
			"missing times", 1000 * ms, 33 * ms,
			[]time.Duration{1000 * ms, 1033 * ms, 0, 0, 1132 * ms, 1165 * ms, 0, 1231 * ms},
			[]time.Duration{0, 33 * ms, 66 * ms, 99 * ms, 132 * ms, 165 * ms, 198 * ms, 231 * ms},
			[]int{2, 3, 6},
		},
		{
			"a repeated time", 0, 33 * ms,
			[]time.Duration{0, 0, 33 * ms, 66 * ms},
			[]time.Duration{0, 33 * ms, 33*ms + 1, 66 * ms},
			[]int{1},
		},
		{
			"two jumps", 0, 33 * ms,
			[]time.Duration{900 * ms, 933 * ms, 0, 33 * ms, 20000 * day, 66 * ms},
			[]time.Duration{900 * ms, 933 * ms, 966 * ms, 999 * ms, 1032 * ms, 1032*ms + 1},
			[]int{2, 4},
		},
		{
			"equal times without a step", 0, 0,
			[]time.Duration{0, 0, 4 * ms, 4 * ms, 1 * ms, 2 * ms, 2 * ms},
			[]time.Duration{0, 0, 4 * ms, 4 * ms, 4 * ms, 5 * ms, 5 * ms},
			[]int{4},
		},
		{
			"ends of the range", 0, 33 * ms,
			[]time.Duration{math.MaxInt64 / 2, -math.MaxInt64 / 2},
			[]time.Duration{33 * ms, 66 * ms},
			[]int{0, 1},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			line := New(tt.start, tt.step)
			var got []time.Duration
			var jumps []int
			for i, r := range tt.recorded {
				at, jumped := line.Place(r)
				got = append(got, at)
				if jumped {
					jumps = append(jumps, i)
				}
			}
			if !slices.Equal(got, tt.want) || !slices.Equal(jumps, tt.jumps) {
				t.Errorf("places %v, jumps at %v, want %v and %v", got, jumps, tt.want, tt.jumps)
			}
		})
	}
}
