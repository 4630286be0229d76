// Package viewselect chooses the quality of each depth camera by its contribution to a viewer's
// picture. The contribution, a camera's worth, is its share of the surfaces that are visible on the
// screen (Surface, Scene.Worth); Choose spends a bit rate where it avoids the most error.
package viewselect

import (
	"math"

	"holocast/internal/camera"
	"holocast/internal/vec3"
)

// Sample is a patch of a surface in studio space.
type Sample struct {
	Point  [3]float32 // mm
	Normal [3]float32 // unit vector, towards the camera's side
	Area   float32    // mm²
	Facing float32    // cosine between the normal and the camera's ray
	Sensor [3]float32 // the camera, mm
}

// Limits of a surface patch.
const (
	// edgeStep is the depth difference between neighboring samples, relative to depth, that
	// separates surfaces.
	edgeStep = 0.08
	// leastFacing bounds the area of a patch seen at a grazing angle.
	leastFacing = 0.1
)

// Surface appends the patches of a camera's frame to dst. depth holds the grid's depths in mm, 0
// where there is no point; every stride-th pixel in x and y makes one patch. pose maps the grid
// camera's space to studio space.
func Surface(dst []Sample, rays *camera.RayTable, depth []uint16, pose *camera.Transform, stride int) []Sample {
	w, h := rays.Width, rays.Height
	point := func(i int) (p [3]float64, ok bool) {
		z := float64(depth[i])
		x := float64(rays.X[i])
		if z == 0 || math.IsNaN(x) {
			return p, false
		}
		return [3]float64{x * z, float64(rays.Y[i]) * z, z}, true
	}
	sensor := to32(pose.T)
	for y := 0; y+stride < h; y += stride {
		for x := 0; x+stride < w; x += stride {
			i := y*w + x
			p, ok := point(i)
			if !ok {
				continue
			}
			toCamera := vec3.Scale(p, -1/vec3.Length(p))
			normal, facing := toCamera, 1.0
			right, okRight := point(i + stride)
			below, okBelow := point(i + stride*w)
			if okRight && okBelow && near(p, right) && near(p, below) {
				n := vec3.Cross(vec3.Sub(below, p), vec3.Sub(right, p))
				if l := vec3.Length(n); l > 0 {
					n = vec3.Scale(n, 1/l)
					facing = vec3.Dot(n, toCamera)
					if facing < 0 {
						n, facing = vec3.Scale(n, -1), -facing
					}
					normal = n
				}
			}
			facing = max(facing, leastFacing)
			dst = append(dst, Sample{
				Point:  to32(pose.Apply(p)),
				Normal: to32(rotate(pose, normal)),
				Area:   float32(footprint(rays, i, stride, p[2]) / facing),
				Facing: float32(facing),
				Sensor: sensor,
			})
		}
	}
	return dst
}

// footprint returns the area in mm² that stride×stride pixels cover at depth z, perpendicular to
// the ray.
func footprint(rays *camera.RayTable, i, stride int, z float64) float64 {
	w := rays.Width
	dx := float64(rays.X[i+stride]) - float64(rays.X[i])
	dy := float64(rays.Y[i+stride*w]) - float64(rays.Y[i])
	if math.IsNaN(dx) || math.IsNaN(dy) {
		return 0
	}
	return math.Abs(dx*dy) * z * z
}

func near(p, q [3]float64) bool { return math.Abs(p[2]-q[2]) <= edgeStep*min(p[2], q[2]) }

func to32(a [3]float64) [3]float32 { return [3]float32{float32(a[0]), float32(a[1]), float32(a[2])} }

func to64(a [3]float32) [3]float64 { return [3]float64{float64(a[0]), float64(a[1]), float64(a[2])} }

// rotate applies the rotation of m.
func rotate(m *camera.Transform, v [3]float64) [3]float64 { return vec3.Sub(m.Apply(v), m.T) }
