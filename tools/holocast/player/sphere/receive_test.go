package sphere

import (
	"testing"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/loc"
	"holocast/internal/moqt"
)

// TestForgottenGroups checks that a late tile does not recreate its judged and deleted GoP, and
// that a restarted replay, whose timestamps jump back, is judged again.
func TestForgottenGroups(t *testing.T) {
	v, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	c := &catalog.Catalog{
		Tracks: []catalog.Track{
			{
				Name:   "video",
				Role:   catalog.RoleVideo,
				Sphere: &catalog.Sphere{Projection: "equirectangular", Width: 64, Height: 32, Columns: 2, Rows: 1, Qualities: 1},
			},
		},
	}
	v.Configure(c, func(t catalog.Track) moqt.TrackName { return moqt.TrackName{Name: t.Name} })
	v.replayed = true
	begin := time.Unix(1000, 0)
	now := begin
	low, tile := key{-1, 0}, key{0, 0}
	add := func(k key, id uint64, second int) {
		v.add(
			k, id, 0, loc.Properties{Timestamp: begin.Add(time.Duration(second) * time.Second)}.Append(nil), []byte{1},
			now, false,
		)
	}
	for id := range 8 {
		add(low, uint64(id), id)
		now = now.Add(time.Second)
		v.judgeDue(now)
	}
	judged := v.judge.gops
	if judged < 4 || v.groups[2] != nil {
		t.Fatalf("%d GoPs judged, groups %v", judged, v.groups)
	}
	for id := range 3 {
		add(tile, uint64(id), id)
	}
	v.judgeDue(now)
	if v.judge.gops != judged {
		t.Errorf("late tiles: %d GoPs judged twice", v.judge.gops-judged)
	}
	for id := 8; id < 16; id++ { // the replay restarts
		add(low, uint64(id), id-8)
		now = now.Add(time.Second)
		v.judgeDue(now)
	}
	if n := v.judge.gops; n < judged+6 {
		t.Errorf("%d GoPs judged after the restart, want at least 6", n-judged)
	}
}
