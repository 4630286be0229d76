// Package pointcloud is the point-cloud frame codec: a self-contained object per
// camera and description, magic HCPF, whose byte format is
// docs/spec/point-cloud-frame.md. It knows nothing of networks or sensors.
//
// With cgo the planes are made and undone by the C kernels of kernels.c and the
// system's libzstd; without it by reference.go and a zstd in Go, several times
// slower. Both write the same planes, and the tests hold them to it.
package pointcloud

// Grid is one sensor's frame on its pixel grid (layout A).
type Grid struct {
	Width, Height int
	Depth         []uint16 // Width×Height, row-major, millimetres, 0 = no point
	Color         []byte   // 3×Width×Height, R G B; ignored where Depth is 0
}

// Points is an unorganised cloud (layouts B and C).
type Points struct {
	XYZ []int16 // 3×n, millimetres
	RGB []byte  // 3×n
}

// reset gives g the size width×height, empty of points, reusing its slices.
func (g *Grid) reset(width, height int) {
	g.Width, g.Height = width, height
	g.Depth = resize(g.Depth, width*height)
	g.Color = resize(g.Color, 3*width*height)
	clear(g.Depth)
	clear(g.Color)
}

// resize gives p room for n points, reusing its slices.
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
