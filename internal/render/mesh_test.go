package render

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"holocast/internal/camera"
	"holocast/internal/mesh"
	"holocast/internal/pointcloud"
	"holocast/internal/vec3"
)

// studio is a pose that rotates about two axes and translates.
var studio = turnedPose(40, 20, [3]float64{300, -1200, 700})

func turnedPose(azimuth, elevation float64, at [3]float64) camera.Transform {
	return camera.Transform{R: turned(azimuth, elevation), T: at}
}

func TestMesh(t *testing.T) {
	for _, tt := range []struct {
		name                string
		drop                func(x, y int) bool
		vertices, triangles int
	}{
		// The edge of the box crosses 80 cells. In the four at its corners, three pixels are on the wall.
		{"complete", nil, 80 * 60, 2*(79*59-80) + 4},
		{"nothing", func(int, int) bool { return true }, 0, 0},
		{"single pixels", func(x, y int) bool { return x%6 != 0 || y%6 != 0 }, 0, 0},
		{"one cell", func(x, y int) bool { return x > 1 || y > 1 }, 4, 2},
		{"three corners", func(x, y int) bool { return x > 1 || y > 1 || x+y == 0 }, 3, 1},
		{"a gap of three pixels", func(x, y int) bool { return y > 1 || x > 4 || x%4 != 0 }, 10, 8},
		{"a gap of four pixels", func(x, y int) bool { return y > 1 || x > 5 || x%5 != 0 }, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := wall(tt.drop)
			m, err := s.Mesh()
			if err != nil {
				t.Fatal(err)
			}
			if len(m.XYZ)/3 != tt.vertices || len(m.Triangles)/3 != tt.triangles {
				t.Errorf("%d vertices, %d triangles; want %d, %d", len(m.XYZ)/3, len(m.Triangles)/3, tt.vertices, tt.triangles)
			}
		})
	}
}

// A mesh closes what busy publishers leave out, and keeps the depth step around the box.
func TestMeshClosesRows(t *testing.T) {
	whole, err := wall(nil).Mesh()
	if err != nil {
		t.Fatal(err)
	}
	rows := wall(func(_, y int) bool { return y%3 != 0 && y != 59 })
	m, err := rows.Mesh()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(m.Triangles), len(whole.Triangles); got < want*9/10 || got > want {
		t.Errorf("%d corners of triangles, the complete grid has %d", got, want)
	}
}

// Triangles join readings of one surface only, and face the sensor with their vertices' normals.
func TestMeshProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		s := noisy(r)
		m, err := s.Mesh()
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
		if len(m.Triangles) == 0 {
			t.Fatal("no triangles")
		}
		checkTriangles(t, s, m)
	}
}

func checkTriangles(t *testing.T, s Surface, m *mesh.Mesh) {
	t.Helper()
	sheet := newSheet(s)
	inverse := s.Pose.Inverse()
	rotation := camera.Transform{R: inverse.R}
	for i := 0; i < len(m.Triangles); i += 3 {
		var p [3][3]float64
		for k, v := range m.Triangles[i : i+3] {
			p[k] = inverse.Apply(vec(m.XYZ[3*v:]))
		}
		for k := range p {
			z, next := p[k][2], p[(k+1)%3][2]
			if d := math.Abs(z - next); d > float64(sheet.gap)*min(z, next)+0.05 {
				t.Fatalf("an edge spans %.1f mm at %.0f mm, more than the bound", d, z)
			}
		}
		if front := vec3.Cross(vec3.Sub(p[1], p[0]), vec3.Sub(p[2], p[0])); vec3.Dot(front, p[0]) >= 0 {
			t.Fatalf("triangle %d at %v faces away from the sensor", i/3, p)
		}
		for k, v := range m.Triangles[i : i+3] {
			n := rotation.Apply(vec(m.Normals[3*v:]))
			if vec3.Dot(n, p[k]) >= 0 || math.Abs(vec3.Length(n)-1) > 1e-5 {
				t.Fatalf("normal %v at %v", n, p[k])
			}
		}
	}
}

func vec(v []float32) [3]float64 { return [3]float64{float64(v[0]), float64(v[1]), float64(v[2])} }

// noisy returns tilted planes with noise and missing readings, seen by a lens with distortion and pixels without rays.
func noisy(r *rand.Rand) Surface {
	const w, h = 64, 48
	lens := camera.Intrinsics{
		Width: w, Height: h, Fx: 50, Fy: 50, Cx: 31.5, Cy: 23.5, K: [6]float64{5.3, 3.6, 0.19, 5.6, 5.4, 1}, MaxRadius: 0.7,
	}
	rays := lens.RayTable()
	g := &pointcloud.Grid{}
	g.Resize(w, h)
	clear(g.Depth)
	for i := range g.Depth {
		x, y := i%w, i/w
		z := []float64{900 + 150*float64(x%20), 2500 - 20*float64(y), 1400}[(x/16+y/12)%3]
		if r.Float64() > 0.2 {
			g.Depth[i] = uint16(z + 8*r.NormFloat64())
		}
		g.Color[3*i] = byte(r.UintN(256))
	}
	return Surface{Grid: g, Rays: &rays, Pose: studio}
}

// The vertices of a complete plane are its readings, in the common space.
func TestMeshVertices(t *testing.T) {
	s := wall(nil)
	s.Pose = studio
	m, err := s.Mesh()
	if err != nil {
		t.Fatal(err)
	}
	cloud := s.Grid.Transform(s.Rays, s.Pose)
	count := func(xyz []float64, rgb []byte) map[[6]int]int {
		n := map[[6]int]int{}
		for i := 0; i < len(xyz); i += 3 {
			n[[6]int{
				int(math.Round(xyz[i])), int(math.Round(xyz[i+1])), int(math.Round(xyz[i+2])),
				int(rgb[i]), int(rgb[i+1]), int(rgb[i+2]),
			}]++
		}
		return n
	}
	var got, want []float64
	for _, v := range m.XYZ {
		got = append(got, float64(v))
	}
	for _, v := range cloud.XYZ {
		want = append(want, float64(v))
	}
	missing := 0
	found := count(got, m.RGB)
	for k := range count(want, cloud.RGB) {
		if found[k] == 0 {
			missing++
		}
	}
	if len(got) != len(want) || missing > len(want)/1000 { // of values near a half
		t.Errorf("%d vertices of %d points; %d differ", len(got)/3, len(want)/3, missing)
	}
	if !slices.Contains(m.RGB, 200) {
		t.Error("no color")
	}
}

func TestMeshOfBadInput(t *testing.T) {
	s := wall(nil)
	s.Rays = &camera.RayTable{Width: 3, Height: 3}
	if _, err := s.Mesh(); err == nil {
		t.Error("rays of another size are accepted")
	}
	s = wall(nil)
	before := slices.Clone(s.Grid.Depth)
	s.Grid.Depth[100] = 0
	if _, err := s.Mesh(); err != nil {
		t.Fatal(err)
	}
	before[100] = 0
	if !slices.Equal(before, s.Grid.Depth) {
		t.Error("the frame has changed")
	}
}
