package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
)

// An event that changes many flows in the same way yields one decision that lists them all. The
// decision log is limited by the number of flows that it covers.
func TestEventOfManyFlows(t *testing.T) {
	const flows = 100
	w := pair(t, func(c *Config) { c.Mode, c.KeepDecisions = api.Duplicate, 3*flows })
	var all []netip.Addr
	for i := range flows {
		dst := netip.MustParseAddr(fmt.Sprintf("10.9.1.%d", i))
		all = append(all, dst)
		if _, err := w.e.Set(w.now, dst, api.Setting{Mode: api.Duplicate}); err != nil {
			t.Fatal(err)
		}
	}
	w.deliver()
	w.report("b")
	w.report("a")
	for range 6 {
		w.pass(500 * time.Millisecond)
		w.report("b")
		w.report("a")
	}
	w.look()
	for round := range 6 {
		up := round%2 == 1
		w.pass(100 * time.Millisecond)
		for _, name := range []string{"a", "b"} {
			w.set(name, 3, func(p *api.Path) { p.Up = up })
		}
		if up { // at both ends
			w.report("b")
		}
		before := w.e.Sequence()
		w.report("a")
		got := w.e.Decisions(before, 1000)
		if len(got) != 2 || got[0].Kind != "path" || got[1].Sequence != before+2 {
			t.Fatalf("%d decisions of one event: %+v", len(got), got)
		}
		about := append([]netip.Addr{got[1].Destination}, got[1].Others...)
		slices.SortFunc(about, netip.Addr.Compare)
		if !slices.Equal(about, all) {
			t.Fatalf("about %d flows", len(about))
		}
		if has := got[1].To.Has(3); has != up {
			t.Fatalf("paths %s", got[1].To)
		}
		w.report("b")
		w.report("a")
	}
	for _, f := range w.e.Flows() {
		if f.Paths != pathset.Of(1, 2, 3, 4, 5) {
			t.Errorf("%s: paths %s", f.Destination, f.Paths)
		}
	}
	kept := 0
	for _, d := range w.e.Decisions(0, 1000) {
		kept += 1 + len(d.Others)
	}
	if kept < 3*flows || kept > 4*flows {
		t.Errorf("decisions about %d flows are kept, want %d and the rest of one", kept, 3*flows)
	}
	again := New(w.e.conf)
	if err := again.Restore(w.now, w.e.State(512)); err != nil || again.kept < kept {
		t.Errorf("restored: %d, %v", again.kept, err)
	}
}
