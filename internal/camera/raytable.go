package camera

import "math"

// RayTable holds the rays of a lens's pixels: pixel i at depth z is the point (X[i]·z, Y[i]·z, z).
// A pixel without a ray has X = NaN and Y = 0, as in the Azure Kinect Sensor SDK.
type RayTable struct {
	Width, Height int
	X, Y          []float32 // Width×Height each, row-major
}

// Half returns the lens of the image made of every second pixel: pixel (2u, 2v) becomes (u, v).
func (in Intrinsics) Half() Intrinsics {
	in.Width, in.Height = (in.Width+1)/2, (in.Height+1)/2
	in.Fx, in.Fy, in.Cx, in.Cy = in.Fx/2, in.Fy/2, in.Cx/2, in.Cy/2
	return in
}

// RayTable computes the ray of every pixel centre with Unproject, rounded to float32. in must be
// valid.
func (in *Intrinsics) RayTable() RayTable {
	n := in.Width * in.Height
	t := RayTable{Width: in.Width, Height: in.Height, X: make([]float32, n), Y: make([]float32, n)}
	nan := float32(math.NaN())
	for v := range in.Height {
		row := v * in.Width
		for u := range in.Width {
			x, y, ok := in.Unproject(float64(u), float64(v))
			if !ok {
				t.X[row+u] = nan
				continue
			}
			t.X[row+u], t.Y[row+u] = float32(x), float32(y)
		}
	}
	return t
}
