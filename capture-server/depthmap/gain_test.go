package depthmap

import (
	"image/color"
	"math"
	"testing"

	"holocast/capture-server/source"
	"holocast/internal/camera"
	"holocast/internal/pointcloud"
	"holocast/internal/srgb"
)

// TestGain checks that a gain multiplies linear light, in every geometry and format, and that a new
// one replaces it.
func TestGain(t *testing.T) {
	cal := kinectLike()
	gain := Gain{2, 1, 0.5}
	for _, format := range []camera.ColorFormat{camera.MJPG, camera.NV12, camera.YUY2, camera.BGRA} {
		for _, geometry := range []Geometry{DepthGeometry, ColorGeometry} {
			t.Run(string(format)+"_"+string(geometry), func(t *testing.T) {
				f := source.Frame{Depth: flat(cal.Depth.Width*cal.Depth.Height, 1500)}
				paint(t, &f, format, cal.Color.Width, cal.Color.Height, func(x, y int) color.RGBA {
					return color.RGBA{R: uint8(x / 2), G: 120, B: uint8(60 + y), A: 255}
				})
				plain, bright := newMapper(t, cal, Config{Geometry: geometry}), newMapper(t, cal, Config{
					Geometry: geometry, Gain: gain,
				})
				var before, after, undone pointcloud.Grid
				for m, g := range map[*Mapper]*pointcloud.Grid{plain: &before, bright: &after} {
					if err := m.Map(&f, g); err != nil {
						t.Fatal(err)
					}
				}
				bright.SetGain(Gain{})
				if err := bright.Map(&f, &undone); err != nil {
					t.Fatal(err)
				}
				checked := 0
				for i, z := range before.Depth {
					if z == 0 {
						continue
					}
					checked++
					for c, g := range gain {
						level := before.Color[3*i+c]
						want := 255 * srgb.Encode(g*srgb.Linear(float64(level)/255))
						if got := after.Color[3*i+c]; math.Abs(float64(got)-want) > 0.51 {
							t.Fatalf("pixel %d, channel %d: %d becomes %d, want %.1f", i, c, level, got, want)
						}
						if undone.Color[3*i+c] != level {
							t.Fatalf("pixel %d, channel %d: %d without gain, want %d", i, c, undone.Color[3*i+c], level)
						}
					}
				}
				if checked < 5000 {
					t.Errorf("only %d points", checked)
				}
			})
		}
	}
}

// TestGainKeepsInfrared checks that a gain changes colours only, not the grey shown without them.
func TestGainKeepsInfrared(t *testing.T) {
	cal := kinectLike()
	n := cal.Depth.Width * cal.Depth.Height
	f := source.Frame{Depth: flat(n, 1500), IR: flat(n, maxIR/2)}
	var g pointcloud.Grid
	_ = newMapper(t, cal, Config{Gain: Gain{2, 2, 2}}).Map(&f, &g) // a ColorError
	if g.Color[3*(n/2)] != 127 {
		t.Errorf("level %d, want 127", g.Color[3*(n/2)])
	}
}

func TestBadGain(t *testing.T) {
	for _, gain := range []Gain{{0, 1, 1}, {1, math.NaN(), 1}, {1, 1, math.Inf(1)}, {-1, 1, 1}} {
		if _, err := New(kinectLike(), Config{Gain: gain}); err == nil {
			t.Errorf("%v is taken", gain)
		}
	}
}
