package codec

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestRunWithoutData(t *testing.T) {
	var log strings.Builder
	r, err := Run(t.Context(), Options{DataDir: t.TempDir(), Quick: true, Log: &log})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "HOLOCAST_DATA not found") {
		t.Errorf("the log does not report missing data: %q", log.String())
	}
	if !strings.Contains(r.Markdown(), "synthetic") || !strings.Contains(r.Markdown(), "| **A, lossless** |") {
		t.Errorf("the table lacks its source or layout A:\n%s", r.Markdown())
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Source    string
		NFOV, FHD struct {
			Points         int
			A, B, LiveScan map[string]float64
		}
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Source != "synthetic" || doc.NFOV.Points == 0 || doc.FHD.Points <= doc.NFOV.Points {
		t.Errorf("source %q, %d and %d points", doc.Source, doc.NFOV.Points, doc.FHD.Points)
	}
	for name, layout := range map[string]map[string]float64{
		"nfov a": doc.NFOV.A, "nfov b": doc.NFOV.B, "nfov livescan": doc.NFOV.LiveScan,
		"fhd a": doc.FHD.A, "fhd b": doc.FHD.B, "fhd livescan": doc.FHD.LiveScan,
	} {
		for _, key := range []string{"bytes_per_point", "encode_ms", "decode_ms"} {
			if layout[key] <= 0 {
				t.Errorf("%s: %s is %v", name, key, layout[key])
			}
		}
	}
}

func TestRunStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, Options{DataDir: t.TempDir(), Quick: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}
