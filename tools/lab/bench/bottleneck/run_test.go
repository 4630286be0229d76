//go:build linux

package bottleneck

import (
	"testing"
	"time"

	"holocast/internal/netlab"
	"holocast/internal/quiccc"
)

func TestFigures(t *testing.T) {
	s := time.Second
	v := viewer{frames: []frame{
		{captured: s / 2, arrived: s, measured: 30},        // captured before the measurement, arrived during it
		{captured: s, arrived: 3 * s / 2, measured: 100},   // in time
		{captured: s, arrived: 5 * s / 2, measured: 100},   // late
		{captured: 5 * s / 2, arrived: 3 * s, measured: 7}, // in time, but after the measurement
		{captured: 3 * s, arrived: 4 * s},                  // after
	}}
	want := Figures{FPS: 1, DelayP50Ms: 500, DelayP95Ms: 1500, Wasted: 52.6}
	if got := v.figures(s, 3*s, 500); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestRun checks that a quick run's figures are plausible, not that they are good.
func TestRun(t *testing.T) {
	if err := netlab.Supported(); err != nil {
		t.Skip("network lab unavailable: ", err)
	}
	if !quiccc.Patched() {
		t.Skip("built with the published quic-go")
	}
	r, err := Run(t.Context(), Options{Parts: []string{cameraPart, tilesPart}, Quick: true, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Paths) != 1 || len(r.Paths[0].Of) != len(Contenders()) || len(r.Runs) != len(Contenders()) {
		t.Fatalf("%+v", r)
	}
	for contender, f := range r.Paths[0].Of {
		if f.FPS < 0 || f.FPS > 2*FramesPerS || f.Wasted < 0 || f.Wasted > 100 || f.DelayP95Ms < f.DelayP50Ms {
			t.Errorf("%s: %+v", contender, f)
		}
		if f.DelayP50Ms > 0 && f.DelayP50Ms < r.Paths[0].DelayMs {
			t.Errorf("%s: frames took %.1f ms over a path of %.0f ms", contender, f.DelayP50Ms, r.Paths[0].DelayMs)
		}
	}
	if f := r.Paths[0].Of[Queue]; f.DelayP50Ms == 0 {
		t.Errorf("no frame arrived: %+v", f)
	}
}
