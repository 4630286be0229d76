package catalog

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestTemplate(t *testing.T) {
	want := Template{
		Media:         1,
		MediaStep:     33.3,
		Location:      [2]uint64{4, 5},
		Step:          [2]uint64{1, 0},
		Wallclock:     1790000000000,
		WallclockStep: 33,
	}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(b); s != "[1,33.3,[4,5],[1,0],1790000000000,33]" {
		t.Errorf("%s", s)
	}
	var got Template
	if err := json.Unmarshal(b, &got); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if b, err = json.Marshal(Track{Name: "x", Packaging: "loc"}); err != nil || strings.Contains(string(b), "template") {
		t.Errorf("a track without one: %s, %v", b, err)
	}
	for _, bad := range []string{`{}`, `[1,2,[3,4],[5,6],7]`, `[1,2,3,[5,6],7,8]`, `[1,2,[-3,4],[5,6],7,8]`} {
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}
