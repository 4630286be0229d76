package depthmap

import (
	"image/color"
	"math"
	"testing"

	"holocast/capture-server/source"
	"holocast/capture-server/source/synthetic"
	"holocast/internal/camera"
	"holocast/internal/mjpeg"
	"holocast/internal/pointcloud"
)

// TestGrazingRemovesFlyingPixels compares the synthetic sensor's readings with the exact depth.
func TestGrazingRemovesFlyingPixels(t *testing.T) {
	var exact []float32
	studio, err := synthetic.Open(t.Context(), synthetic.Options{
		Cut: 1, Room: true, Exact: func(_, _ int, depth []float32, _ []byte) { exact = depth },
	})
	if err != nil {
		t.Fatal(err)
	}
	var f source.Frame
	if err := studio.Cameras[0].Next(t.Context(), &f); err != nil {
		t.Fatal(err)
	}
	filters := map[string]Config{
		"grazing":  {Grazing: 10},
		"isolated": {Isolated: Isolated{Neighbors: 3}},
		"erode":    {Erode: Erode{Radius: 1}},
	}
	for name, cfg := range filters {
		clean := newMapper(t, studio.Cameras[0].Calibration(), cfg).filter(f.Depth)
		var flying, gone, good, lost float64
		for i, z := range f.Depth {
			const noise = 30 // millimetres
			switch off := math.Abs(float64(z) - 1000*float64(exact[i])); {
			case z == 0:
			case off > noise && clean[i] == 0:
				gone++
				fallthrough
			case off > noise:
				flying++
			case clean[i] == 0:
				lost++
				fallthrough
			default:
				good++
			}
		}
		t.Logf("%s removes %.1f %% of %.0f flying pixels and %.2f %% of %.0f others", name, 100*gone/flying, flying,
			100*lost/good, good)
		if name == "grazing" && (flying < 500 || gone < 0.4*flying || lost > 0.003*good) {
			t.Error("want 40 % of at least 500 and at most 0.3 %")
		}
	}
}

// disc is a red disc in front of a green wall, as JPEG. The colour image is off by shift pixels, as with
// an imperfect calibration. If wide is set, readings that cover the disc in part are on the disc.
func disc(t *testing.T, cal camera.Calibration, shift float64, wide bool) *source.Frame {
	t.Helper()
	const near, wall, radius = 1200, 2500, 200
	f := &source.Frame{Format: camera.MJPG}
	for i := range cal.Depth.Width * cal.Depth.Height {
		reading := uint16(wall)
		for _, d := range [5][2]float64{{0, 0}, {0.5, 0}, {-0.5, 0}, {0, 0.5}, {0, -0.5}} {
			x, y, ok := cal.Depth.Unproject(float64(i%cal.Depth.Width)+d[0], float64(i/cal.Depth.Width)+d[1])
			if ok && math.Hypot(x, y)*near < radius && (wide || d == [2]float64{}) {
				reading = near
			}
		}
		f.Depth = append(f.Depth, reading)
	}
	back := cal.DepthToColor.Inverse()
	turn := camera.Transform{R: back.R}
	w, h := cal.Color.Width, cal.Color.Height
	rgb := make([]byte, 3*w*h)
	for i := range w * h {
		inside := 0 // of 3×3 samples per pixel
		for s := range 9 {
			x, y, _ := cal.Color.Unproject(float64(i%w)-shift+float64(s%3-1)/3, float64(i/w)+float64(s/3-1)/3)
			d := turn.Apply([3]float64{x, y, 1})
			k := (near - back.T[2]) / d[2]
			if math.Hypot(back.T[0]+k*d[0], back.T[1]+k*d[1]) < radius {
				inside++
			}
		}
		rgb[3*i], rgb[3*i+1], rgb[3*i+2] = uint8(20+200*inside/9), uint8(20+200*(9-inside)/9), 20
	}
	encoder, err := mjpeg.NewEncoder()
	if err != nil {
		t.Fatal(err)
	}
	defer encoder.Close()
	if f.Color, err = encoder.EncodeRGB(nil, rgb, w, h, 90); err != nil {
		t.Fatal(err)
	}
	return f
}

// rimBleed returns the mean share of the wall's colour in the points on the disc's edge.
func rimBleed(g *pointcloud.Grid) float64 {
	const near = 1200
	var sum, n float64
	for i, z := range g.Depth {
		x, y := i%g.Width, i/g.Width
		if z != near || x == 0 || y == 0 || x == g.Width-1 || y == g.Height-1 {
			continue
		}
		edge := false
		for k := range 9 {
			edge = edge || g.Depth[i+(k/3-1)*g.Width+k%3-1] != near
		}
		if edge {
			sum += max(0, (float64(g.Color[3*i+1])-20)/200)
			n++
		}
	}
	return sum / n
}

// TestColorInset checks that the background's colour does not bleed onto the edge of a near surface.
func TestColorInset(t *testing.T) {
	cal := kinectLike()
	for name, tt := range map[string]struct {
		shift float64
		wide  bool
		rows  int
	}{
		"exact":          {0, false, 1},
		"wide":           {0, true, 1},
		"shifted":        {1, false, 1},
		"wide shifted":   {1, true, 1},
		"every 2nd row":  {0, true, 2},
		"every 60th row": {0, true, 60}, // three rows
		"every 72nd row": {0, true, 72}, // two rows
	} {
		t.Run(name, func(t *testing.T) {
			f := disc(t, cal, tt.shift, tt.wide)
			var bleed [3]float64
			var g pointcloud.Grid
			for inset := range bleed {
				m := newMapper(t, cal, Config{ColorInset: inset})
				if err := m.MapRows(f, &g, tt.rows); err != nil {
					t.Fatal(err)
				}
				bleed[inset] = rimBleed(&g)
			}
			t.Logf("share of the wall's colour on the disc's edge: %.3f", bleed)
			if tt.rows == 1 && (bleed[1] > 0.25*bleed[0] || bleed[2] > 0.1*bleed[0]) {
				t.Errorf("want at most %.3f and %.3f with insets 1 and 2", 0.25*bleed[0], 0.1*bleed[0])
			}
		})
	}
}

// TestColorInsetKeepsOthers checks that an inset changes colours of edges only, to the colour of
// another point of the surface.
func TestColorInsetKeepsOthers(t *testing.T) {
	cal := kinectLike()
	f := source.Frame{Depth: flat(cal.Depth.Width*cal.Depth.Height, 1500)}
	hole := 72*cal.Depth.Width + 80
	f.Depth[hole] = 0
	paint(t, &f, camera.BGRA, cal.Color.Width, cal.Color.Height, func(x, y int) color.RGBA {
		return color.RGBA{R: uint8(x), G: uint8(y), A: 255}
	})
	var plain, inset pointcloud.Grid
	for g, n := range map[*pointcloud.Grid]int{&plain: 0, &inset: 1} {
		if err := newMapper(t, cal, Config{ColorInset: n}).Map(&f, g); err != nil {
			t.Fatal(err)
		}
	}
	at := func(g *pointcloud.Grid, x, y int) [3]byte { return [3]byte(g.Color[3*(hole+y*g.Width+x):]) }
	for y := -4; y <= 4; y++ {
		for x := -4; x <= 4; x++ {
			want := at(&plain, x, y)
			switch ring := max(x, -x, y, -y); {
			case ring == 0:
				continue
			case ring == 1 && x != 0:
				want = at(&plain, 2*x, y)
			case ring == 1:
				want = at(&plain, 0, 2*y)
			}
			if got := at(&inset, x, y); got != want {
				t.Errorf("%+d %+d of the hole: %v, want %v", x, y, got, want)
			}
		}
	}
}
