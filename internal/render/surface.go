package render

import (
	"fmt"
	"image"
	"math"

	"holocast/internal/camera"
	"holocast/internal/pointcloud"
	"holocast/internal/vec3"
)

// Surface is one camera's frame: a grid, the rays of its pixels, and the pose that maps the grid's
// space to the common one. All lengths are millimetres.
type Surface struct {
	Grid *pointcloud.Grid
	Rays *camera.RayTable
	Pose camera.Transform
}

// Constants of the surface, equal in all viewers (docs/spec/surface.md).
const (
	// Steepest slope between neighbors of one surface: the tangent of the angle between the ray and
	// the surface's normal.
	steepest = 6
	// Largest gap in the grid that is closed, in pixels between two readings.
	reach = 4
	// Distance of the readings that give the normal, pixels.
	span = 3
	// A sample shows the cameras' surfaces within this distance of the nearest, relative to depth and in
	// millimetres.
	together, togetherAtLeast = 0.004, 8
	leastWeight               = 1e-4
)

// sheet is a surface prepared for drawing.
type sheet struct {
	Surface
	focal float64
	gap   float32 // depth step between neighbors of one surface, per unit of depth

	oneSided bool
}

func newSheet(s Surface) *sheet {
	// The rays of neighboring pixels near the center are 1/focal apart.
	at := s.Grid.Height/2*s.Grid.Width + s.Grid.Width/2
	focal := 1 / float64(s.Rays.X[at+1]-s.Rays.X[at])
	return &sheet{Surface: s, focal: focal, gap: float32(steepest / focal)}
}

// depth returns a pixel's depth, or 0.
func (s *sheet) depth(x, y int) float32 {
	if x < 0 || y < 0 || x >= s.Grid.Width || y >= s.Grid.Height {
		return 0
	}
	return float32(s.Grid.Depth[y*s.Grid.Width+x])
}

// joined reports whether two readings d pixels apart lie on one surface.
func (s *sheet) joined(a, b float32, d int) bool {
	return b != 0 && abs(a-b) <= s.gap*min(a, b)*float32(d)
}

func abs(v float32) float32 { return max(v, -v) }

// next returns the distance to the next reading in one direction, 1 if there is none, and whether it
// lies on the same surface.
func (s *sheet) next(x, y, dx, dy int, z float32) (d int, joined bool) {
	for d := 1; d <= reach; d++ {
		if q := s.depth(x+d*dx, y+d*dy); q != 0 {
			return d, s.joined(z, q, d)
		}
	}
	return 1, false
}

// corner is one corner of a pixel's quad.
type corner struct {
	at    [3]float64 // camera space
	color [3]float32
}

// quad computes the corners of a pixel's quad, in the order top left, top right, bottom left,
// bottom right. Neighbors on the same surface share corners, so their quads meet. It returns false if
// a pixel has no ray.
func (s *sheet) quad(x, y int, z float32, q *[4]corner) bool {
	var across, down [2]int
	var right, below [2]bool // joined
	for i, d := range [2]int{-1, 1} {
		across[i], right[i] = s.next(x, y, d, 0, z)
		down[i], below[i] = s.next(x, y, 0, d, z)
	}
	for k := range q {
		i, j := k&1, k>>1
		dx, dy := (2*i-1)*across[i], (2*j-1)*down[j]
		var c mean
		c.add(s, x, y)
		if right[i] {
			c.add(s, x+dx, y)
		}
		if below[j] {
			c.add(s, x, y+dy)
		}
		far := s.depth(x+dx, y+dy)
		if right[i] && below[j] && s.joined(s.depth(x+dx, y), far, down[j]) && s.joined(s.depth(x, y+dy), far, across[i]) {
			c.add(s, x+dx, y+dy)
		}
		rx, ry, ok := s.ray(float64(x)+float64(dx)/2, float64(y)+float64(dy)/2)
		if !ok {
			return false
		}
		depth := float64(c.depth / c.n)
		q[k] = corner{[3]float64{rx * depth, ry * depth, depth}, [3]float32{c.rgb[0] / c.n, c.rgb[1] / c.n, c.rgb[2] / c.n}}
	}
	return true
}

// mean averages readings.
type mean struct {
	n, depth float32
	rgb      [3]float32
}

func (m *mean) add(s *sheet, x, y int) {
	at := y*s.Grid.Width + x
	m.n++
	m.depth += float32(s.Grid.Depth[at])
	for k, c := range s.Grid.Color[3*at : 3*at+3] {
		m.rgb[k] += float32(c)
	}
}

// ray interpolates the rays of the pixels around (x, y), a multiple of a half.
func (s *sheet) ray(x, y float64) (float64, float64, bool) {
	x, y = min(max(x, 0), float64(s.Grid.Width-1)), min(max(y, 0), float64(s.Grid.Height-1))
	x0, y0, x1, y1 := int(x), int(y), int(x+0.5), int(y+0.5)
	w := s.Grid.Width
	var rx, ry float64
	for _, at := range [4]int{y0*w + x0, y0*w + x1, y1*w + x0, y1*w + x1} {
		rx += float64(s.Rays.X[at]) / 4
		ry += float64(s.Rays.Y[at]) / 4
	}
	return rx, ry, !math.IsNaN(rx)
}

// normal estimates the surface's normal in camera space, from readings up to three pixels away, as
// the sensor's noise between neighbors is of the order of their distance. inside is the share of
// the four readings at that distance that belong to the surface.
func (s *sheet) normal(x, y int, z float32) (normal [3]float64, inside float32) {
	slope := func(dx, dy int) float64 {
		ends, at := [2]float64{float64(z), float64(z)}, [2]int{}
		for i, sign := range [2]int{-1, 1} {
			for d := span; d > 0; d-- {
				if q := s.depth(x+sign*d*dx, y+sign*d*dy); s.joined(z, q, d) {
					ends[i], at[i] = float64(q), sign*d
					break
				}
			}
			if at[i] == sign*span {
				inside += 0.25
			}
		}
		if at[0] == at[1] {
			return 0
		}
		return (ends[1] - ends[0]) / float64(at[1]-at[0])
	}
	gx, gy := slope(1, 0), slope(0, 1)
	i := y*s.Grid.Width + x
	rx, ry, step := float64(s.Rays.X[i]), float64(s.Rays.Y[i]), float64(z)/s.focal
	return vec3.Cross([3]float64{rx * gy, step + ry*gy, gy}, [3]float64{step + rx*gx, ry * gx, gx}), inside
}

// weight is a camera's share of a sample's color: large where it sees the surface frontally, from
// nearby, from the viewer's direction, and away from edges. toSensor and toEye are unit vectors from
// the surface; distance is the sensor's in millimetres.
func weight(normal, toSensor, toEye [3]float64, inside float32, distance float64) float32 {
	facing, similar := max(vec3.Dot(normal, toSensor), 0), max(vec3.Dot(toSensor, toEye), 0)
	in := float64(inside * inside)
	return float32(facing*facing*math.Pow(similar, 8)*in*in*1e6/(distance*distance)) + leastWeight
}

// Surfaces draws the cameras' surfaces, blended by weight where they coincide. With several
// cameras, back faces are not drawn. Options.Sensors is not used.
func Surfaces(opts Options, surfaces ...Surface) (*image.RGBA, error) {
	var clouds []pointcloud.Points
	if opts.Eye == nil && opts.Fit == nil {
		for _, s := range surfaces {
			clouds = append(clouds, s.Grid.Transform(s.Rays, s.Pose))
		}
	}
	sheets := make([]*sheet, len(surfaces))
	for i, s := range surfaces {
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("render: surface %d: %w", i, err)
		}
		sheets[i] = newSheet(s)
		sheets[i].oneSided = len(surfaces) > 1
	}
	return opts.draw(clouds, func(v *view, _ scene) { v.surfaces(sheets) })
}

func (s *Surface) check() error {
	if err := s.Grid.Check(); err != nil {
		return err
	}
	if s.Grid.Width < 2 || s.Grid.Width != s.Rays.Width || s.Grid.Height != s.Rays.Height {
		return fmt.Errorf("a grid of %d×%d pixels with %d×%d rays", s.Grid.Width, s.Grid.Height, s.Rays.Width, s.Rays.Height)
	}
	return nil
}

// surfaces draws depth, then the weighted colors of the surfaces nearest to the viewer.
func (v *view) surfaces(sheets []*sheet) {
	for _, s := range sheets {
		v.sheet(s, func(at int, depth float32, _ [3]float32, _ float32) {
			v.depth[at] = min(v.depth[at], depth)
		})
	}
	total := make([][4]float32, len(v.depth)) // red, green and blue times weight, and weight
	for _, s := range sheets {
		v.sheet(s, func(at int, depth float32, rgb [3]float32, w float32) {
			if depth > v.depth[at]*(1+together)+togetherAtLeast {
				return
			}
			t := &total[at]
			for k := range rgb {
				t[k] += w * rgb[k]
			}
			t[3] += w
		})
	}
	for i, t := range total {
		for k := range v.colour[i] {
			if t[3] > 0 {
				v.colour[i][k] = uint8(t[k]/t[3] + 0.5)
			}
		}
	}
}

// sheet calls put for each sample of a surface.
func (v *view) sheet(s *sheet, put func(at int, depth float32, rgb [3]float32, w float32)) {
	place := func(p [3]float64) [3]float64 {
		w := s.Pose.Apply(p)
		x, y, z := v.turn(w[0], w[1], w[2])
		return [3]float64{x, y, z}
	}
	sensor := place([3]float64{})
	var q [4]corner
	for y := range s.Grid.Height {
		for x := range s.Grid.Width {
			z := s.depth(x, y)
			if z == 0 || !s.quad(x, y, z, &q) {
				continue
			}
			i := y*s.Grid.Width + x
			center := place([3]float64{float64(s.Rays.X[i] * z), float64(s.Rays.Y[i] * z), float64(z)})
			n, inside := s.normal(x, y, z)
			normal, toSensor := vec3.Unit(vec3.Sub(place(n), sensor)), vec3.Sub(sensor, center)
			toEye := vec3.Unit(vec3.Scale(center, -1))
			if s.oneSided && vec3.Dot(normal, toEye) <= 0 {
				continue
			}
			w := weight(normal, vec3.Unit(toSensor), toEye, inside, vec3.Length(toSensor))
			v.quad(&q, place, w, put)
		}
	}
}

// vertex is a corner in the picture.
type vertex struct {
	x, y, depth float64 // samples, millimetres
	color       [3]float32
}

func (v *view) quad(q *[4]corner, place func([3]float64) [3]float64, w float32,
	put func(at int, depth float32, rgb [3]float32, w float32),
) {
	var c [4]vertex
	for k := range q {
		e := place(q[k].at)
		if e[2] < v.near {
			return
		}
		f := v.focal / e[2]
		c[k] = vertex{e[0]*f + v.middle[0], e[1]*f + v.middle[1], e[2], q[k].color}
	}
	v.triangle(c[0], c[1], c[2], w, put)
	v.triangle(c[2], c[1], c[3], w, put)
}

func (v *view) triangle(a, b, c vertex, w float32, put func(at int, depth float32, rgb [3]float32, w float32)) {
	area := (b.x-a.x)*(c.y-a.y) - (b.y-a.y)*(c.x-a.x)
	if area == 0 {
		return
	}
	x0, x1 := max(int(math.Ceil(min(a.x, b.x, c.x)-0.5)), 0), min(int(math.Floor(max(a.x, b.x, c.x)-0.5)), v.width-1)
	y0, y1 := max(int(math.Ceil(min(a.y, b.y, c.y)-0.5)), 0), min(int(math.Floor(max(a.y, b.y, c.y)-0.5)), v.height-1)
	for y := y0; y <= y1; y++ {
		for x := x0; x <= x1; x++ {
			px, py := float64(x)+0.5, float64(y)+0.5
			u := ((b.x-px)*(c.y-py) - (b.y-py)*(c.x-px)) / area
			t := ((c.x-px)*(a.y-py) - (c.y-py)*(a.x-px)) / area
			r := 1 - u - t
			if u < 0 || t < 0 || r < 0 {
				continue
			}
			var rgb [3]float32
			for k := range rgb {
				rgb[k] = float32(u)*a.color[k] + float32(t)*b.color[k] + float32(r)*c.color[k]
			}
			put(y*v.width+x, float32(1/(u/a.depth+t/b.depth+r/c.depth)), rgb, w)
		}
	}
}

// Squares draws the surfaces' pixels as squares that face the viewer, 1.4 times the distance between neighbors, as
// viewers draw points.
func Squares(opts Options, surfaces ...Surface) (*image.RGBA, error) {
	return opts.draw(nil, func(v *view, _ scene) {
		for _, s := range surfaces {
			v.squares(newSheet(s))
		}
	})
}

func (v *view) squares(s *sheet) {
	const edge, least = 1.4, Supersample // of the distance between neighbors; samples
	for i, z := range s.Grid.Depth {
		d := float64(z)
		if rx := float64(s.Rays.X[i]); z != 0 && !math.IsNaN(rx) {
			p := s.Pose.Apply([3]float64{rx * d, float64(s.Rays.Y[i]) * d, d})
			x, y, e := v.turn(p[0], p[1], p[2])
			if e < v.near {
				continue
			}
			f := v.focal / e
			v.disc(x*f+v.middle[0], y*f+v.middle[1], max(edge*d/s.focal*f, least)/2, math.Inf(1), float32(e),
				[3]uint8(s.Grid.Color[3*i:]))
		}
	}
}
