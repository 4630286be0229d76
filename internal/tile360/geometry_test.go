package tile360

import (
	"image"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func randomDirection(r *rand.Rand) Vec {
	return Vec{r.NormFloat64(), r.NormFloat64(), r.NormFloat64()}.Unit()
}

func TestDirections(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		v, w := randomDirection(r), randomDirection(r)
		if yaw, pitch := v.Angles(); Angle(Direction(yaw, pitch), v) > 1e-9 {
			t.Fatalf("%v has angles %g, %g", v, yaw, pitch)
		}
		x, y := v.offset(w)
		if got := v.moved(x, y); Angle(got, w) > 1e-7 || math.Abs(math.Hypot(x, y)-Angle(v, w)) > 1e-9 {
			t.Fatalf("from %v by %g, %g to %v, want %v", v, x, y, got, w)
		}
	}
	if x, _ := (Vec{0, 0, 1}).offset(Direction(0.1, 0)); x < 0.09 {
		t.Errorf("a direction to the right has offset %g", x)
	}
	for _, v := range []Vec{{}, {math.NaN(), 0, 0}, {math.Inf(1), 0, 0}} {
		if got := v.Unit(); got != (Vec{0, 0, 1}) {
			t.Errorf("%v at length 1 is %v", v, got)
		}
	}
}

func TestGrid(t *testing.T) {
	for _, g := range []Grid{
		{8, 4, 1920, 960},
		{7, 3, 1000, 502},
		{1, 1, 2, 2},
		{64, 64, 128, 130},
		{13, 5, 3838, 1918},
	} {
		if err := g.Check(); err != nil {
			t.Fatal(err)
		}
		pixels, sum := 0, 0.0
		for tile := range g.Tiles() {
			r := g.Rect(tile)
			pixels += r.Dx() * r.Dy()
			sum += g.SolidAngle(tile)
			for _, p := range []image.Point{r.Min, r.Max.Sub(image.Pt(1, 1))} {
				if got := g.At((float64(p.X)+0.5)/float64(g.Width), (float64(p.Y)+0.5)/float64(g.Height)); got != tile {
					t.Fatalf("%v: pixel %v of tile %d is in %d", g, p, tile, got)
				}
			}
			if (r.Min.X|r.Min.Y|r.Max.X|r.Max.Y)&1 != 0 && g.Width%2 == 0 && g.Height%2 == 0 {
				t.Fatalf("%v: tile %d is %v", g, tile, r)
			}
		}
		if pixels != g.Width*g.Height || math.Abs(sum-4*math.Pi) > 1e-9 {
			t.Errorf("%v: tiles cover %d pixels, %g steradians", g, pixels, sum)
		}
	}
	for _, c := range []struct {
		g    Grid
		want string
	}{
		{Grid{0, 4, 1920, 960}, "empty"},
		{Grid{-1, -1, 1920, 960}, "empty"},
		{Grid{1 << 40, 1 << 40, 1920, 960}, "exceeds the limit"},
		{Grid{8, 4, 15, 960}, "cannot be cut"},
		{Grid{8, 4, 1 << 20, 960}, "cannot be cut"},
	} {
		if err := c.g.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want %q", c.g, err, c.want)
		}
	}
}

func TestShares(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 2))
	g := Grid{8, 4, 1920, 960}
	v := NewView(g, Degrees(90, 90), 32)
	shares := make([]float64, g.Tiles())
	for range 50 {
		v.Shares(randomDirection(r), shares)
		sum := 0.0
		for tile, s := range shares {
			sum += s
			// Six such viewports cover the sphere.
			if most := g.SolidAngle(tile) / (4 * math.Pi / 6); s > most+0.02 {
				t.Fatalf("tile %d has %g of the viewport, and covers no more than %g of it", tile, s, most)
			}
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Fatalf("shares sum to %g", sum)
		}
	}
	v.Shares(Vec{0, 0, 1}, shares)
	for tile, s := range shares {
		if mirrored := tile/8*8 + 7 - tile%8; math.Abs(s-shares[mirrored]) > 1e-9 {
			t.Errorf("straight ahead tile %d has %g, the one opposite %g", tile, s, shares[mirrored])
		}
	}
}

// sphere draws a picture for each eye. Luma follows the direction's height, and chroma follows its
// x. The right eye is a little darker.
func sphere(l Layout, w, h int) *image.YCbCr {
	p := image.NewYCbCr(image.Rect(0, 0, w, h), image.YCbCrSubsampleRatio420)
	for eye := range l.Eyes() {
		e := l.Eye(eye)
		x0, y0, x1, y1 := int(e.X0*float64(w)), int(e.Y0*float64(h)), int(e.X1*float64(w)), int(e.Y1*float64(h))
		for y := y0; y < y1; y++ {
			for x := x0; x < x1; x++ {
				d := Direction(((float64(x-x0)+0.5)/float64(x1-x0)-0.5)*2*math.Pi,
					(0.5-(float64(y-y0)+0.5)/float64(y1-y0))*math.Pi)
				p.Y[p.YOffset(x, y)] = uint8(120 + 80*d.Y - float64(20*eye))
				p.Cb[p.COffset(x, y)] = 128
				p.Cr[p.COffset(x, y)] = uint8(128 + 60*d.X)
			}
		}
	}
	return p
}

func TestColors(t *testing.T) {
	// Red, green and blue at three quarters, encoded as the standards specify.
	for _, tt := range []struct {
		c    Colors
		want [3][3]uint8 // luma, Cb and Cr
	}{
		{Colors{}, [3][3]uint8{{65, 100, 212}, {112, 72, 58}, {35, 212, 114}}},
		{Colors{BT709: true}, [3][3]uint8{{51, 109, 212}, {133, 63, 52}, {28, 212, 120}}},
		{Colors{FullRange: true}, [3][3]uint8{{57, 96, 224}, {112, 65, 48}, {22, 224, 112}}},
		{Colors{BT709: true, FullRange: true}, [3][3]uint8{{41, 106, 223}, {137, 54, 41}, {14, 223, 119}}},
	} {
		for channel, yuv := range tt.want {
			p := image.NewYCbCr(image.Rect(0, 0, 8, 4), image.YCbCrSubsampleRatio444)
			for i := range p.Y {
				p.Y[i], p.Cb[i], p.Cr[i] = yuv[0], yuv[1], yuv[2]
			}
			got := NewSampler(Mono, 0, image.Pt(8, 4), Degrees(90, 90), Vec{0, 0, 1}, 3, 3).Draw(p, tt.c).RGBAAt(1, 1)
			for k, v := range []uint8{got.R, got.G, got.B} {
				want := 0.0
				if k == channel {
					want = 191
				}
				if math.Abs(float64(v)-want) > 3 {
					t.Errorf("%+v, channel %d: %v", tt.c, channel, got)
				}
			}
		}
	}
}

func TestSampler(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	for _, l := range []Layout{Mono, TopBottom, SideBySide} {
		p := sphere(l, 512, 512)
		for eye := range l.Eyes() {
			for range 20 {
				gaze := randomDirection(r)
				s := NewSampler(l, eye, image.Pt(512, 512), Degrees(90, 90), gaze, 33, 33)
				picture := s.Draw(p, Colors{})
				// The centre shows the gaze direction.
				c := picture.RGBAAt(16, 16)
				y := (120 + 80*gaze.Y - float64(20*eye) - 16) * 1.164383
				cr := 60 * gaze.X
				if math.Abs(float64(c.R)-max(0, min(255, y+1.596*cr))) > 8 || math.Abs(float64(c.B)-y) > 6 {
					t.Fatalf("%v eye %d: along %v the picture is %v, luma should be %.0f, red-difference %.0f", l, eye,
						gaze, c, y, cr)
				}
			}
		}
	}
	a, b := sphere(Mono, 256, 128), sphere(Mono, 256, 128)
	for i := range b.Y {
		b.Y[i] += 3
	}
	s := NewSampler(Mono, 0, image.Pt(256, 128), Degrees(90, 70), Vec{0, 0, -1}, 40, 30)
	if mse := s.MSE(a, b); math.Abs(mse-9) > 1e-3 {
		t.Errorf("a difference of 3 has a squared error of %g", mse)
	}
	if mse := s.MSE(a, a); mse != 0 || PSNR(mse) != MaxPSNR {
		t.Errorf("no difference: %g, %g dB", mse, PSNR(mse))
	}
	if got := PSNR(255 * 255); math.Abs(got) > 1e-9 {
		t.Errorf("PSNR of the greatest error is %g", got)
	}
}

func TestLayouts(t *testing.T) {
	for _, l := range []Layout{Mono, TopBottom, SideBySide} {
		if got, err := ParseLayout(l.String()); err != nil || got != l {
			t.Errorf("%v is parsed as %v, %v", l, got, err)
		}
	}
	if _, err := ParseLayout("cubemap"); err == nil {
		t.Error("a cube map is a stereo layout")
	}
}

func TestGazeOfStillAndMovingHeads(t *testing.T) {
	var g Gaze
	if got := g.Predict(1); got != (Vec{0, 0, 1}) {
		t.Errorf("without samples %v", got)
	}
	for i := range 20 {
		g.Add(Sample{float64(i) / 10, Direction(0.05*float64(i), 0)})
	}
	if yaw, pitch := g.Linear(1).Angles(); math.Abs(yaw-1.45) > 1e-6 || math.Abs(pitch) > 1e-6 {
		t.Errorf("a head that turns by 0.5 rad/s is expected at %g, %g, want 1.45, 0", yaw, pitch)
	}
	sum := 0.0
	for _, l := range g.Looks(1, 0.5, nil) {
		sum += l.P
	}
	if math.Abs(sum-0.5) > 1e-9 {
		t.Errorf("looks have a probability of %g, want 0.5", sum)
	}
	for range 1000 {
		g.Add(Sample{g.Last().T + 1e-4, Vec{0, 0, 1}})
	}
	if len(g.samples) > historySize {
		t.Errorf("%d samples are kept", len(g.samples))
	}
	if g.Add(Sample{0, Vec{1, 0, 0}}); g.Linear(1) != (Vec{1, 0, 0}) {
		t.Errorf("after a seek %v", g.Linear(1))
	}
}

func TestCapacity(t *testing.T) {
	var c Capacity
	if c.Mean() != 0 || c.Percentile(10) != 0 || len(c.Distribution(1, nil)) != 0 {
		t.Error("something is predicted from nothing")
	}
	r := rand.New(rand.NewPCG(5, 2))
	below := 0
	const n = 2000
	for i := range n + 50 {
		rate := 1e6 * math.Exp(0.4*r.NormFloat64())
		if i >= 50 && rate < c.Percentile(10) {
			below++
		}
		c.Add(rate)
	}
	if share := float64(below) / n; share < 0.07 || share > 0.13 {
		t.Errorf("%.1f %% of rates are below their tenth percentile", 100*share)
	}
	for _, rate := range []float64{0, -1, math.NaN()} {
		c.Add(rate)
	}
	if m := c.Mean(); !(m > 0) || m > 2 {
		t.Errorf("mean %g of a network that stands still", m)
	}
	d := c.Distribution(2, nil)
	for i := 1; i < len(d); i++ {
		if d[i] < d[i-1] {
			t.Fatalf("distribution %v", d)
		}
	}
}

func TestGuess(t *testing.T) {
	var c Capacity
	if !c.Guess(100) || !c.Guess(200) || c.Mean() != 200 || !(c.Percentile(10) > 0 && c.Percentile(10) < 200) {
		t.Errorf("guessed mean %g, tenth percentile %g", c.Mean(), c.Percentile(10))
	}
	if c.Add(900); c.Mean() != 900 || c.Guess(100) || c.Mean() != 900 {
		t.Errorf("mean %g, measured once", c.Mean())
	}
}

func TestTrain(t *testing.T) {
	var tr Train
	if tr.Rate(0) != 0 {
		t.Error("a rate of nothing")
	}
	tr.Add(0.9, 5000, 4, false)
	for i := range 11 { // the frames that start GoP 5, 10 ms apart, and others
		tr.Add(1+0.01*float64(i), 900, 5, true)
		tr.Add(1+0.01*float64(i)+0.005, 100, 5, false)
	}
	tr.Add(1.2, 1000, 5, false)
	tr.Add(1.3, 1000, 4, true) // late
	if r := tr.Rate(5); math.Abs(r-100_000) > 1 || tr.Rate(4) != 0 || tr.Rate(6) != 0 {
		t.Errorf("rate %g, want 100000; %g and %g of others", r, tr.Rate(4), tr.Rate(6))
	}
	if tr.Add(2, 2000, 6, true); tr.Rate(6) != 0 || tr.Rate(5) != 0 {
		t.Errorf("a rate of a single frame: %g", tr.Rate(6))
	}
	if tr.Add(2, 2_000_000, 6, true); tr.Rate(6) > 2_000_000/leastTrainTime {
		t.Errorf("%g bytes per second of frames at one time", tr.Rate(6))
	}
}

// TestPlannerDoesNotAllocate checks that repeated plans allocate no memory.
func TestPlannerDoesNotAllocate(t *testing.T) {
	p := &Planner{
		View:      NewView(Grid{8, 4, 1920, 960}, Degrees(90, 90), 8),
		Qualities: 3,
		Solver:    Solver{Refine: DefaultRefine},
	}
	p.Capacity.Add(1e6)
	pr := randomProblem(rand.New(rand.NewPCG(1, 9)), 32, 3)
	gops := []GoP{{Start: 1, Duration: 1, Miss: pr.Miss, Bytes: pr.Bytes, Distortion: pr.Distortion}}
	if n := testing.AllocsPerRun(5, func() { p.Plan(gops, 1, 0) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkPlanner(b *testing.B) {
	p := &Planner{
		View:      NewView(Grid{8, 4, 1920, 960}, Degrees(90, 90), 8),
		Qualities: 3,
		Solver:    Solver{Refine: DefaultRefine},
	}
	p.Capacity.Add(1e6)
	pr := randomProblem(rand.New(rand.NewPCG(1, 9)), 32, 3)
	gops := []GoP{
		{Start: 0, Duration: 1, Miss: pr.Miss, Bytes: pr.Bytes, Distortion: pr.Distortion},
		{Start: 1, Duration: 1, Miss: pr.Miss, Bytes: pr.Bytes, Distortion: pr.Distortion},
	}
	for b.Loop() {
		p.Plan(gops, 1, 0)
	}
}
