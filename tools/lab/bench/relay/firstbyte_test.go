package relay

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestFirstByte(t *testing.T) {
	r, err := Run(t.Context(), Options{Parts: []string{firstBytePart}, Quick: true, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	f := r.FirstByte
	if f == nil || f.P50Ms <= 0 || f.P99Ms < f.P50Ms || f.DirectMs <= 0 || r.Load != nil || r.Soak != nil ||
		r.Upgrade != nil {
		t.Fatalf("incomplete result: %+v", r)
	}
	// With keeps this result when a later run measures another part.
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	both, err := Result{Soak: &Soak{Viewers: 3}}.With(b)
	if err != nil || !strings.Contains(both.Markdown(), "first byte after") || !strings.Contains(both.Markdown(),
		"3 viewers") {
		t.Errorf("merge with an earlier result: %v\n%v", err, both)
	}
}

func TestParts(t *testing.T) {
	if _, err := Run(t.Context(), Options{Parts: []string{"detour"}}); err == nil || !strings.Contains(err.Error(),
		"load, first-byte") {
		t.Errorf("unknown part: %v", err)
	}
}
