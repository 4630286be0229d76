package looks

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestWith checks that a part keeps the other parts of an earlier result, and that the page shows both.
func TestWith(t *testing.T) {
	scene := &Scene{Looks: Looks{Points: Score{PSNR: 24.4}, Surface: Score{PSNR: 36.2}}, Views: []Looks{{View: "left"}}}
	earlier, err := json.Marshal(Result{Synthetic: scene, Shapes: &Shapes{Surface: Shape{Silhouette: 0.986}}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Result{FrameTimes: []FrameTime{{Grid: 60000, Surface: Times{New: 129.1}}}}.With(earlier)
	if err != nil {
		t.Fatal(err)
	}
	page := r.Markdown()
	for _, want := range []string{"| left |", "24.40", "36.20", "98.6 %", "| 60000 | 0.0 | 0.0 | 0.0 | 129.1 |"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in %s", want, page)
		}
	}
	if _, err := (Result{}).With([]byte("{")); err == nil {
		t.Error("a truncated result is accepted")
	}
}

// TestShapes checks that surfaces are closer than points to the performer's exact shape.
func TestShapes(t *testing.T) {
	s, err := shapes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p, f := s.Points, s.Surface
	if f.Silhouette < 0.97 || f.Silhouette < p.Silhouette || f.DepthP50 > p.DepthP50 || f.NormalP50 > p.NormalP50 {
		t.Errorf("points %+v, surface %+v", p, f)
	}
}
