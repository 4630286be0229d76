package publish

import (
	"testing"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
)

// TestDocumentIsRenewed: whoever missed a catalog can have it in another group, but
// not more often than is good for the others.
func TestDocumentIsRenewed(t *testing.T) {
	d := New(Config{Namespace: moqt.Namespace{"holocast", "test"}}).NewDocument("catalog")
	if dynamic, _ := d.Properties().Int(wire.PropertyDynamicGroups); dynamic != 1 {
		t.Error("the track does not say that its groups are dynamic")
	}
	d.renew(0)
	if l, ok := d.Largest(); ok {
		t.Fatalf("published before there was anything: %v", l)
	}
	if err := d.Publish([]byte("{}")); err != nil {
		t.Fatal(err)
	}
	first, _ := d.Largest()
	for _, c := range []struct {
		name    string
		ask     uint64 // beyond the first group
		recent  bool   // it was renewed just now
		largest uint64
	}{
		{"it is there", 0, false, 0},
		{"it was missed", 1, false, 1},
		{"too often", 2, true, 1},
		{"another missed it", 1, false, 1},
		{"after a while", 2, false, 2},
	} {
		if !c.recent {
			d.renewed = time.Time{}
		}
		d.renew(first.Group + c.ask)
		if l, _ := d.Largest(); l.Group != first.Group+c.largest {
			t.Errorf("%s: the largest group is %d after the first, want %d", c.name, l.Group-first.Group, c.largest)
		}
	}
}
