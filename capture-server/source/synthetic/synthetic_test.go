package synthetic

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"image"
	"math"
	"slices"
	"strings"
	"testing"

	"holocast/capture-server/source"
	"holocast/internal/camera"
	"holocast/internal/mjpeg"
)

// small returns options for a studio that renders quickly.
func small() Options {
	return Options{Depth: camera.NFOV2x2Binned, Color: camera.Color720P, FPS: 1000, Frames: 2}
}

func open(t *testing.T, opts Options) *Studio {
	t.Helper()
	s, err := Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func next(t *testing.T, s source.Source) source.Frame {
	t.Helper()
	var f source.Frame
	if err := s.Next(t.Context(), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFramesMatchCalibration(t *testing.T) {
	studio := open(t, small())
	s := studio.Cameras[0]
	cal := s.Calibration()
	if s.Name() != "synthetic-0" || cal.Serial != "000000000000" {
		t.Errorf("camera %q, serial %q", s.Name(), cal.Serial)
	}
	again, err := camera.Parse(cal.Raw, camera.NFOV2x2Binned, camera.Color720P)
	if err != nil || again.Depth != cal.Depth {
		t.Errorf("calibration's own document gives %+v, %v", again.Depth, err)
	}
	f := next(t, s)
	if len(f.Depth) != 320*288 || f.Format != camera.MJPG {
		t.Fatalf("frame of %d depth pixels, colour %s", len(f.Depth), f.Format)
	}
	d, err := mjpeg.NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var img image.YCbCr
	if err := d.DecodeYCbCr(&img, f.Color, 1); err != nil || img.Rect.Size() != image.Pt(1280, 720) {
		t.Fatalf("colour of %v pixels, %v", img.Rect.Size(), err)
	}
}

// TestPoseAndDepthAgree checks that the poses place all points within arm's reach of the studio's
// axis and above the floor.
func TestPoseAndDepthAgree(t *testing.T) {
	opts := small()
	opts.Cameras = 3
	studio := open(t, opts)
	for _, s := range studio.Cameras {
		pose, ok := studio.Poses[s.Name()]
		if !ok {
			t.Fatalf("no pose of %s", s.Name())
		}
		if err := pose.Validate(); err != nil {
			t.Fatal(err)
		}
		f := next(t, s)
		cal := s.Calibration()
		rays := cal.Depth.RayTable()
		var points, person, mixed int // readings at rims mix the distances of front and back
		top := math.Inf(-1)
		for i, z := range f.Depth {
			if z == 0 {
				continue
			}
			d := float64(z)
			p := pose.Apply([3]float64{float64(rays.X[i]) * d, float64(rays.Y[i]) * d, d})
			points++
			if p[1] < -40 {
				t.Fatalf("%s: point %v is below the floor", s.Name(), p)
			}
			if r := math.Hypot(p[0], p[2]); r < 700 && p[1] > 50 {
				person++
				top = max(top, p[1])
			} else if p[1] > 120 {
				mixed++
			}
		}
		if mixed > points/200 {
			t.Errorf("%s: %d of %d points are neither floor nor performer", s.Name(), mixed, points)
		}
		if person < 3000 || points < 15000 || top < 1650 || top > 2100 {
			t.Errorf("%s: %d points, %d of the performer, the highest at %.0f mm", s.Name(), points, person, top)
		}
	}
}

// TestColourAndDepthAgree checks that points of the shirt project to orange pixels of the colour
// image.
func TestColourAndDepthAgree(t *testing.T) {
	studio := open(t, small())
	s := studio.Cameras[0]
	cal, pose, f := s.Calibration(), studio.Poses[s.Name()], next(t, s)
	d, err := mjpeg.NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	pix, w, _, err := d.DecodeRGB(nil, f.Color)
	if err != nil {
		t.Fatal(err)
	}
	rays := cal.Depth.RayTable()
	var shirtPoints, orange int
	for i, z := range f.Depth {
		q := [3]float64{float64(rays.X[i]) * float64(z), float64(rays.Y[i]) * float64(z), float64(z)}
		p := pose.Apply(q)
		if z == 0 || p[1] < 1020 || p[1] > 1130 || math.Abs(p[0]) > 80 || p[2] < 0 {
			continue
		}
		u, v, ok := cal.Color.Project(cal.DepthToColor.Apply(q))
		if !ok {
			t.Fatalf("shirt point %v is not in the colour image", p)
		}
		shirtPoints++
		c := pix[3*(int(v+0.5)*w+int(u+0.5)):]
		if c[0] > 120 && c[2] < 110 && c[0] > c[1]+40 {
			orange++
		}
	}
	if shirtPoints < 100 || orange < shirtPoints*98/100 {
		t.Errorf("%d of %d points of the shirt are orange", orange, shirtPoints)
	}
}

func TestDepthNoise(t *testing.T) {
	opts := small()
	opts.Depth = camera.NFOVUnbinned
	opts.Frames = 1
	opts.Room = true
	a := next(t, open(t, opts).Cameras[0])
	opts.Seed = 1
	b := next(t, open(t, opts).Cameras[0])
	// The wall behind the performer is about 4.7 m away; sigma is about 10 mm there.
	var sum, n float64
	for i := range a.Depth {
		if a.Depth[i] > 4500 && b.Depth[i] > 4500 {
			d := float64(a.Depth[i]) - float64(b.Depth[i])
			sum += d * d
			n++
		}
	}
	if sigma := math.Sqrt(sum / n / 2); n < 1000 || sigma < 6 || sigma > 17 {
		t.Errorf("standard deviation %.1f mm of %g readings beyond 4.5 m, want 6 to 17", sigma, n)
	}
	if !bytes.Equal(a.Color, b.Color) {
		t.Error("the depth noise's seed changes colour")
	}
}

func TestSameSeedSameBytes(t *testing.T) {
	opts := small()
	opts.Seed = 7
	// Compare the rendered loops, since the frame that Next returns depends on the time.
	a, b := open(t, opts).Cameras[0].(*sensor), open(t, opts).Cameras[0].(*sensor)
	for k := range a.frames {
		if !slices.Equal(a.frames[k].depth, b.frames[k].depth) || !bytes.Equal(a.frames[k].color, b.frames[k].color) {
			t.Fatalf("the same options give different frames %d", k)
		}
	}
}

func TestLoopMoves(t *testing.T) {
	opts := small()
	opts.Frames = 3
	studio := open(t, opts)
	s := studio.Cameras[0].(*sensor)
	sum := func(f frame) uint64 {
		var h uint64
		for _, d := range f.depth {
			h = h*31 + uint64(d)
		}
		return h ^ uint64(binary.LittleEndian.Uint32(f.color[len(f.color)/2:]))
	}
	if sum(s.frames[0]) == sum(s.frames[1]) || sum(s.frames[1]) == sum(s.frames[2]) {
		t.Error("frames of the loop are the same")
	}
}

func TestProgressAndCancel(t *testing.T) {
	opts := small()
	opts.Frames = 4
	var seen []int
	opts.Progress = func(done, total int) {
		if total != 4 {
			t.Errorf("total %d", total)
		}
		seen = append(seen, done)
	}
	open(t, opts)
	if !slices.Equal(seen, []int{1, 2, 3, 4}) {
		t.Errorf("progress %v", seen)
	}
	ctx, cancel := context.WithCancel(t.Context())
	opts.Frames = 900
	opts.Progress = func(int, int) { cancel() }
	if _, err := Open(ctx, opts); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context canceled", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		opts Options
		want string
	}{
		{"cameras", Options{Cameras: 9}, "cameras is 9, want 1 to 8"},
		{"frames", Options{Frames: 1000}, "loop has 1000 frames, want 1 to 900"},
		{"rate", Options{FPS: -1}, "frame rate is -1"},
		{"depth mode", Options{Depth: "NFOV"}, `"NFOV"`},
		{"no colour", Options{Color: "OFF"}, `colour mode "OFF"`},
		{"no depth", Options{Depth: camera.PassiveIR}, "depth mode PASSIVE_IR has no depth"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Open(t.Context(), tt.opts); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// TestMeshIsClosed checks that exactly two quads share every edge, in opposite directions.
func TestMeshIsClosed(t *testing.T) {
	m := newMesher()
	for _, phase := range []float64{0, 0.37, 0.8} {
		m.mesh(newFigure(body(), phase))
		if len(m.vertices) < 10000 {
			t.Fatalf("%d vertices", len(m.vertices))
		}
		balance := make(map[[2]int32]int)
		for _, q := range m.quads {
			for k := range 4 {
				a, b := q[k], q[(k+1)%4]
				if a < b {
					balance[[2]int32{a, b}]++
				} else {
					balance[[2]int32{b, a}]--
				}
			}
		}
		for e, n := range balance {
			if n != 0 {
				t.Fatalf("phase %g: edge %v at %v is open", phase, e, m.vertices[e[0]].at)
			}
		}
	}
}

// TestExact checks that readings scatter around the exact depth, and that a cut loop ends early.
func TestExact(t *testing.T) {
	opts := small()
	opts.Frames, opts.Cut = 5, 2
	exact := make([][]float32, 2)
	colors := make([][]byte, 2)
	opts.Exact = func(_, frame int, depth []float32, color []byte) { exact[frame], colors[frame] = depth, color }
	studio := open(t, opts)
	f := next(t, studio.Cameras[0])
	if !bytes.Equal(f.Color, colors[0]) {
		t.Error("the colour differs from the frame's")
	}
	var sum, n float64
	for i, d := range f.Depth {
		if d != 0 {
			sum += math.Abs(float64(d) - 1000*float64(exact[0][i]))
			n++
		}
	}
	if mean := sum / n; n == 0 || mean < 0.1 || mean > 10 {
		t.Errorf("readings are %.2f mm from the exact depth on average", mean)
	}
	if slices.Equal(exact[0], exact[1]) {
		t.Error("nothing moves")
	}
	_, err := Open(t.Context(), Options{Frames: 5, Cut: 6})
	if err == nil || !strings.Contains(err.Error(), "cut after 6") {
		t.Errorf("cut beyond the loop: %v", err)
	}
}
