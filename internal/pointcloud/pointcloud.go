// Package pointcloud is the point-cloud frame codec: a self-contained object per
// camera and description, magic HCPF, whose byte format is
// docs/spec/point-cloud-frame.md. It knows nothing of networks or sensors.
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
