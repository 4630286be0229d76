package pathset

import (
	"encoding/json"
	"testing"
)

func TestSet(t *testing.T) {
	for _, c := range []struct {
		set  Set
		json string
		text string
	}{{0, "[]", "none"}, {Of(1), "[1]", "1"}, {Of(5, 2, 1), "[1,2,5]", "1+2+5"}, {
		0xff, "[1,2,3,4,5,6,7,8]",
		"1+2+3+4+5+6+7+8",
	}, {Of(0, 9, -1), "[]", "none"}} {
		b, err := json.Marshal(c.set)
		var back Set
		if err != nil || string(b) != c.json || c.set.String() != c.text || json.Unmarshal(b, &back) != nil ||
			back != c.set {
			t.Errorf("%s, %s, %v", b, c.set, err)
		}
		if n := len(c.set.Indices()); n != c.set.Len() {
			t.Errorf("%s: %d and %d paths", c.set, n, c.set.Len())
		}
	}
	for _, bad := range []string{"[0]", "[9]", "[-1]", "[1.5]", `["1"]`, "{}", "5", `"1"`} {
		var s Set
		if err := json.Unmarshal([]byte(bad), &s); err == nil {
			t.Errorf("%s became %s", bad, s)
		}
	}
	if !Of(3).Has(3) || Of(3).Has(2) || Of(3).Has(0) || Of(3).Has(99) {
		t.Error("Has")
	}
	if Set(0).First() != 0 || Of(7, 4).First() != 4 {
		t.Error("First")
	}
}
