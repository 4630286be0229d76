//go:build linux

package bottleneck

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/netlab"
	"holocast/internal/quiccc"
)

// TestDatagrams measures briefly. It checks that frames arrive, but not how many, since a busy
// machine may lose all frames of a measurement.
func TestDatagrams(t *testing.T) {
	if err := netlab.Supported(); err != nil {
		t.Skip("no network namespaces: ", err)
	}
	if !quiccc.Patched() {
		t.Skip("built with the published quic-go")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r, err := Run(ctx, Options{Parts: []string{datagramsPart}, Quick: true, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Datagrams) != 6 {
		t.Fatalf("%d measurements, want 6", len(r.Datagrams))
	}
	shown := map[string]bool{}
	for _, d := range r.Datagrams {
		if len(d.Failures) > 0 {
			t.Logf("%s, %g %% loss: %s", d.Delivery, 100*d.Loss, d.Failures)
		}
		if d.FPS == 0 {
			continue
		}
		shown[d.Delivery] = true
		if d.DelayP50 < datagramDelay || (d.Parts.Frames > 0) != (d.Delivery == catalog.DeliveryDatagram) {
			t.Errorf("%+v", d)
		}
	}
	if !shown[catalog.DeliveryDatagram] || !shown[catalog.DeliveryStream] {
		t.Errorf("frames arrived over %v only", shown)
	}
	if md := r.Markdown(); strings.Count(md, "| QUIC |") != 6 || strings.Contains(md, "base complete") {
		t.Errorf("the table:\n%s", md)
	}

	// With keeps this result when a later run measures another part.
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	both, err := Result{Tiles: []TileMeasurement{{Contender: Holocast}}}.With(b)
	if err != nil || !strings.Contains(both.Markdown(), "| QUIC |") || !strings.Contains(both.Markdown(),
		"base complete") {
		t.Errorf("%v:\n%v", err, both)
	}
}

func TestParts(t *testing.T) {
	if _, err := Run(t.Context(), Options{Parts: []string{"detour"}}); err == nil || !strings.Contains(err.Error(),
		"camera, tiles, datagrams") {
		t.Errorf("unknown part: %v", err)
	}
}
