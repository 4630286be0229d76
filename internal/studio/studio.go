// Package studio turns what a camera saw into points in the coordinates that all
// cameras of a session share.
package studio

import (
	"math"

	"holocast/internal/camera"
	"holocast/internal/pointcloud"
)

// Grid returns the points of a frame of layout A. A grid whose size differs from
// its ray table's has none; a pixel without a ray and a point beyond 16 bits of
// millimetres are left out.
func Grid(g *pointcloud.Grid, rays *camera.RayTable, pose camera.Transform) pointcloud.Points {
	var out pointcloud.Points
	if g.Width != rays.Width || g.Height != rays.Height {
		return out
	}
	for i, d := range g.Depth {
		if x := float64(rays.X[i]); d != 0 && !math.IsNaN(x) {
			z := float64(d)
			add(&out, pose.Apply([3]float64{x * z, float64(rays.Y[i]) * z, z}), g.Color[3*i:3*i+3])
		}
	}
	return out
}

// Points returns points given in a camera's coordinates, leaving out those beyond
// 16 bits of millimetres.
func Points(p *pointcloud.Points, pose camera.Transform) pointcloud.Points {
	var out pointcloud.Points
	for i := 0; i < len(p.XYZ); i += 3 {
		at := pose.Apply([3]float64{float64(p.XYZ[i]), float64(p.XYZ[i+1]), float64(p.XYZ[i+2])})
		add(&out, at, p.RGB[i:i+3])
	}
	return out
}

func add(p *pointcloud.Points, at [3]float64, rgb []byte) {
	for _, v := range at {
		if !(math.Abs(v) < math.MaxInt16) {
			return
		}
	}
	p.XYZ = append(p.XYZ, int16(math.Round(at[0])), int16(math.Round(at[1])), int16(math.Round(at[2])))
	p.RGB = append(p.RGB, rgb...)
}
