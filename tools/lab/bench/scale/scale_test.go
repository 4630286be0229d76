package scale

import (
	"math/rand/v2"
	"testing"
)

// TestRun simulates a small cluster.
func TestRun(t *testing.T) {
	x := Extent{Relays: 24, Regions: 3, Sessions: 30, Viewers: 8, Churn: 0.5, Seconds: 20, Cut: 10}
	r, err := simulate(t.Context(), x, rand.New(rand.NewPCG(1, 2)), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if r.Copies != 1 || r.MaxCopies != 1 || r.MaxHops != 2 || r.CopiesDirect < 1.5 {
		t.Errorf("copies %+v", r)
	}
	if r.CutInside != 1 || r.CutOthers != 1 || r.Killed != 4 || r.AtKilled.P50 < 1000 || r.AtKilled.Max > 6000 {
		t.Errorf("faults %+v", r)
	}
	if r.AnnounceMax > 400 || r.StartMs > 1000 || r.HealMax > 3000 {
		t.Errorf("times %+v", r)
	}
}
