package viewselect

import (
	"math"
	"slices"
	"testing"

	"holocast/internal/camera"
	"holocast/internal/vec3"
)

// lens is a pinhole camera of 256×192 pixels with a horizontal field of view of 65°.
var lens = camera.Intrinsics{Width: 256, Height: 192, Fx: 200, Fy: 200, Cx: 127.5, Cy: 95.5}

const stride = 4 // of patches, pixels

// around returns the pose (camera to studio space) of a camera at distance mm from the origin that
// looks at it, turned by angle about the vertical axis. At 0 it stands on the −z side.
func around(angle, distance float64) camera.Transform {
	r := yaw(angle)
	r.T = [3]float64{-r.R[2] * distance, 0, -r.R[8] * distance}
	return r
}

// sphere returns the depths at which a camera sees a sphere of radius mm around the origin.
func sphere(pose camera.Transform, radius float64) []uint16 {
	t := lens.RayTable()
	depth := make([]uint16, len(t.X))
	for i := range depth {
		d := [3]float64{float64(t.X[i]), float64(t.Y[i]), 1}
		o := pose.Inverse().T // the origin in camera space
		a, b, c := vec3.Dot(d, d), vec3.Dot(d, o), vec3.Dot(o, o)-radius*radius
		if q := b*b - a*c; q > 0 {
			depth[i] = uint16((b - math.Sqrt(q)) / a)
		}
	}
	return depth
}

// stage returns the surfaces seen by cameras around a sphere with a radius of 500 mm, all 2 m from
// its centre.
func stage(angles ...float64) [][]Sample {
	t := lens.RayTable()
	var all [][]Sample
	for _, a := range angles {
		pose := around(a, 2000)
		all = append(all, Surface(nil, &t, sphere(pose, 500), &pose, stride))
	}
	return all
}

// eye returns a view of the origin from 2 m.
func eye(angle float64) View {
	return View{Eye: around(angle, 2000).Inverse(), TanX: 0.5, TanY: 0.375}
}

func TestSurfaceArea(t *testing.T) {
	// A camera at distance d sees 2πr²(1 − r/d) of a sphere. Patches at the silhouette, without a
	// neighbor, are too small.
	const want = 2 * math.Pi * 500 * 500 * (1 - 500.0/2000)
	sum := 0.0
	t0, pose := lens.RayTable(), around(0, 2000)
	for _, s := range Surface(nil, &t0, sphere(pose, 500), &pose, 1) {
		sum += float64(s.Area)
		p, n := to64(s.Point), to64(s.Normal)
		if l := vec3.Length(p); math.Abs(l-500) > 2 {
			t.Fatalf("a sample %v mm from the centre of a sphere of 500", l)
		}
		if math.Abs(vec3.Length(n)-1) > 1e-3 {
			t.Fatalf("normal %v", n)
		}
		// At the silhouette the normal is unknown.
		if s.Facing > 0.5 && s.Facing < 1 && vec3.Dot(p, n)/500 < 0.9 {
			t.Fatalf("normal %v at %v", n, p)
		}
	}
	if math.Abs(sum-want) > 0.15*want {
		t.Errorf("area %.0f mm², want %.0f", sum, want)
	}
}

func TestWorth(t *testing.T) {
	quarter := math.Pi / 2
	cameras := stage(0, quarter, 2*quarter, 3*quarter)
	away := eye(0)
	away.Eye = yaw(math.Pi).Compose(away.Eye)
	tests := map[string]struct {
		view      View
		best      []int // cameras with the largest worth
		worthless []int
	}{
		"from a camera":       {eye(0), []int{0}, []int{2}},
		"from the other side": {eye(2 * quarter), []int{2}, []int{0}},
		"between two":         {eye(quarter / 2), []int{0, 1}, nil},
		"looking away":        {away, nil, []int{0, 1, 2, 3}},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			var s Scene
			worth := make([]float64, len(cameras))
			s.Worth(worth, cameras, c.view)
			sum := 0.0
			for i, w := range worth {
				sum += w
				if slices.Contains(c.best, i) {
					continue
				}
				for _, b := range c.best {
					if w >= 0.7*worth[b] {
						t.Errorf("worths %.3f: camera %d is worth as much as %d", worth, i, b)
					}
				}
			}
			for _, i := range c.worthless {
				if worth[i] > 0.01*max(sum, 1e-9) {
					t.Errorf("worths %.3f: camera %d sees nothing of the picture", worth, i)
				}
			}
			if sum > 1 {
				t.Errorf("worths add up to %v", sum)
			}
		})
	}
}

// TestShare checks the picture's share of a sphere against its solid angle on the screen.
func TestShare(t *testing.T) {
	var s Scene
	worth := make([]float64, 1)
	s.Worth(worth, stage(0), eye(0))
	tan := 500 / math.Sqrt(2000*2000-500*500) // of the silhouette
	want := math.Pi * tan * tan / (4 * 0.5 * 0.375)
	if math.Abs(worth[0]-want) > 0.15*want {
		t.Errorf("a sphere covers %.3f of the picture, want %.3f", worth[0], want)
	}
}

func TestOcclusion(t *testing.T) {
	rays := lens.RayTable()
	front, back := around(0, 2000), around(0, 4000)
	// The second camera sees a wall 5 m behind the sphere of the first.
	cameras := [][]Sample{
		Surface(nil, &rays, sphere(front, 900), &front, stride),
		Surface(nil, &rays, slices.Repeat([]uint16{9000}, len(rays.X)), &back, stride),
	}
	worth := make([]float64, 2)
	var s Scene
	narrow := eye(0)
	narrow.TanX, narrow.TanY = 0.3, 0.3
	if s.Worth(worth, cameras, narrow); worth[1] > 0.02*worth[0] {
		t.Errorf("worths %.3f with the wall hidden", worth)
	}
	wide := eye(0)
	wide.TanX, wide.TanY = 1, 1
	if s.Worth(worth, cameras, wide); worth[1] == 0 {
		t.Errorf("worths %.3f with a visible wall", worth)
	}
}

func TestAhead(t *testing.T) {
	cameras := stage(0, math.Pi/2)
	var s Scene
	now, later := make([]float64, 2), make([]float64, 2)
	away := eye(0)
	away.Eye = yaw(0.9).Compose(away.Eye) // the sphere is just outside the picture
	s.Worth(now, cameras, away)
	s.Worth(later, cameras, Ahead(away, [3]float64{}, 1.5, 0.5)...)
	if now[0] != 0 || later[0] == 0 {
		t.Errorf("worth %v, and %v after a turn by 0.75 rad", now, later)
	}
	views := Ahead(eye(0), [3]float64{0, 0, 1000}, 0, 0.5)
	if d := vec3.Length(views[0].Eye.Inverse().T); math.Abs(d-1500) > 1e-6 {
		t.Errorf("%v mm from the centre after half a second at 1 m/s towards it, want 1500", d)
	}
}

func TestChoose(t *testing.T) {
	ladder := []Option{{4e6, 10}, {2e6, 25}, {1e6, 60}}
	options := slices.Repeat([][]Option{ladder}, 4)
	worth := []float64{0.5, 0.3, 0, 0}
	tests := map[string]struct {
		budget  float64
		current []int
		want    []int
	}{
		"everything fits":             {16e6, nil, []int{0, 0, 0, 0}},
		"bits where the viewer looks": {8e6, nil, []int{0, 1, 2, 2}},
		"nothing disappears":          {4e6, nil, []int{2, 2, 2, 2}},
		"too little for all":          {2.5e6, nil, []int{2, 2, -1, -1}},
		"the present choice stays":    {10e6, []int{0, 0, 2, 2}, []int{0, 0, 2, 2}},
		"a poor choice goes":          {10e6, []int{2, 2, 0, 0}, []int{0, 0, 2, 2}},
		"too expensive":               {4e6, []int{0, 0, 0, 0}, []int{2, 2, 2, 2}},
		"other cameras":               {4e6, []int{1}, []int{2, 2, 2, 2}},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			var ch Chooser
			got := make([]int, 4)
			if gap := ch.Choose(got, worth, options, c.budget, c.current); gap > 0.06 {
				t.Errorf("gap %v", gap)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func BenchmarkWorth(b *testing.B) {
	cameras := stage(0, 1.5, 3, 4.5)
	worth := make([]float64, len(cameras))
	var s Scene
	views := Ahead(eye(0.5), [3]float64{}, 1, 0.5)
	for b.Loop() {
		s.Worth(worth, cameras, views...)
	}
}
