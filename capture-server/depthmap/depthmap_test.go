package depthmap

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"holocast/capture-server/source"
	"holocast/internal/camera"
	"holocast/internal/mjpeg"
	"holocast/internal/pointcloud"
)

// kinectLike returns the calibration of an Azure Kinect at a quarter of the resolution of NFOV and
// 720p.
func kinectLike() camera.Calibration {
	lean := 6 * math.Pi / 180 // the depth camera looks down by 6°
	return camera.Calibration{
		Depth: camera.Intrinsics{
			Width: 160, Height: 144, Fx: 126, Fy: 126, Cx: 80.3, Cy: 82.1,
			K: [6]float64{0.9, 0.3, 0.02, 1.2, 0.5, 0.08}, P: [2]float64{1e-4, -5e-5}, MaxRadius: 1.74,
		},
		Color: camera.Intrinsics{
			Width: 320, Height: 180, Fx: 152, Fy: 152, Cx: 159.2, Cy: 91.4,
			K: [6]float64{0.6, -2.7, 1.5, 0.48, -2.5, 1.4}, P: [2]float64{3e-4, -2e-4}, MaxRadius: 1.7,
		},
		DepthToColor: camera.Transform{
			R: [9]float64{1, 0, 0, 0, math.Cos(lean), math.Sin(lean), 0, -math.Sin(lean), math.Cos(lean)},
			T: [3]float64{-32, -2, 4},
		},
	}
}

func newMapper(t testing.TB, cal camera.Calibration, cfg Config) *Mapper {
	t.Helper()
	m, err := New(cal, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// seenAt returns, in double precision, where the colour camera sees depth pixel i at depth z.
func seenAt(cal *camera.Calibration, i int, z uint16) (u, v float64, ok bool) {
	x, y, ok := cal.Depth.Unproject(float64(i%cal.Depth.Width), float64(i/cal.Depth.Width))
	if !ok || z == 0 {
		return 0, 0, false
	}
	d := float64(z)
	return cal.Color.Project(cal.DepthToColor.Apply([3]float64{x * d, y * d, d}))
}

func inside(u, v float64, in camera.Intrinsics, margin float64) bool {
	return u > margin && v > margin && u < float64(in.Width-1)-margin && v < float64(in.Height-1)-margin
}

func TestProjectAgreesWithCamera(t *testing.T) {
	cal := kinectLike()
	m := newMapper(t, cal, Config{})
	rng := rand.New(rand.NewPCG(1, 2))
	depth := make([]uint16, cal.Depth.Width*cal.Depth.Height)
	for i := range depth {
		depth[i] = uint16(rng.IntN(6000))
		if i%7 == 0 {
			depth[i] = 0
		}
	}
	m.project(depth)
	var worst float64
	seen := 0
	for i, z := range depth {
		u, v, ok := seenAt(&cal, i, z)
		got := m.u[i] != 0xffff
		switch {
		case ok && inside(u, v, cal.Color, 0.1):
			if !got {
				t.Fatalf("pixel %d at %d mm is at (%.2f, %.2f) of the colour image, the kernel says outside", i, z, u,
					v)
			}
			seen++
			worst = max(worst, math.Abs(float64(m.u[i])/16-u), math.Abs(float64(m.v[i])/16-v))
		case got && (!ok || !inside(u, v, cal.Color, -0.6)):
			t.Fatalf("pixel %d at %d mm is at (%.2f, %.2f) %v, the kernel says inside", i, z, u, v, ok)
		}
	}
	if worst > 0.05 || seen < len(depth)/4 {
		t.Errorf("largest error %.3f pixels of %d points, want at most 0.05 (positions are sixteenths)", worst, seen)
	}
}

func TestProjectAgreesWithCameraOnRealCalibration(t *testing.T) {
	cal, f := realFrame(t, camera.NFOVUnbinned, camera.Color720P)
	m := newMapper(t, cal, Config{})
	m.project(f.Depth)
	var worst float64
	for i, z := range f.Depth {
		if u, v, ok := seenAt(&cal, i, z); ok && inside(u, v, cal.Color, 0.1) {
			worst = max(worst, math.Abs(float64(m.u[i])/16-u), math.Abs(float64(m.v[i])/16-v))
		}
	}
	if worst > 0.05 {
		t.Errorf("largest error %.3f pixels, want at most 0.05", worst)
	}
}

// paint sets f's colour image, in the given format, to the colours that at returns.
func paint(t testing.TB, f *source.Frame, format camera.ColorFormat, w, h int, at func(x, y int) color.RGBA) {
	t.Helper()
	f.Format, f.Color = format, nil
	ycc := func(x, y int) (uint8, uint8, uint8) { // BT.601 limited range
		c := at(x, y)
		r, g, b := float64(c.R), float64(c.G), float64(c.B)
		return uint8(
			16 + 0.257*r + 0.504*g + 0.098*b + 0.5,
		), uint8(128 - 0.148*r - 0.291*g + 0.439*b + 0.5), uint8(128 + 0.439*r - 0.368*g - 0.071*b + 0.5)
	}
	switch format {
	case camera.BGRA:
		for i := range w * h {
			c := at(i%w, i/w)
			f.Color = append(f.Color, c.B, c.G, c.R, 255)
		}
	case camera.MJPG:
		img := image.NewRGBA(image.Rect(0, 0, w, h))
		for i := range w * h {
			img.SetRGBA(i%w, i/w, at(i%w, i/w))
		}
		var buf bytes.Buffer
		if err := jpeg.Encode(&buf, img, &jpeg.Options{Quality: 98}); err != nil {
			t.Fatal(err)
		}
		f.Color = buf.Bytes()
	case camera.NV12:
		f.Color = make([]byte, w*h*3/2)
		for i := range w * h {
			x, y := i%w, i/w
			l, cb, cr := ycc(x, y)
			f.Color[i] = l
			c := w*h + y/2*w + x/2*2
			f.Color[c], f.Color[c+1] = cb, cr
		}
	case camera.YUY2:
		f.Color = make([]byte, 2*w*h)
		for i := range w * h {
			l, cb, cr := ycc(i%w, i/w)
			f.Color[2*i] = l
			f.Color[i/2*4+1], f.Color[i/2*4+3] = cb, cr
		}
	}
}

func flat(n int, z uint16) []uint16 {
	depth := make([]uint16, n)
	for i := range depth {
		depth[i] = z
	}
	return depth
}

func TestColourFormatsAgree(t *testing.T) {
	cal := kinectLike()
	w, h := cal.Color.Width, cal.Color.Height
	gradient := func(x, y int) color.RGBA {
		return color.RGBA{R: uint8(40 + 160*x/w), G: uint8(40 + 160*y/h), B: uint8(200 - 100*x/w), A: 255}
	}
	for _, format := range []camera.ColorFormat{camera.MJPG, camera.NV12, camera.YUY2, camera.BGRA} {
		for _, geometry := range []Geometry{DepthGeometry, ColorGeometry} {
			t.Run(string(format)+"_"+string(geometry), func(t *testing.T) {
				f := source.Frame{Depth: flat(cal.Depth.Width*cal.Depth.Height, 1500)}
				paint(t, &f, format, w, h, gradient)
				var g pointcloud.Grid
				if err := newMapper(t, cal, Config{Geometry: geometry}).Map(&f, &g); err != nil {
					t.Fatal(err)
				}
				checked := 0
				for i, z := range g.Depth {
					if z == 0 {
						continue
					}
					u, v := float64(i%g.Width), float64(i/g.Width)
					if geometry == DepthGeometry {
						u, v, _ = seenAt(&cal, i, 1500)
					}
					if !inside(u, v, cal.Color, 2) {
						continue
					}
					want := gradient(int(u+0.5), int(v+0.5))
					for c, level := range []uint8{want.R, want.G, want.B} {
						if d := int(g.Color[3*i+c]) - int(level); d < -6 || d > 6 {
							t.Fatalf("point %d seen at (%.1f, %.1f): channel %d is %d, painted %d", i, u, v, c,
								g.Color[3*i+c], level)
						}
					}
					checked++
				}
				if checked < 5000 {
					t.Errorf("only %d points have colour", checked)
				}
			})
		}
	}
}

// TestNearColourDoesNotBleed puts a square far in front of a wall. It hides a part of the wall from
// the colour camera but not from the depth camera; that part must not get the square's colour.
func TestNearColourDoesNotBleed(t *testing.T) {
	cal := kinectLike()
	wall, square := uint16(2500), uint16(700)
	depth := flat(cal.Depth.Width*cal.Depth.Height, wall)
	for y := 50; y < 100; y++ {
		for x := 60; x < 110; x++ {
			depth[y*cal.Depth.Width+x] = square
		}
	}
	red := make(map[int]bool) // colour pixels that show the square
	for i, z := range depth {
		if z == square {
			u, v, _ := seenAt(&cal, i, z)
			for dy := -1; dy <= 1; dy++ {
				for dx := -1; dx <= 1; dx++ {
					red[(int(v+0.5)+dy)*cal.Color.Width+int(u+0.5)+dx] = true
				}
			}
		}
	}
	f := source.Frame{Depth: depth}
	paint(t, &f, camera.BGRA, cal.Color.Width, cal.Color.Height, func(x, y int) color.RGBA {
		if red[y*cal.Color.Width+x] {
			return color.RGBA{R: 255, A: 255}
		}
		return color.RGBA{G: 255, A: 255}
	})
	var g pointcloud.Grid
	if err := newMapper(t, cal, Config{}).Map(&f, &g); err != nil {
		t.Fatal(err)
	}
	var redWall, greenWall, redSquare, hidden int
	for i, z := range g.Depth {
		u, v, seen := seenAt(&cal, i, depth[i])
		// The painted square is one pixel larger on each side.
		deep := seen
		for dy := -2; dy <= 2; dy++ {
			for dx := -2; dx <= 2; dx++ {
				deep = deep && red[(int(v+0.5)+dy)*cal.Color.Width+int(u+0.5)+dx]
			}
		}
		switch {
		case z == wall && deep:
			redWall++
		case z == wall:
			greenWall++
		case z == square && g.Color[3*i] > 200:
			redSquare++
		case z == 0 && depth[i] == wall && seen && i/g.Width >= 50 && i/g.Width < 100:
			hidden++
		}
	}
	// With lenses 32 mm apart, a square at 700 mm shifts by 4 depth pixels against a wall at 2500
	// mm.
	if redWall > 0 || redSquare < 49*49 || greenWall < 10000 || hidden < 50*3 || hidden > 50*8 {
		t.Errorf("wall: %d red, %d green, %d hidden beside the square; square: %d red of 2500", redWall, greenWall,
			hidden, redSquare)
	}
}

func TestColorGeometryRendersDepth(t *testing.T) {
	cal := kinectLike()
	// A wall perpendicular to the colour camera's axis, 1800 mm away from it.
	const wall = 1800
	depth := make([]uint16, cal.Depth.Width*cal.Depth.Height)
	r := cal.DepthToColor.R
	for i := range depth {
		x, y, ok := cal.Depth.Unproject(float64(i%cal.Depth.Width), float64(i/cal.Depth.Width))
		if ok {
			depth[i] = uint16((wall-cal.DepthToColor.T[2])/(r[6]*x+r[7]*y+r[8]) + 0.5)
		}
	}
	f := source.Frame{Depth: depth}
	paint(t, &f, camera.BGRA, cal.Color.Width, cal.Color.Height,
		func(int, int) color.RGBA { return color.RGBA{A: 255} })
	var g pointcloud.Grid
	m := newMapper(t, cal, Config{Geometry: ColorGeometry})
	if err := m.Map(&f, &g); err != nil {
		t.Fatal(err)
	}
	if g.Width != 320 || g.Height != 180 {
		t.Fatalf("grid of %d×%d, want the colour camera's 320×180", g.Width, g.Height)
	}
	for y := 30; y < 150; y++ {
		for x := 80; x < 240; x++ {
			if z := g.Depth[y*g.Width+x]; z < wall-1 || z > wall+1 {
				t.Fatalf("pixel (%d, %d) is at %d mm, want %d ± 1", x, y, z, wall)
			}
		}
	}
	out, toDepth := m.Output()
	if out != cal.Color {
		t.Errorf("grid's lens is %+v", out)
	}
	if p := toDepth.Apply([3]float64{32, 2, -4}); math.Abs(p[0])+math.Abs(p[2]) > 64+8 {
		t.Errorf("colour camera's pose moves a point near the depth camera's origin to %v", p)
	}
	back := toDepth.Compose(cal.DepthToColor)
	for i, v := range back.R {
		if math.Abs(v-camera.Identity.R[i]) > 1e-9 {
			t.Fatalf("pose after DepthToColor is %v, want identity", back)
		}
	}
}

func TestFilters(t *testing.T) {
	cal := kinectLike()
	w := cal.Depth.Width
	center := 72*w + 80
	scene := func() []uint16 { return flat(w*cal.Depth.Height, 2000) }
	turn := camera.Transform{
		R: [9]float64{0, 0, 1, 0, 1, 0, -1, 0, 0},
		T: [3]float64{-2000, 0, 0},
	} // camera on −x, looking along +x

	tests := []struct {
		name    string
		cfg     Config
		spoil   func(depth []uint16)
		removed []int
		kept    []int
	}{
		{
			name: "least depth", cfg: Config{DepthMin: 1001},
			spoil:   func(d []uint16) { d[center], d[center+40] = 1000, 1001 },
			removed: []int{center}, kept: []int{center + 40, center + 5},
		},
		{
			name: "greatest depth", cfg: Config{DepthMax: 2000},
			spoil:   func(d []uint16) { d[center] = 2001 },
			removed: []int{center}, kept: []int{center + 1},
		},
		{
			name:  "crop in studio space",
			cfg:   Config{Pose: turn, Crop: &Box{Min: [3]float64{-100, -200, -200}, Max: [3]float64{100, 200, 200}}},
			spoil: func(d []uint16) { d[center+1] = 2101 },
			removed: []int{
				center + 1,
				center + 40,
				center - 40,
				center + 40*w,
			}, kept: []int{center, center + 3, center + 3*w},
		},
		{
			// The limit at 2000 mm is 50 mm along rows and columns.
			name: "grazing", cfg: Config{Grazing: 17.6},
			spoil: func(d []uint16) {
				d[center], d[center+10], d[center+20] = 1900, 1960, 2100
				d[center+30], d[center+31] = 2100, 2100                                // a surface
				d[center+10*w], d[center+10*w+1], d[center+10*w-1] = 1900, 0, 0        // between holes
				d[center+20*w], d[center+20*w+1], d[center+21*w+1] = 1900, 0, 0        // beside one
				d[center+30*w], d[center+31*w] = 2200, 2200                            // a thin surface
				d[center+40*w], d[center+41*w], d[center+40*w+1] = 2000+80, 2080, 2080 // a corner
			},
			removed: []int{
				center, center + 20, center + 30, center + 31, center + 10*w, center + 20*w, center + 30*w, center + 31*w,
			},
			kept: []int{
				center + 1, center - w, center + 10, center + 11, center + 30 - 1, center + 40*w - 1,
			},
		},
		{
			name: "erode at a hole", cfg: Config{Erode: Erode{Radius: 2}},
			spoil:   func(d []uint16) { d[center] = 0 },
			removed: []int{center + 2, center - 2*w - 2, center + 2*w}, kept: []int{center + 3, center - 3*w},
		},
		{
			name: "erode behind an edge", cfg: Config{Erode: Erode{Radius: 1, Step: 60}},
			spoil:   func(d []uint16) { d[center], d[center+40] = 1939, 1941 },
			removed: []int{center + 1, center - w - 1}, kept: []int{center, center + 2, center + 41},
		},
		{
			name: "isolated", cfg: Config{Isolated: Isolated{Neighbors: 2}},
			spoil: func(d []uint16) {
				d[center], d[center+20], d[center+21], d[center+20+w] = 1500, 1500, 1529, 1500
			},
			removed: []int{center}, kept: []int{center + 1, center + 20, center + 21},
		},
		{
			name: "isolated 5×5", cfg: Config{Isolated: Isolated{Neighbors: 1, Radius: 2, Band: 10}},
			spoil:   func(d []uint16) { d[center], d[center+2], d[center+20], d[center+23] = 1500, 1510, 1500, 1500 },
			removed: []int{center + 20, center + 23}, kept: []int{center, center + 2},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := source.Frame{Depth: scene()}
			tt.spoil(f.Depth)
			before := bytes.Clone(depthBytes(f.Depth))
			paint(t, &f, camera.BGRA, cal.Color.Width, cal.Color.Height,
				func(int, int) color.RGBA { return color.RGBA{} })
			var g pointcloud.Grid
			if err := newMapper(t, cal, tt.cfg).Map(&f, &g); err != nil {
				t.Fatal(err)
			}
			for _, i := range tt.removed {
				if g.Depth[i] != 0 {
					t.Errorf("pixel centre%+d is still at %d mm", i-center, g.Depth[i])
				}
			}
			for _, i := range tt.kept {
				if g.Depth[i] != f.Depth[i] {
					t.Errorf("pixel centre%+d is at %d mm, want %d", i-center, g.Depth[i], f.Depth[i])
				}
			}
			if !bytes.Equal(before, depthBytes(f.Depth)) {
				t.Error("the frame's depth was changed")
			}
		})
	}
}

func depthBytes(d []uint16) []byte {
	b := make([]byte, 0, 2*len(d))
	for _, z := range d {
		b = append(b, byte(z), byte(z>>8))
	}
	return b
}

// TestClippedStillHides checks that clipped points still occlude others, in both geometries.
func TestClippedStillHides(t *testing.T) {
	cal := kinectLike()
	depth := flat(cal.Depth.Width*cal.Depth.Height, 2500)
	for y := 50; y < 100; y++ {
		for x := 60; x < 110; x++ {
			depth[y*cal.Depth.Width+x] = 700
		}
	}
	for _, geometry := range []Geometry{DepthGeometry, ColorGeometry} {
		t.Run(string(geometry), func(t *testing.T) {
			f := source.Frame{Depth: depth}
			paint(t, &f, camera.BGRA, cal.Color.Width, cal.Color.Height,
				func(int, int) color.RGBA { return color.RGBA{} })
			var all, clipped pointcloud.Grid
			if err := newMapper(t, cal, Config{Geometry: geometry}).Map(&f, &all); err != nil {
				t.Fatal(err)
			}
			if err := newMapper(t, cal, Config{Geometry: geometry, DepthMin: 1000}).Map(&f, &clipped); err != nil {
				t.Fatal(err)
			}
			for i, z := range clipped.Depth {
				want := all.Depth[i]
				if want < 1000 {
					want = 0
				}
				if z != want {
					t.Fatalf("pixel %d is at %d mm, want %d", i, z, want)
				}
			}
		})
	}
}

func TestMapRefuses(t *testing.T) {
	cal := kinectLike()
	n := cal.Depth.Width * cal.Depth.Height
	var small source.Frame
	paint(t, &small, camera.MJPG, 64, 32, func(int, int) color.RGBA { return color.RGBA{} })
	for _, geometry := range []Geometry{DepthGeometry, ColorGeometry} {
		m := newMapper(t, cal, Config{Geometry: geometry})
		for _, tt := range []struct {
			name string
			f    source.Frame
			want string
		}{
			{"no colour", source.Frame{Depth: make([]uint16, n)}, "frame has no colour image"},
			{
				"depth of another mode",
				source.Frame{Depth: make([]uint16, 320*288), Color: small.Color, Format: camera.MJPG},
				"depth image has 92160 pixels, calibration has 160×144 (23040)",
			},
			{
				"JPEG of another size",
				source.Frame{Depth: make([]uint16, n), Color: small.Color, Format: camera.MJPG},
				"colour image is 64×32, calibration has 320×180",
			},
			{
				"damaged JPEG",
				source.Frame{Depth: make([]uint16, n), Color: small.Color[:30], Format: camera.MJPG},
				"corrupt JPEG image of 30 bytes",
			},
			{"NV12 of another size", source.Frame{
				Depth: make([]uint16, n), Color: make([]byte, 100),
				Format: camera.NV12,
			}, "NV12 colour image has 100 bytes, calibration's 320×180 pixels have 86400"},
			{"YUY2 of another size", source.Frame{
				Depth: make([]uint16, n), Color: make([]byte, 100),
				Format: camera.YUY2,
			}, "YUY2 colour image has 100 bytes, calibration's 320×180 pixels have 115200"},
			{"BGRA of another size", source.Frame{
				Depth: make([]uint16, n), Color: make([]byte, 100),
				Format: camera.BGRA,
			}, "BGRA colour image has 100 bytes, calibration's 320×180 pixels have 230400"},
			{
				"unknown format",
				source.Frame{Depth: make([]uint16, n), Color: make([]byte, 100), Format: "H264"},
				`colour format "H264", want MJPG, NV12, YUY2 or BGRA`,
			},
		} {
			t.Run(tt.name+"_"+string(geometry), func(t *testing.T) {
				var g pointcloud.Grid
				err := m.Map(&tt.f, &g)
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v, want one with %q", err, tt.want)
				}
				if got := errors.Is(err, ErrNoColor); got != (tt.name == "no colour") {
					t.Errorf("errors.Is(%v, ErrNoColor) is %v", err, got)
				}
			})
		}
	}
}

// TestWithoutColor checks that depth is mapped if colour is missing or damaged.
func TestWithoutColor(t *testing.T) {
	cal := kinectLike()
	blind := cal
	blind.Color, blind.DepthToColor = camera.Intrinsics{}, camera.Identity
	n := cal.Depth.Width * cal.Depth.Height
	depth, ir := flat(n, 1500), flat(n, 500)
	var red, small source.Frame
	at := func(c color.RGBA) func(int, int) color.RGBA { return func(int, int) color.RGBA { return c } }
	paint(t, &red, camera.MJPG, cal.Color.Width, cal.Color.Height, at(color.RGBA{R: 200, A: 255}))
	paint(t, &small, camera.MJPG, 64, 32, at(color.RGBA{}))
	seen := color.RGBA{R: 200}
	grey, infrared := color.RGBA{R: 128, G: 128, B: 128}, color.RGBA{R: 127, G: 127, B: 127}
	for _, tt := range []struct {
		name      string
		cal       camera.Calibration
		color     []byte
		ir        []uint16
		want      color.RGBA
		wantColor color.RGBA // in colour geometry
		err       error
	}{
		{"no colour camera", blind, nil, nil, grey, color.RGBA{}, nil},
		{"no colour camera, infrared", blind, nil, ir, infrared, color.RGBA{}, nil},
		{"no image", cal, nil, nil, grey, grey, ErrNoColor},
		{"no image, infrared", cal, nil, ir, infrared, grey, ErrNoColor},
		{"another size", cal, small.Color, ir, infrared, grey, errors.ErrUnsupported},
		{"no end marker", cal, red.Color[:len(red.Color)-2], ir, seen, seen, mjpeg.ErrIncomplete},
		{"corrupt", cal, red.Color[:30], ir, infrared, grey, mjpeg.ErrCorrupt},
	} {
		for geometry, want := range map[Geometry]color.RGBA{DepthGeometry: tt.want, ColorGeometry: tt.wantColor} {
			if want == (color.RGBA{}) {
				continue
			}
			t.Run(tt.name+"_"+string(geometry), func(t *testing.T) {
				m := newMapper(t, tt.cal, Config{Geometry: geometry})
				var g pointcloud.Grid
				err := m.Map(&source.Frame{Depth: depth, Color: tt.color, Format: camera.MJPG, IR: tt.ir}, &g)
				if bad := (*ColorError)(nil); (tt.err != nil) != errors.As(err, &bad) ||
					tt.err != errors.ErrUnsupported && !errors.Is(err, tt.err) {
					t.Errorf("error %v, want %v", err, tt.err)
				}
				middle := g.Height/2*g.Width + g.Width/2
				if got := g.Color[3*middle : 3*middle+3]; g.Depth[middle] < 1400 || !near(got, want, 3) {
					t.Errorf("depth %d of colour %v, want %v", g.Depth[middle], got, want)
				}
			})
		}
	}
}

func near(got []byte, want color.RGBA, most int) bool {
	for i, w := range []byte{want.R, want.G, want.B} {
		if d := int(got[i]) - int(w); d < -most || d > most {
			return false
		}
	}
	return true
}

// TestColorOfHalf checks that points do not flicker if a camera captures colour in only half of its
// frames, and that old colour is not used.
func TestColorOfHalf(t *testing.T) {
	cal := kinectLike()
	for _, format := range []camera.ColorFormat{camera.MJPG, camera.NV12, camera.BGRA} {
		t.Run(string(format), func(t *testing.T) {
			m := newMapper(t, cal, Config{})
			began := time.Now()
			var g pointcloud.Grid
			for k, after := range []int{0, 33, 66, 100, 133, 1000} { // milliseconds
				f := source.Frame{
					Depth:       flat(cal.Depth.Width*cal.Depth.Height, 1500),
					CaptureTime: began.Add(time.Duration(after) * time.Millisecond),
				}
				if k%2 == 0 && k < 4 {
					paint(t, &f, format, cal.Color.Width, cal.Color.Height, func(int, int) color.RGBA {
						return color.RGBA{R: 200, A: 255}
					})
				}
				err := m.Map(&f, &g)
				if (err == nil) != (len(f.Color) > 0) {
					t.Errorf("capture %d: error %v", k, err)
				}
				clear(f.Color) // released
				want := color.RGBA{R: 200}
				if k == 1 || k == 5 { // no earlier image is kept, or it is too old
					want = color.RGBA{R: 128, G: 128, B: 128}
				}
				middle := g.Height/2*g.Width + g.Width/2
				if got := g.Color[3*middle : 3*middle+3]; !near(got, want, 4) {
					t.Errorf("capture %d has colour %v, want %v", k, got, want)
				}
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	good := kinectLike()
	noColor := good
	noColor.Color = camera.Intrinsics{}
	large, tiny := good, good
	large.Color.Width = 4097
	tiny.Color.Height = 1
	broken := good
	broken.Depth.Fx = 0
	for _, tt := range []struct {
		name string
		cal  camera.Calibration
		cfg  Config
		want string
	}{
		{"calibration", broken, Config{}, "calibration: depth: focal length"},
		{
			"no colour camera", noColor,
			Config{Geometry: ColorGeometry},
			`geometry is "color", but the camera captures no colour; set "depth"`,
		},
		{"colour too large", large, Config{}, "colour camera has 4097×180 pixels, want 16 to 4096 each way"},
		{"colour too small", tiny, Config{}, "colour camera has 320×1 pixels, want 16 to 4096 each way"},
		{"geometry", good, Config{Geometry: "mesh"}, `geometry is "mesh", want "depth" or "color"`},
		{
			"depth range", good,
			Config{DepthMin: 3000, DepthMax: 1000},
			"minimum depth 3000 mm exceeds maximum depth 1000 mm",
		},
		{
			"crop", good,
			Config{Crop: &Box{Min: [3]float64{0, 5, 0}, Max: [3]float64{1, 5, 1}}},
			"crop box is empty: y from 5 to 5 mm",
		},
		{"erode", good, Config{Erode: Erode{Radius: 9}}, "erode radius is 9 pixels, want 0 to 8"},
		{"erode step", good, Config{Erode: Erode{Step: -1}}, "erode step is -1 mm"},
		{"isolated", good, Config{Isolated: Isolated{Neighbors: 9}}, "needs 9 neighbours, but its window holds 8"},
		{
			"isolated radius", good,
			Config{Isolated: Isolated{Radius: 4}},
			"isolated-point radius is 4 pixels, want 1 to 3",
		},
		{"isolated band", good, Config{Isolated: Isolated{Band: 500}}, "isolated-point band is 500 mm, want 1 to 250"},
		{"pose", good, Config{Pose: camera.Transform{R: [9]float64{2, 0, 0, 0, 1, 0, 0, 0, 1}}}, "pose: rotation"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := New(tt.cal, tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// TestRows checks that a grid with only every second or fourth row mapped equals the full grid in
// these rows, except at the edges of occluders.
func TestRows(t *testing.T) {
	for _, geometry := range []Geometry{DepthGeometry, ColorGeometry} {
		for _, format := range []camera.ColorFormat{camera.MJPG, camera.BGRA} {
			t.Run(string(geometry)+" "+string(format), func(t *testing.T) {
				cal, f := realFrame(t, camera.NFOVUnbinned, camera.Color720P)
				if format == camera.BGRA {
					paint(t, f, camera.BGRA, cal.Color.Width, cal.Color.Height,
						func(x, y int) color.RGBA { return color.RGBA{R: byte(x), G: byte(y), A: 255} })
				}
				m := newMapper(t, cal, Config{Geometry: geometry, DepthMax: 4000})
				var whole, g pointcloud.Grid
				if err := m.Map(f, &whole); err != nil {
					t.Fatal(err)
				}
				for _, every := range []int{2, 4, 1} {
					if err := m.MapRows(f, &g, every); err != nil {
						t.Fatal(err)
					}
					kept, lost := 0, 0
					for i, z := range g.Depth {
						want := whole.Depth[i]
						switch y := i / g.Width; {
						case y%every != 0 && z != 0:
							t.Fatalf("1 of %d: row %d has a point", every, y)
						case y%every == 0 && z == 0 && want != 0:
							lost++
						case z != 0 && want == 0:
							// With fewer rows the occlusion test is less precise.
							lost++
						case z != 0 && (z != want || [3]byte(g.Color[3*i:]) != [3]byte(whole.Color[3*i:])):
							t.Fatalf("1 of %d: pixel %d differs from the whole grid's", every, i)
						case z != 0:
							kept++
						}
					}
					if limit := kept / 20; lost > limit || every == 1 && lost > 0 || kept < 10_000 {
						t.Errorf("1 of %d: %d points, %d others than in the whole grid, want at most %d", every, kept,
							lost, limit)
					}
				}
			})
		}
	}
}
