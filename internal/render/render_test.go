package render

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holocast/internal/camera"
	"holocast/internal/plyfile"
	"holocast/internal/pointcloud"
)

func dataFile(t testing.TB, parts ...string) string {
	t.Helper()
	dir := os.Getenv("HOLOCAST_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	file := filepath.Join(append([]string{dir}, parts...)...)
	if _, err := os.Stat(file); err != nil {
		t.Skipf("HOLOCAST_DATA not found: %v", err)
	}
	return file
}

// person reads a person from a PCD file: x y z as float32 in metres, binary, LZF-compressed, one
// coordinate array after another.
func person(t testing.TB) pointcloud.Points {
	t.Helper()
	file, err := os.ReadFile(dataFile(t, "pcl_person", "pcl_person.pcd"))
	if err != nil {
		t.Fatal(err)
	}
	const mark = "DATA binary_compressed\n"
	body := file[bytes.Index(file, []byte(mark))+len(mark):]
	packed, size := binary.LittleEndian.Uint32(body), binary.LittleEndian.Uint32(body[4:])
	raw := unLZF(body[8:8+packed], int(size))
	n := len(raw) / 12
	var p pointcloud.Points
	for i := range n {
		var xyz [3]float64
		for k := range 3 {
			xyz[k] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*(k*n+i):])))
		}
		if math.IsNaN(xyz[2]) {
			continue
		}
		for k := range 3 {
			p.XYZ = append(p.XYZ, int16(xyz[k]*1000))
			p.RGB = append(p.RGB, 220)
		}
	}
	return p
}

func unLZF(in []byte, size int) []byte {
	out := make([]byte, 0, size)
	for len(in) > 0 {
		c := int(in[0])
		in = in[1:]
		if c < 32 {
			out = append(out, in[:c+1]...)
			in = in[c+1:]
			continue
		}
		n := c >> 5
		if n == 7 {
			n += int(in[0])
			in = in[1:]
		}
		from := len(out) - (c&31)<<8 - int(in[0]) - 1
		in = in[1:]
		for range n + 2 {
			out = append(out, out[from])
			from++
		}
	}
	return out
}

func sequence(t testing.TB) pointcloud.Points {
	t.Helper()
	f, err := os.Open(dataFile(t, "point_sequence", "00022.ply"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := plyfile.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Points(1000)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ball returns n points on a sphere, the upper half red and the left half green.
func ball(n int) pointcloud.Points {
	rng := rand.New(rand.NewPCG(1, 2))
	var p pointcloud.Points
	for range n {
		v := [3]float64{rng.NormFloat64(), rng.NormFloat64(), rng.NormFloat64()}
		l := 500 / math.Sqrt(v[0]*v[0]+v[1]*v[1]+v[2]*v[2])
		rgb := [3]byte{40, 40, 200}
		if v[1] < 0 {
			rgb[0] = 255
		}
		if v[0] < 0 {
			rgb[1] = 255
		}
		p.XYZ = append(p.XYZ, int16(v[0]*l), int16(v[1]*l), int16(v[2]*l)+2000)
		p.RGB = append(p.RGB, rgb[:]...)
	}
	return p
}

// covered returns the fraction of the picture that is not background.
func covered(img *image.RGBA) float64 {
	n := 0
	for y := range img.Rect.Dy() {
		for x := range img.Rect.Dx() {
			if img.RGBAAt(x, y) != background(y, img.Rect.Dy()) {
				n++
			}
		}
	}
	return float64(n) / float64(img.Rect.Dx()*img.Rect.Dy())
}

func TestOrientation(t *testing.T) {
	b := ball(20000)
	// at classifies the color around a pixel.
	at := func(o Options, x, y int) (red, green bool) {
		o.Width, o.Height = 200, 200
		img, err := Image(o, b)
		if err != nil {
			t.Fatal(err)
		}
		var r, g int
		for dy := -8; dy < 8; dy++ {
			for dx := -8; dx < 8; dx++ {
				c := img.RGBAAt(x+dx, y+dy)
				r, g = r+int(c.R), g+int(c.G)
			}
		}
		return r > 256*100, g > 256*100
	}
	tests := []struct {
		name       string
		opts       Options
		x, y       int
		red, green bool
	}{
		{"upper left", Options{}, 75, 75, true, true},
		{"upper right", Options{}, 125, 75, true, false},
		{"lower left", Options{}, 75, 125, false, true},
		{"lower right", Options{}, 125, 125, false, false},
		{"y up", Options{YUp: true}, 75, 75, false, true},
		{"from the right", Options{Azimuth: 90}, 75, 75, true, false},
		{"from the left", Options{Azimuth: -90}, 125, 75, true, true},
		{"from behind", Options{Azimuth: 180}, 125, 75, true, true},
		{"from above", Options{Elevation: 89}, 75, 125, true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if red, green := at(tt.opts, tt.x, tt.y); red != tt.red || green != tt.green {
				t.Errorf("red %v, green %v at %d,%d; want %v, %v", red, green, tt.x, tt.y, tt.red, tt.green)
			}
		})
	}
}

func TestFraming(t *testing.T) {
	stray := ball(20000)
	stray.XYZ = append(stray.XYZ, 32000, 32000, 32000)
	stray.RGB = append(stray.RGB, 255, 255, 255)
	tests := []struct {
		name     string
		opts     Options
		clouds   []pointcloud.Points
		min, max float64 // covered part
	}{
		{"ball", Options{Width: 150, Height: 150}, []pointcloud.Points{ball(20000)}, 0.35, 0.8},
		{"two clouds", Options{Width: 150, Height: 150}, []pointcloud.Points{ball(20000), ball(20)}, 0.35, 0.8},
		{"one stray point", Options{Width: 150, Height: 150}, []pointcloud.Points{stray}, 0.35, 0.8},
		{"around", Options{Width: 300, Height: 150, Views: 2}, []pointcloud.Points{ball(20000)}, 0.35, 0.8},
		{
			"one point",
			Options{Width: 150, Height: 150},
			[]pointcloud.Points{{XYZ: []int16{1, 2, 3}, RGB: []byte{255, 255, 255}}},
			0.00001,
			0.02,
		},
		{"no cloud", Options{Width: 60, Height: 40}, nil, 0, 0},
		{"empty cloud", Options{Width: 60, Height: 40, Views: 6}, []pointcloud.Points{{}}, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			img, err := Image(tt.opts, tt.clouds...)
			if err != nil {
				t.Fatal(err)
			}
			if got := covered(img); got < tt.min || got > tt.max {
				t.Errorf("%.3f of the picture is covered, want %.3f–%.3f", got, tt.min, tt.max)
			}
		})
	}
}

func TestBadInput(t *testing.T) {
	tests := []struct {
		name    string
		opts    Options
		cloud   pointcloud.Points
		wantErr string
	}{
		{"no colour", Options{}, pointcloud.Points{XYZ: make([]int16, 3)}, "cloud 0 has 3 coordinates and 0 colour values"},
		{"half a point", Options{}, pointcloud.Points{XYZ: make([]int16, 2), RGB: make([]byte, 2)}, "2 coordinates"},
		{"negative size", Options{Width: -1, Height: 5}, pointcloud.Points{}, "-1×5 pixels, want 1 to 16384 per side"},
		{"no height", Options{Width: 5}, pointcloud.Points{}, "picture of 5×0 pixels, want"},
		{"too wide", Options{Width: 1 << 20, Height: 5}, pointcloud.Points{}, "picture of 1048576×5 pixels, want"},
		{"too high", Options{Width: 5, Height: 16385}, pointcloud.Points{}, "picture of 5×16385 pixels, want"},
		{"too many views", Options{Width: 10, Height: 10, Views: 500}, pointcloud.Points{}, "500 views do not fit"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Image(tt.opts, tt.cloud); err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error %v, want %q", err, tt.wantErr)
			}
		})
	}
}

func TestRealClouds(t *testing.T) {
	tests := []struct {
		name  string
		cloud func(testing.TB) pointcloud.Points
		opts  Options
	}{
		{"person", person, Options{Width: 320, Height: 180}},
		{"moving cloud", sequence, Options{Width: 320, Height: 180, YUp: true, Views: 4}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			drawn, err := Image(tt.opts, tt.cloud(t))
			if err != nil {
				t.Fatal(err)
			}
			if err := PNG(&b, drawn); err != nil {
				t.Fatal(err)
			}
			img, err := png.Decode(&b)
			if err != nil || img.Bounds() != image.Rect(0, 0, 320, 180) {
				t.Fatalf("%v, %v", img.Bounds(), err)
			}
		})
	}
}

func BenchmarkImage(b *testing.B) {
	for _, n := range []int{100000, 1000000} {
		cloud := ball(n)
		b.Run(fmt.Sprintf("%d points", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := Image(Options{}, cloud); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestPointsSeenFromBehindAreNotDrawn(t *testing.T) {
	var wall pointcloud.Points
	for x := int16(-500); x <= 500; x += 10 {
		for y := int16(-500); y <= 500; y += 10 {
			wall.XYZ = append(wall.XYZ, x, y, 2000)
			wall.RGB = append(wall.RGB, 255, 0, 0)
		}
	}
	red := func(azimuth float64) (n int) {
		img, err := Image(Options{Width: 160, Height: 90, Azimuth: azimuth, Sensors: [][3]float64{{}}}, wall)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(img.Pix); i += 4 {
			if img.Pix[i] > 100 && img.Pix[i+1] < 50 {
				n++
			}
		}
		return n
	}
	if n := red(0); n < 1000 {
		t.Errorf("from the sensor's side %d pixels show the wall", n)
	}
	if n := red(180); n != 0 {
		t.Errorf("from behind %d pixels show the wall", n)
	}
	if _, err := Image(Options{Sensors: [][3]float64{{}, {}}}, wall); err == nil {
		t.Error("two sensors for one cloud are accepted")
	}
}

// TestFit checks that a point keeps its place in pictures of different clouds.
func TestFit(t *testing.T) {
	point := pointcloud.Points{XYZ: []int16{100, 0, 0}, RGB: []byte{255, 0, 0}}
	all := pointcloud.Points{XYZ: []int16{-500, -500, 0, 500, 500, 0, 100, 0, 0}, RGB: make([]byte, 9)}
	opts := Options{Width: 64, Height: 64, Fit: []pointcloud.Points{all}}
	img, err := Image(opts, point)
	if err != nil {
		t.Fatal(err)
	}
	var at image.Point // center of the red pixels
	n := 0
	for y := range 64 {
		for x := range 64 {
			if c := img.RGBAAt(x, y); c.R > 100 && c.B < 50 {
				at, n = at.Add(image.Pt(x, y)), n+1
			}
		}
	}
	at = at.Div(max(1, n))
	// 1,000 mm take 92 % of 64 pixels, and the point is 100 mm right of the center.
	if at.X < 35 || at.X > 41 || at.Y < 29 || at.Y > 35 {
		t.Errorf("the point is at %v", at)
	}
	opts.Fit = []pointcloud.Points{{XYZ: []int16{1}}}
	if _, err := Image(opts, point); err == nil {
		t.Error("no error for a damaged cloud to fit")
	}
}

// TestEye checks that a viewer at the origin who looks along z sees what the framed picture shows
// from the same side, and that a viewer who looks away sees nothing.
func TestEye(t *testing.T) {
	b := ball(20000)
	ahead := camera.Identity
	img, err := Image(Options{Width: 200, Height: 200, Eye: &ahead}, b)
	if err != nil {
		t.Fatal(err)
	}
	// 500 mm at 2000 mm, seen at 40°.
	if f := covered(img); f < 0.25 || f > 0.45 {
		t.Errorf("the ball covers %.2f of the picture", f)
	}
	if c := img.RGBAAt(70, 60); c.R < 100 || c.G < 100 {
		t.Errorf("top left is %v, want red and green", c)
	}
	away := camera.Transform{R: [9]float64{-1, 0, 0, 0, 1, 0, 0, 0, -1}}
	if img, err = Image(Options{Width: 200, Height: 200, Eye: &away}, b); err != nil {
		t.Fatal(err)
	}
	if f := covered(img); f != 0 {
		t.Errorf("a viewer who looks away sees the ball in %.2f of the picture", f)
	}
}
