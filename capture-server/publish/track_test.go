package publish

import (
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// TestDocumentRenewal checks that a subscriber that requests a missed document gets it in a new
// group, at a limited rate.
func TestDocumentRenewal(t *testing.T) {
	d := New(Config{Namespace: moqt.Namespace{"holocast", "test"}}).NewDocument("catalog")
	if dynamic, _ := d.Properties().Int(wire.PropertyDynamicGroups); dynamic != 1 {
		t.Error("the track does not announce dynamic groups")
	}
	d.renew(0)
	if l, ok := d.Largest(); ok {
		t.Fatalf("published before there was a document: %v", l)
	}
	if err := d.Publish([]byte("{}")); err != nil {
		t.Fatal(err)
	}
	first, _ := d.Largest()
	for _, c := range []struct {
		name    string
		ask     uint64 // requested group, relative to the first
		recent  bool   // renewed just before
		largest uint64
	}{
		{"already has it", 0, false, 0},
		{"missed it", 1, false, 1},
		{"too often", 2, true, 1},
		{"another subscriber missed it", 1, false, 1},
		{"after a while", 2, false, 2},
	} {
		d.renewed = time.Time{}
		if c.recent {
			d.renewed = time.Now().Add(time.Hour)
		}
		d.renew(first.Group + c.ask)
		if l, _ := d.Largest(); l.Group != first.Group+c.largest {
			t.Errorf("%s: the largest group is %d after the first, want %d", c.name, l.Group-first.Group, c.largest)
		}
	}
}
