package camera

import (
	"math"
	"strings"
	"testing"
)

func TestDocumentIsRead(t *testing.T) {
	lens := Intrinsics{
		Width: 640, Height: 576, Fx: 504.1, Fy: 504.3, Cx: 322.7, Cy: 335.9,
		K: [6]float64{5.3, 3.6, 0.19, 5.6, 5.4, 1}, P: [2]float64{4e-5, -6e-5}, MaxRadius: 1.74,
	}
	color := lens
	color.Width, color.Height = 1280, 720
	color.Cx, color.Cy = lens.Cx+320, lens.Cy+72
	want := Calibration{
		Serial:       "123",
		Depth:        lens,
		Color:        color,
		DepthToColor: Transform{R: Identity.R, T: [3]float64{-32, 2, 4}},
	}
	doc, err := want.Document(NFOVUnbinned, Color720P)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(doc, NFOVUnbinned, Color720P)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []struct{ got, want Intrinsics }{{got.Depth, want.Depth}, {got.Color, want.Color}} {
		for i, d := range []float64{
			l.got.Fx - l.want.Fx, l.got.Fy - l.want.Fy, l.got.Cx - l.want.Cx,
			l.got.Cy - l.want.Cy,
		} {
			if math.Abs(d) > 1e-9 {
				t.Errorf("parameter %d is off by %g pixels", i, d)
			}
		}
		if l.got.K != l.want.K || l.got.P != l.want.P || l.got.MaxRadius != l.want.MaxRadius {
			t.Errorf("%+v, want %+v", l.got, l.want)
		}
	}
	if got.Serial != want.Serial || math.Abs(got.DepthToColor.T[0]+32) > 1e-9 {
		t.Errorf("%+v", got)
	}
}

func TestDocumentRefusesOtherSizes(t *testing.T) {
	lens := Intrinsics{Width: 640, Height: 576, Fx: 500, Fy: 500, Cx: 320, Cy: 288}
	_, err := Calibration{Depth: lens, Color: lens, DepthToColor: Identity}.Document(NFOVUnbinned, Color720P)
	if err == nil || !strings.Contains(err.Error(), "color is 640×576") {
		t.Errorf("error %v", err)
	}
}
