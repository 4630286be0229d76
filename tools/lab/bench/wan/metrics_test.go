package wan

import (
	"image"
	"math"
	"math/rand/v2"
	"testing"

	images "holocast/tools/lab/bench/internal/picture"

	"holocast/internal/camera"
	"holocast/internal/pointcloud"
)

func TestDepthErrors(t *testing.T) {
	var e depthErrors
	exact := []uint16{10000, 10000, 10000, 0, 20000, 20000}
	e.add(exact, []uint16{1000, 1003, 0, 900, 2049, 2060}, nil)
	got := e.summary()
	// Errors 0, 3 and 49 mm; a point without a surface and one 60 mm off stray.
	if got.Points != 5 || math.Abs(got.MeanMm-52./3) > 0.001 || got.Stray != 40 || got.P99Mm != 50 {
		t.Errorf("%+v", got)
	}
	var one depthErrors
	one.add(exact, []uint16{1000, 1003, 0, 900, 2049, 2060}, []bool{false, true, true, false, false, false})
	if got := one.summary(); got != (Errors{MeanMm: 3, P99Mm: 3, Points: 1}) {
		t.Errorf("one pixel: %+v", got)
	}
	if got := new(depthErrors).summary(); got != (Errors{}) {
		t.Errorf("no points: %+v", got)
	}
}

// TestJitter checks the sensor's model against its parameters.
func TestJitter(t *testing.T) {
	const w, h = 320, 288
	exact := make([]uint16, w*h)
	for i := range exact {
		exact[i] = 30000 // 3 m
	}
	s, depth := newSensor(w, h, 1), make([]uint16, w*h)
	var sum, squares, across, down, n float64
	for range 4 {
		s.sense(depth, exact, make([]float32, w*h))
		for i := w + 1; i < w*h; i++ {
			d := float64(depth[i]) - 3000
			sum, squares, n = sum+d, squares+d*d, n+1
			across += d * (float64(depth[i-1]) - 3000)
			down += d * (float64(depth[i-w]) - 3000)
		}
	}
	want := sigma0 + sigma2*9
	if dev := math.Sqrt(squares / n); math.Abs(dev-want) > 0.05*want || math.Abs(sum/n) > 0.2 {
		t.Errorf("standard deviation %.2f mm, mean %.2f mm; want %.2f and 0", dev, sum/n, want)
	}
	for _, c := range []float64{across / squares, down / squares} {
		if math.Abs(c-neighbors) > 0.04 {
			t.Errorf("neighbors correlate by %.2f, want %.2f", c, neighbors)
		}
	}
}

func TestFlicker(t *testing.T) {
	const w, h = 9, 3
	exact := make([]uint16, w*h)
	for i := range exact {
		exact[i] = 10000
		if i%w > 4 {
			exact[i] = 20000
		}
	}
	absent := flicker(exact, w)
	for x, want := range []float32{flickerRate, flickerRate, 0.1, 0.3, 0.5, 0.5, 0.3, 0.1, flickerRate} {
		if absent[w+x] != want {
			t.Errorf("pixel %d flickers by %g, want %g", x, absent[w+x], want)
		}
	}
}

func TestMoving(t *testing.T) {
	got := moving([]uint16{10000, 10030, 0, 10000}, []uint16{10000, 10000, 10000, 0})
	for i, want := range []bool{false, true, false, true} {
		if got[i] != want {
			t.Errorf("pixel %d: %v", i, got[i])
		}
	}
}

// plane returns a wall at depth z in tenths of a millimetre.
func plane(w, h int, z uint16) ([]uint16, camera.RayTable) {
	in := camera.Intrinsics{Width: w, Height: h, Fx: 500, Fy: 500, Cx: float64(w) / 2, Cy: float64(h) / 2, MaxRadius: 2}
	exact := make([]uint16, w*h)
	for i := range exact {
		exact[i] = z
	}
	return exact, in.RayTable()
}

func TestDistortion(t *testing.T) {
	exact, rays := plane(32, 24, 10000)
	reference := exactCloud(exact, &rays)
	if d1, d2 := distortion(reference, reference); d1 != 0 || d2 != 0 {
		t.Errorf("a cloud differs from itself by %g and %g", d1, d2)
	}
	// A shift of 3 mm along the normal, and 0.4 mm across, less than half the points' spacing of 2 mm.
	shifted := cloud{at: append([][3]float32(nil), reference.at...)}
	for i := range shifted.at {
		shifted.at[i][0] += 0.4
		shifted.at[i][2] += 3
	}
	d1, d2 := distortion(reference, shifted)
	if math.Abs(d1-9.16) > 0.01 || math.Abs(d2-9) > 0.01 {
		t.Errorf("distortions %g and %g, want 9.16 and 9", d1, d2)
	}
	// One stray point counts from its side only.
	stray := cloud{at: append([][3]float32{{0, 0, 1100}}, reference.at...)}
	d1, _ = distortion(reference, stray)
	if want := 1e4 / float64(len(stray.at)); math.Abs(d1-want) > 0.01*want {
		t.Errorf("distortion %g, want %g", d1, want)
	}
	if got := cloudPSNR(3 * 81.91 * 81.91); got != 40 {
		t.Errorf("PSNR of %g dB, want 40", got)
	}
}

// TestNearest compares the tree with a search through all points.
func TestNearest(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	points := make([][3]float32, 500)
	for i := range points {
		points[i] = [3]float32{float32(r.IntN(20)), float32(r.NormFloat64()), float32(r.IntN(3))}
	}
	tree := newTree(points)
	for range 500 {
		p := [3]float32{20 * r.Float32(), float32(r.NormFloat64()), 3 * r.Float32()}
		best := float32(math.Inf(1))
		for _, q := range points {
			gap := sub(p, q)
			best = min(best, dot(gap, gap))
		}
		gap := sub(p, points[tree.nearest(p)])
		if dot(gap, gap) != best {
			t.Fatalf("nearest of %v is %g away, want %g", p, dot(gap, gap), best)
		}
	}
}

func TestPictures(t *testing.T) {
	a, b := image.NewRGBA(image.Rect(0, 0, 16, 16)), image.NewRGBA(image.Rect(0, 0, 16, 16))
	for i := range a.Pix {
		a.Pix[i], b.Pix[i] = 100, 110
	}
	if got := pictureError(a, b); got != 100 {
		t.Errorf("error %g, want 100", got)
	}
	// Of flat pictures, only the luminance term differs from 1.
	want := (2*100*110 + 6.5025) / (100*100 + 110*110 + 6.5025)
	if got := images.SSIM(images.Luma(a), images.Luma(b), 16, 16, nil); math.Abs(got-want) > 1e-4 {
		t.Errorf("similarity %g, want %g", got, want)
	}
	if got := images.SSIM(images.Luma(a), images.Luma(a), 16, 16, nil); got != 1 {
		t.Errorf("similarity of equal pictures %g", got)
	}
}

func TestColorError(t *testing.T) {
	a := pointcloud.Grid{Depth: []uint16{1, 1, 0}, Color: []byte{10, 10, 10, 20, 20, 20, 0, 0, 0}}
	b := pointcloud.Grid{Depth: []uint16{1, 1, 1}, Color: []byte{10, 10, 10, 20, 20, 32, 9, 9, 9}}
	var e colorError
	if e.psnr() != 0 {
		t.Error("a PSNR without samples")
	}
	e.add(&a, &b)
	if want := psnr(255*255, 144./6); e.psnr() != want {
		t.Errorf("PSNR %g, want %g", e.psnr(), want)
	}
}
