package pointcloud

import (
	"math"

	"holocast/internal/camera"
)

// Transform returns the grid's points transformed by pose. It skips pixels without a ray and points
// beyond ±32,767 mm, and returns none if the ray table's size differs.
func (g *Grid) Transform(rays *camera.RayTable, pose camera.Transform) Points {
	var out Points
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

// Transform returns the points transformed by pose. It skips points beyond ±32,767 mm.
func (p *Points) Transform(pose camera.Transform) Points {
	var out Points
	for i := 0; i < len(p.XYZ); i += 3 {
		at := pose.Apply([3]float64{float64(p.XYZ[i]), float64(p.XYZ[i+1]), float64(p.XYZ[i+2])})
		add(&out, at, p.RGB[i:i+3])
	}
	return out
}

func add(p *Points, at [3]float64, rgb []byte) {
	for _, v := range at {
		if !(math.Abs(v) < math.MaxInt16) {
			return
		}
	}
	p.XYZ = append(p.XYZ, int16(math.Round(at[0])), int16(math.Round(at[1])), int16(math.Round(at[2])))
	p.RGB = append(p.RGB, rgb...)
}
