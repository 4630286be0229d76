package render

import (
	"math"
	"slices"

	"holocast/internal/camera"
	"holocast/internal/pointcloud"
)

// Orbit is a sphere of viewers who look at its center.
type Orbit struct {
	Center   [3]float64 // millimetres
	Distance float64    // millimetres
	YUp      bool       // as in Options
}

// Around returns the orbit around clouds from which nearly all points are visible at an elevation, from every azimuth,
// in a picture of the given ratio of width to height.
func Around(clouds []pointcloud.Points, yUp bool, elevation, aspect float64) (Orbit, error) {
	if err := check(clouds); err != nil {
		return Orbit{}, err
	}
	s := measure(clouds, yUp)
	o := Orbit{Center: s.centre, YUp: yUp}
	v := view{origin: s.centre, flip: s.flip}
	tanY := TanHalfView * margin
	need := make([]float64, len(s.sample))
	for azimuth := 0.; azimuth < 360; azimuth += 15 {
		v.rotation = turned(azimuth, elevation)
		for i, p := range s.sample {
			x, y, z := v.turn(p[0], p[1], p[2])
			need[i] = max(need[i], max(math.Abs(x)/aspect, math.Abs(y))/tanY-z)
		}
	}
	if len(need) > 0 {
		_, o.Distance = most(slices.Clone(need))
	}
	o.Distance = max(o.Distance, 100)
	return o, nil
}

// Eye returns the transform to a viewer at the given azimuth and elevation, degrees (Options.Eye).
func (o Orbit) Eye(azimuth, elevation float64) *camera.Transform {
	eye := camera.Transform{R: turned(azimuth, elevation)}
	if o.YUp {
		for i := range eye.R {
			if i%3 != 0 {
				eye.R[i] = -eye.R[i]
			}
		}
	}
	at := eye.Apply(o.Center)
	eye.T = [3]float64{-at[0], -at[1], o.Distance - at[2]}
	return &eye
}
