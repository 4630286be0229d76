package path

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestRun runs everything with one viewer, briefly, and checks the shape of the
// result, not its figures.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := Run(ctx, Options{Parts: []string{relayPart}, Quick: true, Viewers: []int{1}, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		FirstByte float64 `json:"first_byte_ms"`
		Fanout    map[string]struct {
			Mbit  float64            `json:"mbit_per_s"`
			CPU   float64            `json:"cpu_s_per_gbit"`
			Added map[string]float64 `json:"added_delay_ms"`
		}
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	one := doc.Fanout["1"]
	if doc.FirstByte <= 0 || one.Mbit <= 0 || one.CPU <= 0 || len(one.Added) != 2 {
		t.Errorf("result is not whole: %s", b)
	}
	if !strings.Contains(r.Markdown(), "| 1 |") {
		t.Errorf("the table has no row for one viewer:\n%s", r.Markdown())
	}
}
