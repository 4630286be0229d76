// Package pointcloud implements the point-cloud frame codec of docs/spec/point-cloud-frame.md: a
// self-contained object per camera and description, with magic HCPF.
//
// With cgo it uses kernels.c and the system's libzstd; without cgo, reference.go and a Go zstd,
// several times slower. Tests check that both write the same planes.
package pointcloud

import (
	"math"

	"holocast/internal/camera"
)

// Frame is one frame of one camera, in any layout.
type Frame struct {
	Layout Layout
	Grid   Grid   // if Layout.OnGrid
	Points Points // otherwise
}

// Grid is one sensor's pixel grid.
type Grid struct {
	Width, Height int
	Depth         []uint16 // Width×Height, row-major, millimetres, 0 = no point
	Color         []byte   // 3×Width×Height, R G B; ignored where Depth is 0
}

// Points is an unorganised cloud.
type Points struct {
	XYZ []int16 // 3×n, millimetres
	RGB []byte  // 3×n
}

// SetGrid sets f to g in layout l. A layout on a grid shares g's slices. Other layouts get g's
// points in camera space, computed with rays, except points beyond 32.767 m, which they cannot
// represent. f's own slices are reused.
func (f *Frame) SetGrid(l Layout, g *Grid, rays *camera.RayTable) {
	f.Layout = l
	if l.OnGrid() {
		f.Grid = *g
		return
	}
	f.Points.resize(len(g.Depth))
	xyz, rgb := f.Points.XYZ, f.Points.RGB
	n := 0
	for i, d := range g.Depth {
		x, y := rays.X[i]*float32(d), rays.Y[i]*float32(d)
		if d == 0 || d > math.MaxInt16 ||
			!(x >= -math.MaxInt16 && x <= math.MaxInt16 && y >= -math.MaxInt16 && y <= math.MaxInt16) {
			continue // also skips NaN, a pixel without a ray
		}
		to, from := xyz[n:n+3], g.Color[3*i:3*i+3]
		to[0], to[1], to[2] = round(x), round(y), int16(d)
		c := rgb[n : n+3]
		c[0], c[1], c[2] = from[0], from[1], from[2]
		n += 3
	}
	f.Points.XYZ, f.Points.RGB = xyz[:n], rgb[:n]
}

// round rounds half away from zero.
func round(v float32) int16 {
	if v < 0 {
		return int16(v - 0.5)
	}
	return int16(v + 0.5)
}

// Resize sets g's size to width×height, reusing its slices. The pixels are undefined.
func (g *Grid) Resize(width, height int) {
	g.Width, g.Height = width, height
	g.Depth = resize(g.Depth, width*height)
	g.Color = resize(g.Color, 3*width*height)
}

// reset sets g's size to width×height without points.
func (g *Grid) reset(width, height int) {
	g.Resize(width, height)
	clear(g.Depth)
	clear(g.Color)
}

// resize sets p's length to n points, reusing its slices.
func (p *Points) resize(n int) {
	p.XYZ = resize(p.XYZ, 3*n)
	p.RGB = resize(p.RGB, 3*n)
}

func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// surfaceStep is the largest depth difference between neighbors on one surface: depth / surfaceStep.
const surfaceStep = 32

// Halve fills dst with every second pixel of g in x and y (camera.Intrinsics.Half). Their colors are
// means of the pixel and its neighbors on the same surface, with weight 4 for the pixel, 2 for horizontal
// and vertical neighbors and 1 for diagonal ones. Detail finer than the new grid would turn into noise.
func (g *Grid) Halve(dst *Grid) {
	dst.Resize((g.Width+1)/2, (g.Height+1)/2)
	i := 0
	for y := 0; y < g.Height; y += 2 {
		top, bottom := max(y-1, 0), min(y+1, g.Height-1)
		for x := 0; x < g.Width; x += 2 {
			z := uint32(g.Depth[y*g.Width+x])
			nearest, span := z-z/surfaceStep, z/surfaceStep*2
			var sum, n uint64
			for v := top; v <= bottom; v++ {
				for k := v*g.Width + max(x-1, 0); k <= v*g.Width+min(x+1, g.Width-1); k++ {
					if uint32(g.Depth[k])-nearest > span { // wraps to a large value if nearer
						continue
					}
					weight := uint64(1)
					if v == y {
						weight = 2
					}
					if k-v*g.Width == x {
						weight *= 2
					}
					c := g.Color[3*k : 3*k+3]
					sum += weight * (uint64(c[0]) | uint64(c[1])<<20 | uint64(c[2])<<40)
					n += weight
				}
			}
			const mask = 1<<20 - 1
			to := dst.Color[3*i : 3*i+3]
			to[0], to[1], to[2] = byte((sum&mask+n/2)/n), byte((sum>>20&mask+n/2)/n), byte((sum>>40+n/2)/n)
			dst.Depth[i] = uint16(z)
			i++
		}
	}
}
