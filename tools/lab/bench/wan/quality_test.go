package wan

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"holocast/internal/openh264"
)

// rendered returns two frames of the performer.
func rendered(t *testing.T) []*sequence {
	t.Helper()
	list, err := performer(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, s := range list {
			s.close()
		}
	})
	return list
}

func TestMeasurement(t *testing.T) {
	d, err := openh264.New()
	if errors.Is(err, openh264.ErrNoLibrary) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	d.Close()
	m := newMeasurement(sceneMoving, rendered(t)[:1], extent{shots: []int{1}, views: 1})
	if err := m.run(t.Context(), 2, io.Discard); err != nil {
		t.Fatal(err)
	}
	by := map[string]Coded{}
	for _, c := range m.Coded {
		by[c.Name] = c
		if c.Mbps <= 0 || c.KeyBytes <= 0 || c.EncodeMs <= 0 || c.DecodeMs <= 0 || c.ViewSSIM <= 0.3 || c.D1 <= 0 {
			t.Errorf("%s: %+v", c.Name, c)
		}
	}
	// Half-normal readings of 2.5 to 4.5 mm.
	if m.Sensor.MeanMm < 2 || m.Sensor.MeanMm > 4 || m.Sensor.Stray > 0.5 {
		t.Errorf("sensor: %+v", m.Sensor)
	}
	if m.Moving.Points == 0 || m.Moving.Points > m.Sensor.Points/4 {
		t.Errorf("%d of %d points move", m.Moving.Points, m.Sensor.Points)
	}
	for _, name := range []string{layoutA, layoutC, rvl} {
		if c := by[name]; c.Depth != m.Sensor || c.D1 != m.D1 {
			t.Errorf("%s is lossless, but its depth errors are %+v, not %+v", name, c.Depth, m.Sensor)
		}
	}
	for _, name := range []string{layoutA, layoutC} {
		if c := by[name]; c.ColorPSNR != m.Color || c.ViewPSNR != m.ViewPSNR {
			t.Errorf("%s is lossless, but its colour has %g dB and its view %g dB", name, c.ColorPSNR, c.ViewPSNR)
		}
	}
	w, a := by[layoutW], by[layoutA]
	if w.Mbps > a.Mbps/3 || math.Abs(w.Depth.MeanMm-m.Sensor.MeanMm) > 2 || w.ColorPSNR < 25 {
		t.Errorf("layout W: %+v", w)
	}

	r := Result{Scenes: []Scene{m.Scene}}
	r.summarize()
	md := r.Markdown()
	for _, want := range []string{"### Moving performer", "| **W** |", "| sensor |", pictureFile(sceneMoving)} {
		if !strings.Contains(md, want) {
			t.Errorf("the page lacks %q:\n%s", want, md)
		}
	}
	dir := t.TempDir()
	r.pictures, r.Curve = m.pictures, []Point{{Mbps: 1}, {Mbps: 2}}
	if err := r.SavePlots(dir); err != nil {
		t.Error(err)
	}
}

func TestSummary(t *testing.T) {
	r := Result{
		Scenes: []Scene{{Name: sceneMoving, Sensor: Errors{MeanMm: 3}, Coded: []Coded{
			{Name: layoutW, EncodeMs: 8}, {Name: layoutA, MbpsFour: 300},
		}}},
		Rates:     []Rated{{Target: 8, Mbps: 8}, {Target: homeTarget, Mbps: 15.9, Depth: Errors{MeanMm: 2}}},
		Selection: &Selection{Gain: 0.5, Walks: []Walk{{Name: "arc"}}},
	}
	r.summarize()
	old, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"mbps_four":15.9`, `"depth_mean_mm":2`, `"view_gain_db":0.5`, `"sensor_mean_mm":3`, `"lossless_mbps_four":300`,
	} {
		if !strings.Contains(string(old), want) {
			t.Errorf("%s lacks %s", old, want)
		}
	}
	paths := Result{Paths: []PathRun{{Path: homePath, Contender: layoutW, DelayP50: 40, Freezes200: 1}}}
	both, err := paths.With(old)
	if err != nil {
		t.Fatal(err)
	}
	got := both.(Result)
	if got.MbpsFour != 15.9 || got.DelayP50 != 40 || got.Freezes != 1 || len(got.Measured()) != 3 {
		t.Errorf("all parts: %+v, measured %v", got.Summary, got.Measured())
	}
	if !strings.Contains(got.Markdown(), "| 20 Mbit/s | W |") {
		t.Errorf("no row of the path:\n%s", got.Markdown())
	}
}

func TestOptions(t *testing.T) {
	if _, err := Run(t.Context(), Options{Parts: []string{"depth"}}); err == nil ||
		!strings.Contains(err.Error(), "quality, pose, paths, cameras") {
		t.Errorf("unknown part: %v", err)
	}
}

// TestRates measures cameras that share a bit rate, and a selection on all walks.
func TestRates(t *testing.T) {
	d, err := openh264.New()
	if errors.Is(err, openh264.ErrNoLibrary) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	d.Close()
	x := extent{quick: true, moving: 2, shots: []int{1}, views: 1}
	list := rendered(t)
	rated, err := rates(t.Context(), list, x, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if r := rated[0]; len(rated) != 1 || r.Mbps <= 0 || r.Depth.MeanMm <= 0 || r.ViewSSIM <= 0.3 {
		t.Errorf("%+v", rated)
	}
	s, err := selection(t.Context(), list, x, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range s.Walks {
		if w.Even < 10 || w.Chosen < 10 || w.Lossless < 10 || w.MbpsChosen <= 0 {
			t.Errorf("%+v", w)
		}
	}
	if len(s.Walks) != len(walks) {
		t.Errorf("%d walks, want %d", len(s.Walks), len(walks))
	}
}
