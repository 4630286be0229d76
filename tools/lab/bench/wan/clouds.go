package wan

import (
	"math"

	"holocast/internal/camera"
	"holocast/internal/pointcloud"
)

// peakGeometry is the peak of the clouds' PSNR in mm: the range of 13-bit coordinates.
const peakGeometry = 1<<13 - 1

// cloud is a set of points in mm.
type cloud struct {
	at     [][3]float32
	normal [][3]float32 // unit length, or 0 if unknown
}

// exactCloud returns the points of exact depth with the normals of the grid's surface.
func exactCloud(exact []uint16, rays *camera.RayTable) cloud {
	z := func(i int) float32 { return tenth * float32(exact[i]) }
	at := func(i int) [3]float32 { return [3]float32{rays.X[i] * z(i), rays.Y[i] * z(i), z(i)} }
	usable := func(i, j int) bool {
		return j >= 0 && j < len(exact) && exact[j] != 0 && !isNaN(rays.X[j]) && abs(z(i)-z(j)) < edgeStep
	}
	var c cloud
	w := rays.Width
	for i, e := range exact {
		if e == 0 || isNaN(rays.X[i]) {
			continue
		}
		c.at = append(c.at, at(i))
		var n [3]float32
		if x := i % w; x > 0 && x < w-1 && usable(i, i-1) && usable(i, i+1) && usable(i, i-w) && usable(i, i+w) {
			n = unit(cross(sub(at(i+1), at(i-1)), sub(at(i+w), at(i-w))))
		}
		c.normal = append(c.normal, n)
	}
	return c
}

// gridCloud returns a grid's points.
func gridCloud(g *pointcloud.Grid, rays *camera.RayTable) cloud {
	var c cloud
	for i, d := range g.Depth {
		if d != 0 && !isNaN(rays.X[i]) {
			z := float32(d)
			c.at = append(c.at, [3]float32{rays.X[i] * z, rays.Y[i] * z, z})
		}
	}
	return c
}

// distortion is MPEG's distortion of point clouds (ISO/IEC JTC 1/SC 29/WG 7, N0099): the larger of
// both directions' mean squared distance to the nearest point, and of that along its normal.
func distortion(exact, decoded cloud) (d1, d2 float64) {
	if len(exact.at) == 0 || len(decoded.at) == 0 {
		return 0, 0
	}
	toExact, toDecoded := newTree(exact.at), newTree(decoded.at)
	forward := measure(exact.at, func(i int) (int, int) { return i, toDecoded.nearest(exact.at[i]) }, exact, decoded)
	back := measure(decoded.at, func(i int) (int, int) { return toExact.nearest(decoded.at[i]), i }, exact, decoded)
	return max(forward[0], back[0]), max(forward[1], back[1])
}

// measure returns the mean squared distances of pairs of exact and decoded points.
func measure(from [][3]float32, pair func(i int) (int, int), exact, decoded cloud) (mean [2]float64) {
	planes := 0
	for i := range from {
		e, d := pair(i)
		gap := sub(exact.at[e], decoded.at[d])
		mean[0] += float64(dot(gap, gap))
		if n := exact.normal[e]; n != ([3]float32{}) {
			along := float64(dot(gap, n))
			mean[1] += along * along
			planes++
		}
	}
	mean[0] /= float64(len(from))
	mean[1] /= float64(max(1, planes))
	return mean
}

// cloudPSNR returns the PSNR of MPEG's distortion in dB.
func cloudPSNR(mse float64) float64 { return psnr(3*peakGeometry*peakGeometry, mse) }

func sub(a, b [3]float32) [3]float32 { return [3]float32{a[0] - b[0], a[1] - b[1], a[2] - b[2]} }

func dot(a, b [3]float32) float32 { return a[0]*b[0] + a[1]*b[1] + a[2]*b[2] }

func cross(a, b [3]float32) [3]float32 {
	return [3]float32{a[1]*b[2] - a[2]*b[1], a[2]*b[0] - a[0]*b[2], a[0]*b[1] - a[1]*b[0]}
}

func unit(a [3]float32) [3]float32 {
	length := float32(math.Sqrt(float64(dot(a, a))))
	if length == 0 {
		return a
	}
	return [3]float32{a[0] / length, a[1] / length, a[2] / length}
}

func abs(v float32) float32 { return float32(math.Abs(float64(v))) }

func isNaN(v float32) bool { return v != v }
