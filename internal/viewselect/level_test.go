package viewselect

import (
	"slices"
	"testing"
	"time"
)

func TestLevel(t *testing.T) {
	costs := []Cost{{300, 80e6}, {300, 8e6}, {300, 4e6}, {75, 2e6}}
	var l Level
	now, counts := time.Unix(100, 0), Counts{}
	level := l.Update(now, counts, costs)
	// pass lets seconds pass at 30 frames per second and returns the level.
	pass := func(seconds int, unshown, lost float64) int {
		for range seconds {
			now = now.Add(time.Second)
			counts.Frames += uint64(30 * (1 - lost))
			counts.Unshown += uint64(30 * (1 - lost) * unshown)
			counts.Lost += uint64(30 * lost)
			level = l.Update(now, counts, costs)
		}
		return level
	}
	for i, step := range []struct {
		seconds       int
		unshown, lost float64
		want          int
	}{
		{60, 0, 0, 0},   // everything fits
		{4, 0, 0.5, 1},  // losses: fewer bits
		{4, 0.8, 0, 3},  // a slow decoder: fewer points
		{12, 0, 0.1, 3}, // a few losses neither lower nor raise it
		{16, 0, 0, 2},   // a try of the next better one
		{4, 0, 0.5, 3},  // which fails
		{28, 0, 0, 3},   // the next try is later
		{4, 0, 0, 2},
		{4, 0, 0.5, 3},
		{8, 0, 1, 3}, // nothing is cheaper
	} {
		if got := pass(step.seconds, step.unshown, step.lost); got != step.want {
			t.Fatalf("step %d: level %d, want %d", i, got, step.want)
		}
	}
	if got := l.Update(now, counts, costs[:2]); got != 1 {
		t.Errorf("level %d of two", got)
	}

	// No level has fewer points: losses lower it even if few frames are shown.
	l, counts, costs = Level{}, Counts{}, costs[:3]
	level = l.Update(now, counts, costs)
	if got := pass(4, 0.8, 0.5); got != 1 {
		t.Errorf("level %d with unshown and lost frames, want 1", got)
	}
}

func TestChooseWithin(t *testing.T) {
	ladder := []Option{{4e6, UnknownError(0)}, {2e6, UnknownError(1)}, {1e6, UnknownError(2)}}
	options := [][]Option{ladder, ladder[:1], ladder[:2]}
	if b := Budget(options, 1); b != 8e6 {
		t.Errorf("budget %v of level 1", b)
	}
	for _, c := range []struct {
		worth  []float64
		budget float64
		want   []int
	}{
		{[]float64{0.1, 0.1, 0.1}, 12e6, []int{0, 0, 0}},
		{[]float64{0.5, 0.1, 0}, 10e6, []int{0, 0, 1}},
		{[]float64{0, 0.1, 0.5}, 9e6, []int{2, 0, 0}},
		{[]float64{0.5, 0.5, 0.5}, 1e6, []int{2, 0, 1}}, // the cheapest of all
	} {
		var ch Chooser
		got := make([]int, 3)
		ch.ChooseWithin(got, c.worth, options, c.budget, nil)
		if !slices.Equal(got, c.want) {
			t.Errorf("%v at %v: %v, want %v", c.worth, c.budget, got, c.want)
		}
	}
}
