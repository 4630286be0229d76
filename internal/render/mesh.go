package render

import (
	"math"
	"slices"

	"holocast/internal/mesh"
	"holocast/internal/pointcloud"
	"holocast/internal/vec3"
)

// Mesh returns a camera's frame as triangles between neighboring pixels, in the common space. Vertices are shared
// readings, and interpolated ones in gaps of up to reach − 1 pixels within a surface. All edges of a triangle join
// readings of one surface; triangles are counter-clockwise from the sensor, and normals point to its side. Readings
// without a triangle are left out.
func (s Surface) Mesh() (*mesh.Mesh, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	s.Grid = newSheet(s).closed()
	return newSheet(s).mesh(), nil
}

// closed returns the grid with its small gaps interpolated, along rows and then along columns.
func (s *sheet) closed() *pointcloud.Grid {
	g := &pointcloud.Grid{
		Width: s.Grid.Width, Height: s.Grid.Height,
		Depth: slices.Clone(s.Grid.Depth), Color: slices.Clone(s.Grid.Color),
	}
	for y := range g.Height {
		s.closeLine(g, y*g.Width, 1, g.Width)
	}
	for x := range g.Width {
		s.closeLine(g, x, g.Width, g.Height)
	}
	return g
}

// closeLine closes the gaps among n pixels, step apart, from the one at first.
func (s *sheet) closeLine(g *pointcloud.Grid, first, step, n int) {
	last := -1
	for i := range n {
		b := first + i*step
		if g.Depth[b] == 0 {
			continue
		}
		d := i - last
		if a := first + last*step; last >= 0 && d > 1 && d <= reach &&
			s.joined(float32(g.Depth[a]), float32(g.Depth[b]), d) {
			for k := 1; k < d; k++ {
				interpolate(g, a, b, a+k*step, float64(k)/float64(d))
			}
		}
		last = i
	}
}

// interpolate sets pixel to, part t of the way from pixel a to pixel b.
func interpolate(g *pointcloud.Grid, a, b, to int, t float64) {
	mix := func(a, b float64) float64 { return math.Round(a + t*(b-a)) }
	g.Depth[to] = uint16(mix(float64(g.Depth[a]), float64(g.Depth[b])))
	for k := range 3 {
		g.Color[3*to+k] = uint8(mix(float64(g.Color[3*a+k]), float64(g.Color[3*b+k])))
	}
}

// mesh triangulates each cell of four pixels whose readings are joined.
func (s *sheet) mesh() *mesh.Mesh {
	b := meshBuilder{sheet: s, numbers: make([]uint32, len(s.Grid.Depth))}
	w := s.Grid.Width
	for y := range s.Grid.Height - 1 {
		for at := y * w; at < y*w+w-1; at++ {
			// The shorter diagonal. Triangles are counter-clockwise in a picture with y down.
			right, below, across := at+1, at+w, at+w+1
			if b.step(at, across) < b.step(right, below) {
				b.triangle(at, below, across)
				b.triangle(at, across, right)
			} else {
				b.triangle(at, below, right)
				b.triangle(right, below, across)
			}
		}
	}
	return &b.mesh
}

// meshBuilder numbers the vertices of a mesh in order of use.
type meshBuilder struct {
	*sheet
	mesh    mesh.Mesh
	numbers []uint32 // of each pixel's vertex, from 1
}

// step returns the difference in depth, or infinity if there is no reading or no ray.
func (b *meshBuilder) step(p, q int) float32 {
	if b.Grid.Depth[p] == 0 || b.Grid.Depth[q] == 0 || math.IsNaN(float64(b.Rays.X[p]+b.Rays.X[q])) {
		return float32(math.Inf(1))
	}
	return abs(float32(b.Grid.Depth[p]) - float32(b.Grid.Depth[q]))
}

// joins reports whether neighboring pixels lie on one surface.
func (b *meshBuilder) joins(p, q int) bool {
	return b.step(p, q) <= b.gap*float32(min(b.Grid.Depth[p], b.Grid.Depth[q]))
}

func (b *meshBuilder) triangle(p, q, r int) {
	if !b.joins(p, q) || !b.joins(q, r) || !b.joins(r, p) {
		return
	}
	for _, at := range [3]int{p, q, r} {
		if b.numbers[at] == 0 {
			b.numbers[at] = b.vertex(at)
		}
		b.mesh.Triangles = append(b.mesh.Triangles, b.numbers[at]-1)
	}
}

// vertex adds a pixel's vertex and returns its number, from 1.
func (b *meshBuilder) vertex(at int) uint32 {
	x, y, z := at%b.Grid.Width, at/b.Grid.Width, float64(b.Grid.Depth[at])
	p := b.Pose.Apply([3]float64{float64(b.Rays.X[at]) * z, float64(b.Rays.Y[at]) * z, z})
	normal, _ := b.normal(x, y, float32(z))
	n := vec3.Unit(vec3.Sub(b.Pose.Apply(normal), b.Pose.T))
	for k := range 3 {
		b.mesh.XYZ = append(b.mesh.XYZ, float32(p[k]))
		b.mesh.Normals = append(b.mesh.Normals, float32(n[k]))
	}
	b.mesh.RGB = append(b.mesh.RGB, b.Grid.Color[3*at:3*at+3]...)
	return uint32(len(b.mesh.XYZ) / 3)
}
