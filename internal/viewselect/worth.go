package viewselect

import (
	"math"

	"holocast/internal/camera"
	"holocast/internal/vec3"
)

// View is an eye in studio space: x right, y down, z forward.
type View struct {
	Eye camera.Transform // from studio space to eye space
	// TanX and TanY are the tangents of half the horizontal and vertical field of view.
	TanX, TanY float64
}

// Screen cells. A few hundred suffice for shares of a picture.
const (
	columns = 48
	rows    = 36
	// nearest is the least distance in mm at which surfaces are visible.
	nearest = 50
	// thickness is the depth difference, relative to depth, within which two cameras see the same
	// surface.
	thickness = 0.03
	// largestPatch bounds the cells that one patch covers in each direction.
	largestPatch = 8
	// leastWeight is the weight of a camera that sees a surface from the other side.
	leastWeight = 1e-6
)

// Scene computes worths. It reuses its memory and is not safe for concurrent use.
type Scene struct {
	depth  [rows * columns]float64 // of the nearest surface
	weight []float64               // of each camera per cell, camera by camera
	patch  []patch
}

// patch is a visible sample on the screen.
type patch struct {
	camera         int
	x0, x1, y0, y1 int // cells, ends excluded
	depth, weight  float64
}

// Worth sets dst to each camera's share of the picture, averaged over views: 1 if all of it comes
// from that camera. Surfaces that several cameras see are divided as they are drawn
// (docs/spec/surface.md): in proportion to the area of the samples on the screen, facing² and
// similar⁸. Hidden surfaces do not count.
func (s *Scene) Worth(dst []float64, cameras [][]Sample, views ...View) {
	clear(dst)
	for i := range views {
		s.add(dst, cameras, &views[i])
	}
	for c := range dst {
		dst[c] /= float64(max(1, len(views)))
	}
}

func (s *Scene) add(dst []float64, cameras [][]Sample, v *View) {
	for i := range s.depth {
		s.depth[i] = math.Inf(1)
	}
	s.patch = s.patch[:0]
	for c, samples := range cameras {
		for i := range samples {
			if p, ok := v.project(&samples[i]); ok {
				p.camera = c
				s.patch = append(s.patch, p)
				p.each(func(cell int) { s.depth[cell] = min(s.depth[cell], p.depth) })
			}
		}
	}
	n := len(s.depth)
	s.weight = append(s.weight[:0], make([]float64, n*len(cameras))...)
	for i := range s.patch {
		p := &s.patch[i]
		p.each(func(cell int) {
			if p.depth <= s.depth[cell]*(1+thickness) {
				s.weight[p.camera*n+cell] += p.weight
			}
		})
	}
	for cell := range n {
		sum := 0.0
		for c := range cameras {
			sum += s.weight[c*n+cell]
		}
		if sum == 0 {
			continue
		}
		for c := range cameras {
			dst[c] += s.weight[c*n+cell] / sum / float64(n)
		}
	}
}

// project returns the cells that a sample covers. ok is false for a sample that lies outside the
// picture or faces away.
func (v *View) project(s *Sample) (p patch, ok bool) {
	e := v.Eye.Apply(to64(s.Point))
	if e[2] < nearest {
		return p, false
	}
	facing := -vec3.Dot(rotate(&v.Eye, to64(s.Normal)), e) / vec3.Length(e)
	if facing <= 0 {
		return p, false
	}
	// Cells per mm at this depth, and the patch's side in cells.
	perX, perY := columns/(2*v.TanX*e[2]), rows/(2*v.TanY*e[2])
	side := math.Sqrt(float64(s.Area) * facing)
	x, y := columns/2+e[0]*perX, rows/2+e[1]*perY
	var okX, okY bool
	p.x0, p.x1, okX = span(x, side*perX, columns)
	p.y0, p.y1, okY = span(y, side*perY, rows)
	p.depth = e[2]
	p.weight = side * perX * side * perY / float64((p.x1-p.x0)*(p.y1-p.y0)) * s.weight(&v.Eye, e)
	return p, okX && okY
}

// weight is the camera's share where several cameras see the surface. e is the sample in eye space.
func (s *Sample) weight(eye *camera.Transform, e [3]float64) float64 {
	sensor := vec3.Sub(eye.Apply(to64(s.Sensor)), e)
	similar := max(0, -vec3.Dot(sensor, e)/max(vec3.Length(sensor)*vec3.Length(e), 1e-9))
	similar *= similar
	similar *= similar
	return float64(s.Facing*s.Facing)*similar*similar + leastWeight
}

// span returns the cells from x − size/2 to x + size/2, at least the cell that contains x.
func span(x, size float64, cells int) (from, to int, ok bool) {
	half := min(size, largestPatch) / 2
	a, b := math.Floor(x-half+0.5), math.Ceil(x+half-0.5)
	if b <= a {
		a = math.Floor(x)
		b = a + 1
	}
	a, b = max(a, 0), min(b, float64(cells))
	return int(a), int(b), a < b
}

func (p *patch) each(visit func(cell int)) {
	for y := p.y0; y < p.y1; y++ {
		for x := p.x0; x < p.x1; x++ {
			visit(y*columns + x)
		}
	}
}

// Ahead returns the range of views that an eye at v may have when a new group starts: moved at
// velocity (mm/s, studio space), and also turned left and right at turn rad/s. after is the time
// until then in seconds.
func Ahead(v View, velocity [3]float64, turn, after float64) []View {
	moved := v
	d := rotate(&v.Eye, vec3.Scale(velocity, after))
	moved.Eye.T = vec3.Sub(v.Eye.T, d)
	left, right := moved, moved
	left.Eye = yaw(turn * after).Compose(moved.Eye)
	right.Eye = yaw(-turn * after).Compose(moved.Eye)
	return []View{moved, left, right}
}

// yaw rotates eye space about its vertical axis.
func yaw(angle float64) camera.Transform {
	sin, cos := math.Sincos(angle)
	return camera.Transform{R: [9]float64{cos, 0, sin, 0, 1, 0, -sin, 0, cos}}
}
