package render

import (
	"image"
	"math"
	"testing"

	"holocast/internal/camera"
	"holocast/internal/pointcloud"
)

// wall returns a wall at 2 m with a box 500 mm before it, seen by a small camera.
func wall(drop func(x, y int) bool) Surface {
	lens := camera.Intrinsics{Width: 80, Height: 60, Fx: 60, Fy: 60, Cx: 39.5, Cy: 29.5}
	rays := lens.RayTable()
	g := &pointcloud.Grid{}
	g.Resize(80, 60)
	for i := range g.Depth {
		x, y := i%80, i/80
		g.Depth[i] = 2000
		rgb := [3]byte{200, 180, 160}
		if x >= 30 && x < 50 && y >= 20 && y < 40 {
			g.Depth[i], rgb = 1500, [3]byte{20, 200, 40}
		}
		if drop != nil && drop(x, y) {
			g.Depth[i] = 0
		}
		copy(g.Color[3*i:], rgb[:])
	}
	return Surface{Grid: g, Rays: &rays, Pose: camera.Identity}
}

// eyeAt returns the transform to a viewer who is moved by x mm.
func eyeAt(x float64) *camera.Transform {
	t := camera.Identity
	t.T[0] = -x
	return &t
}

func empty(depth []float32) (n int) {
	for _, d := range depth {
		if math.IsInf(float64(d), 1) {
			n++
		}
	}
	return n
}

func TestSurfaceHasNoHoles(t *testing.T) {
	for _, tt := range []struct {
		name string
		drop func(x, y int) bool
	}{
		{"complete", nil},
		{"every second row", func(_, y int) bool { return y%2 == 1 }},
		{"every fourth row", func(_, y int) bool { return y%4 != 0 }},
		{"one description of four", func(x, y int) bool { return x%2 == 1 || y%2 == 1 }},
		{"a quarter missing", func(x, y int) bool { return (x*7+y*13)%4 == 0 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var depth []float32
			opts := Options{Width: 200, Height: 160, Eye: eyeAt(0), Depth: &depth}
			if _, err := Surfaces(opts, wall(tt.drop)); err != nil {
				t.Fatal(err)
			}
			if n := empty(depth); n > 0 {
				t.Errorf("%d of %d samples are empty", n, len(depth))
			}
		})
	}
}

// From the side, the box hides nothing behind its edge: the wall there is unknown, not stretched.
func TestSurfaceIsNotStretched(t *testing.T) {
	var depth []float32
	opts := Options{Width: 200, Height: 160, Eye: eyeAt(600), Depth: &depth}
	if _, err := Surfaces(opts, wall(nil)); err != nil {
		t.Fatal(err)
	}
	between := 0
	for _, d := range depth {
		if d > 1550 && d < 1950 {
			between++
		}
	}
	if between > 0 {
		t.Errorf("%d samples lie between box and wall", between)
	}
	if empty(depth) == 0 {
		t.Error("the box hides nothing of the wall")
	}
}

func TestSurfaceFacesItsSensor(t *testing.T) {
	behind := camera.Transform{R: [9]float64{-1, 0, 0, 0, 1, 0, 0, 0, -1}, T: [3]float64{0, 0, 4000}}
	var depth []float32
	if _, err := Surfaces(Options{Width: 80, Height: 60, Eye: &behind, Depth: &depth}, wall(nil), wall(nil)); err != nil {
		t.Fatal(err)
	}
	if n := empty(depth); n != len(depth) {
		t.Errorf("%d samples show the back of the wall", len(depth)-n)
	}
}

// A camera that sees the wall frontally covers one whose color differs and that sees it at an angle.
func TestSurfacesBlend(t *testing.T) {
	front, side := wall(nil), wall(nil)
	side.Grid.Color = append([]byte(nil), side.Grid.Color...)
	for i := range side.Grid.Color {
		side.Grid.Color[i] = 90
	}
	// 45° from the left, at the same distance from the wall's center.
	c := math.Sqrt2 / 2
	side.Pose = camera.Transform{R: [9]float64{c, 0, c, 0, 1, 0, -c, 0, c}, T: [3]float64{-2000 * c, 0, 2000 - 2000*c}}
	side.Grid.Depth = make([]uint16, len(front.Grid.Depth))
	for i, rx := range side.Rays.X {
		side.Grid.Depth[i] = uint16(2000*c/(c*float64(1-rx)) + 0.5)
	}
	img, err := Surfaces(Options{Width: 100, Height: 80, Eye: eyeAt(0)}, side, front)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Surfaces(Options{Width: 100, Height: 80, Eye: eyeAt(0)}, front)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []image.Point{{20, 15}, {75, 60}, {50, 10}} {
		got, alone := img.RGBAAt(p.X, p.Y), want.RGBAAt(p.X, p.Y)
		if d := math.Abs(float64(got.R) - float64(alone.R)); d > 12 {
			t.Errorf("at %v: red %d, the front camera's is %d", p, got.R, alone.R)
		}
	}
}

func TestSurfacesOfBadInput(t *testing.T) {
	s := wall(nil)
	s.Rays = &camera.RayTable{Width: 3, Height: 3}
	if _, err := Surfaces(Options{}, s); err == nil {
		t.Error("rays of another size are accepted")
	}
	if _, err := Surfaces(Options{}); err != nil {
		t.Errorf("no surface: %v", err)
	}
}

// BenchmarkSurfaces draws four cameras' frames of the size of an Azure Kinect's.
func BenchmarkSurfaces(b *testing.B) {
	lens := camera.Intrinsics{Width: 640, Height: 576, Fx: 504, Fy: 504, Cx: 319.5, Cy: 287.5}
	rays := lens.RayTable()
	var list []Surface
	for i := range 4 {
		g := &pointcloud.Grid{}
		g.Resize(lens.Width, lens.Height)
		for k := range g.Depth {
			g.Depth[k] = uint16(2000 + 300*math.Sin(float64(k%lens.Width)/40))
			g.Color[3*k+1] = byte(k)
		}
		list = append(list, Surface{Grid: g, Rays: &rays, Pose: eyeAt(100 * float64(i)).Inverse()})
	}
	for b.Loop() {
		if _, err := Surfaces(Options{Width: 640, Height: 480, Eye: eyeAt(50)}, list...); err != nil {
			b.Fatal(err)
		}
	}
}
