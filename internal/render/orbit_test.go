package render

import (
	"math"
	"testing"

	"holocast/internal/pointcloud"
	"holocast/internal/vec3"
)

// An orbit's viewer sees its target in the middle of the picture, and is where azimuth and elevation say.
func TestOrbitEye(t *testing.T) {
	for _, tt := range []struct {
		name               string
		yUp                bool
		azimuth, elevation float64
		at                 [3]float64 // viewer's position relative to the target
	}{
		{"front", false, 0, 0, [3]float64{0, 0, -1000}},
		{"right", false, 90, 0, [3]float64{1000, 0, 0}},
		{"above", false, 0, 90, [3]float64{0, -1000, 0}},
		{"front, y up", true, 0, 0, [3]float64{0, 0, 1000}},
		{"right, y up", true, 90, 0, [3]float64{1000, 0, 0}},
		{"above, y up", true, 0, 90, [3]float64{0, 1000, 0}},
		{"behind, y up", true, 180, 0, [3]float64{0, 0, -1000}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := Orbit{Center: [3]float64{100, 200, 300}, Distance: 1000, YUp: tt.yUp}
			eye := o.Eye(tt.azimuth, tt.elevation)
			if err := eye.Validate(); err != nil {
				t.Fatalf("the picture is mirrored: %v", err)
			}
			at, target := vec3.Sub(eye.Inverse().T, o.Center), eye.Apply(o.Center)
			if vec3.Length(vec3.Sub(at, tt.at)) > 1e-6 || vec3.Length(vec3.Sub(target, [3]float64{0, 0, 1000})) > 1e-6 {
				t.Errorf("viewer at %v, sees the target at %v", at, target)
			}
		})
	}
}

func TestAround(t *testing.T) {
	for _, yUp := range []bool{false, true} {
		for _, elevation := range []float64{0, 30} {
			o, err := Around([]pointcloud.Points{ball(5000)}, yUp, elevation, 16./9)
			if err != nil {
				t.Fatal(err)
			}
			for azimuth := 0.; azimuth < 360; azimuth += 40 {
				var depth []float32
				if _, err := Image(Options{Width: 160, Height: 90, Eye: o.Eye(azimuth, elevation), Depth: &depth},
					ball(5000)); err != nil {
					t.Fatal(err)
				}
				covered := 1 - float64(empty(depth))/float64(len(depth))
				if edge := len(depth) - empty(depth[:320*4]); covered < 0.25 || covered > 0.5 || edge < len(depth)-320*4 {
					t.Errorf("azimuth %g, elevation %g: %.2f covered", azimuth, elevation, covered)
				}
			}
		}
	}
	if _, err := Around([]pointcloud.Points{{XYZ: []int16{1}}}, false, 0, 1); err == nil {
		t.Error("half a point is accepted")
	}
	if o, err := Around(nil, false, 0, 1); err != nil || math.IsNaN(o.Distance) || o.Distance <= 0 {
		t.Errorf("no points: %+v, %v", o, err)
	}
}

// With y up, the first camera looks along −z: pictures are not mirrored.
func TestYUpIsNotMirrored(t *testing.T) {
	var near, far pointcloud.Points
	for x := -50; x < 50; x++ {
		for y := -50; y < 50; y++ {
			near.XYZ, near.RGB = append(near.XYZ, int16(10*x), int16(10*y), 500), append(near.RGB, 255, 0, 0)
			far.XYZ, far.RGB = append(far.XYZ, int16(10*x), int16(10*y), -500), append(far.RGB, 0, 0, 255)
		}
	}
	img, err := Image(Options{Width: 100, Height: 100, YUp: true}, near, far)
	if err != nil {
		t.Fatal(err)
	}
	if c := img.RGBAAt(50, 50); c.R < 200 || c.B > 50 {
		t.Errorf("the middle is %v, want the points at z = 500", c)
	}
}
