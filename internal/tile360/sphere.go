package tile360

import "math"

// Vec is a unit vector: x to the right, y up, z forward.
type Vec struct{ X, Y, Z float64 }

// Direction returns the direction of yaw (positive to the right) and pitch (positive upwards), in
// radians.
func Direction(yaw, pitch float64) Vec {
	sy, cy := math.Sincos(yaw)
	sp, cp := math.Sincos(pitch)
	return Vec{sy * cp, sp, cy * cp}
}

// Angles returns yaw in (−π, π] and pitch in [−π/2, π/2], in radians. Yaw is 0 at the poles.
func (v Vec) Angles() (yaw, pitch float64) {
	if v.X == 0 && v.Z == 0 {
		return 0, math.Copysign(math.Pi/2, v.Y)
	}
	return math.Atan2(v.X, v.Z), math.Asin(max(-1, min(1, v.Y)))
}

// Dot returns the scalar product, the cosine of the angle between directions.
func (v Vec) Dot(w Vec) float64 { return v.X*w.X + v.Y*w.Y + v.Z*w.Z }

// Angle returns the angle between two directions, 0 to π, accurate for small angles too.
func Angle(v, w Vec) float64 {
	x, y, z := v.Y*w.Z-v.Z*w.Y, v.Z*w.X-v.X*w.Z, v.X*w.Y-v.Y*w.X
	return math.Atan2(math.Sqrt(x*x+y*y+z*z), v.Dot(w))
}

// Unit returns v normalised. A zero vector becomes forward.
func (v Vec) Unit() Vec {
	n := math.Sqrt(v.Dot(v))
	if !(n > 1e-12) || math.IsInf(n, 0) {
		return Vec{0, 0, 1}
	}
	return Vec{v.X / n, v.Y / n, v.Z / n}
}

// frame returns the right and up vectors of a viewer with a level head who looks along v. At the
// poles yaw is 0.
func (v Vec) frame() (right, up Vec) {
	yaw, _ := v.Angles()
	s, c := math.Sincos(yaw)
	right = Vec{c, 0, -s}
	up = Vec{v.Y*right.Z - v.Z*right.Y, v.Z*right.X - v.X*right.Z, v.X*right.Y - v.Y*right.X}
	return right, up
}

// offset returns w's position as seen from v, in radians to the right and up along the great circle
// from v to w.
func (v Vec) offset(w Vec) (right, up float64) {
	r, u := v.frame()
	x, y := w.Dot(r), w.Dot(u)
	n := math.Sqrt(x*x + y*y)
	if n < 1e-12 {
		return 0, 0
	}
	a := Angle(v, w) / n
	return a * x, a * y
}

// moved is the inverse of offset.
func (v Vec) moved(right, up float64) Vec {
	a := math.Sqrt(right*right + up*up)
	if a < 1e-12 {
		return v
	}
	r, u := v.frame()
	s, c := math.Sincos(a)
	x, y := s*right/a, s*up/a
	return Vec{c*v.X + x*r.X + y*u.X, c*v.Y + x*r.Y + y*u.Y, c*v.Z + x*r.Z + y*u.Z}.Unit()
}

// Equirect returns a direction's position in the equirectangular picture of one eye, in fractions
// of its width from the left, in [0, 1), and of its height from the top.
func (v Vec) Equirect() (x, y float64) {
	yaw, pitch := v.Angles()
	x = yaw/(2*math.Pi) + 0.5
	if x >= 1 {
		x--
	}
	return x, 0.5 - pitch/math.Pi
}
