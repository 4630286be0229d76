// Package frametest provides frames for tests and benchmarks of the point-cloud codec. They are
// real frames from LiveScan3D's test data, or synthetic frames if the data is missing.
package frametest

import (
	"math"
	"math/rand/v2"

	"holocast/internal/camera"
	"holocast/internal/pointcloud"
)

// Frame is one frame of one camera in the two geometries used in sessions.
type Frame struct {
	Name string // "virtualdevice0/1"
	NFOV Cloud  // 640×576, the depth camera's grid with colour mapped into it
	FHD  Cloud  // 1920×1080, depth warped into the colour camera's grid

	Rays camera.RayTable // of NFOV's pixels; empty if synthetic
}

// Cloud is a frame as a grid, and as its points in raster order.
type Cloud struct {
	Grid   pointcloud.Grid
	Points pointcloud.Points
}

// Frame returns the cloud in layout l.
func (c *Cloud) Frame(l pointcloud.Layout) *pointcloud.Frame {
	return &pointcloud.Frame{Layout: l, Grid: c.Grid, Points: c.Points}
}

func newCloud(width, height int) Cloud {
	n := width * height
	return Cloud{
		Grid: pointcloud.Grid{Width: width, Height: height, Depth: make([]uint16, n), Color: make([]byte, 3*n)},
	}
}

// add appends pixel i of the grid to the points; (x, y, 1) is its ray.
func (c *Cloud) add(i int, x, y float64) {
	d := float64(c.Grid.Depth[i])
	c.Points.XYZ = append(c.Points.XYZ, int16(math.Round(x*d)), int16(math.Round(y*d)), int16(d))
	c.Points.RGB = append(c.Points.RGB, c.Grid.Color[3*i:3*i+3]...)
}

// Synthetic returns a frame of a ball in front of a wall, with a round field of view, depth noise
// that grows with distance, holes along edges and textured colour. Equal seeds give equal frames.
func Synthetic(seed uint64) Frame {
	return Frame{Name: "synthetic", NFOV: SyntheticCloud(640, 576, seed), FHD: SyntheticCloud(1920, 1080, seed)}
}

// SyntheticCloud returns Synthetic's scene at any size.
func SyntheticCloud(width, height int, seed uint64) Cloud {
	r := rand.New(rand.NewPCG(seed, 0x686f6c6f))
	c := newCloud(width, height)
	focal := 0.8 * float64(width)
	for i := range c.Grid.Depth {
		x := (float64(i%width) - float64(width)/2) / focal
		y := (float64(i/width) - float64(height)/2) / focal
		if x*x+y*y > 0.33 {
			continue // outside the lens's circle
		}
		depth, shade := 3000-400*x, 0.6
		const far, radius = 1800, 500 // the ball, millimetres
		a := x*x + y*y + 1
		if in := far*far - a*(far*far-radius*radius); in > 0 {
			depth = (far - math.Sqrt(in)) / a
			shade = 0.4 + 0.6*math.Sqrt(in)/radius
			if in < 0.03*radius*radius {
				continue // depth cameras have no clear reading at edges
			}
		}
		depth += r.NormFloat64() * depth * 0.0008
		c.Grid.Depth[i] = uint16(depth + 0.5)
		texture := 30*math.Sin(40*x) + 30*math.Cos(30*y) + 2*r.NormFloat64()
		for k, base := range [3]float64{190, 150, 110} {
			c.Grid.Color[3*i+k] = byte(max(0, min(255, shade*base+texture+r.NormFloat64())))
		}
		c.add(i, x, y)
	}
	return c
}
