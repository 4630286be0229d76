package recorder

import (
	"testing"

	"holocast/internal/moqt"
)

func TestReached(t *testing.T) {
	at := func(group uint64) *moqt.Location { return &moqt.Location{Group: group} }
	for name, c := range map[string]struct {
		track *track
		want  bool
	}{
		"not recorded":                  {&track{}, true},
		"empty":                         {&track{busy: true}, false},
		"behind":                        {&track{busy: true, newest: at(4)}, false},
		"begun":                         {&track{busy: true, newest: at(5), open: map[uint64]int{5: 1}}, true},
		"with an open earlier subgroup": {&track{busy: true, newest: at(5), open: map[uint64]int{4: 1, 5: 1}}, false},
		"beyond":                        {&track{busy: true, newest: at(6)}, true},
	} {
		r := New(nil, Config{})
		r.tracks["points"] = c.track
		if got := r.Reached(map[string]uint64{"points": 5, "unknown": 1}); got != c.want {
			t.Errorf("a track %s: reached is %v", name, got)
		}
	}
}
