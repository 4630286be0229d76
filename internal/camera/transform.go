package camera

import (
	"errors"
	"fmt"
	"math"
)

// Transform is a rigid motion p' = R·p + T.
type Transform struct {
	R [9]float64 `json:"r"` // row-major rotation
	T [3]float64 `json:"t"` // millimetres
}

// Identity is the identity transform.
var Identity = Transform{R: [9]float64{1, 0, 0, 0, 1, 0, 0, 0, 1}}

// Apply transforms p, in millimetres.
func (m Transform) Apply(p [3]float64) [3]float64 {
	r := &m.R
	return [3]float64{
		r[0]*p[0] + r[1]*p[1] + r[2]*p[2] + m.T[0],
		r[3]*p[0] + r[4]*p[1] + r[5]*p[2] + m.T[1],
		r[6]*p[0] + r[7]*p[1] + r[8]*p[2] + m.T[2],
	}
}

// Compose returns m∘b: b is applied first.
func (m Transform) Compose(b Transform) Transform {
	c := Transform{T: m.Apply(b.T)}
	for i := range 3 {
		for j := range 3 {
			c.R[3*i+j] = m.R[3*i]*b.R[j] + m.R[3*i+1]*b.R[3+j] + m.R[3*i+2]*b.R[6+j]
		}
	}
	return c
}

// Inverse returns the inverse of m.
func (m Transform) Inverse() Transform {
	r := &m.R
	inv := Transform{R: [9]float64{r[0], r[3], r[6], r[1], r[4], r[7], r[2], r[5], r[8]}}
	t := inv.Apply(m.T)
	inv.T = [3]float64{-t[0], -t[1], -t[2]}
	return inv
}

// rotationTolerance bounds the deviation of R·Rᵀ from the identity. Factory documents hold float32
// values, which deviate by about 1e-7; hand-written poses have four digits.
const rotationTolerance = 1e-3

// Validate returns an error if R is not a rotation or a number is not finite.
func (m Transform) Validate() error {
	if !finite(m.R[:]...) || !finite(m.T[:]...) {
		return errors.New("transform is not finite")
	}
	r := &m.R
	for i := range 3 {
		for j := range 3 {
			want := 0.0
			if i == j {
				want = 1
			}
			if got := r[3*i]*r[3*j] + r[3*i+1]*r[3*j+1] + r[3*i+2]*r[3*j+2]; math.Abs(got-want) > rotationTolerance {
				return fmt.Errorf("rotation rows %d and %d have scalar product %.4g, want %g", i, j, got, want)
			}
		}
	}
	det := r[0]*(r[4]*r[8]-r[5]*r[7]) - r[1]*(r[3]*r[8]-r[5]*r[6]) + r[2]*(r[3]*r[7]-r[4]*r[6])
	if det < 0 {
		return errors.New("rotation is a reflection")
	}
	return nil
}

// Quaternion is a unit quaternion x·i + y·j + z·k + w.
type Quaternion struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
	Z float64 `json:"z"`
	W float64 `json:"w"`
}

// Quaternion returns m's rotation, with W ≥ 0.
func (m Transform) Quaternion() Quaternion {
	r := &m.R
	var q Quaternion
	// Divide by a component of magnitude at least 1/2 (a variant of Shepperd's method).
	switch {
	case r[0]+r[4]+r[8] > 0:
		s := 2 * math.Sqrt(1+r[0]+r[4]+r[8])
		q = Quaternion{(r[7] - r[5]) / s, (r[2] - r[6]) / s, (r[3] - r[1]) / s, s / 4}
	case r[0] > r[4] && r[0] > r[8]:
		s := 2 * math.Sqrt(1+r[0]-r[4]-r[8])
		q = Quaternion{s / 4, (r[1] + r[3]) / s, (r[2] + r[6]) / s, (r[7] - r[5]) / s}
	case r[4] > r[8]:
		s := 2 * math.Sqrt(1+r[4]-r[0]-r[8])
		q = Quaternion{(r[1] + r[3]) / s, s / 4, (r[5] + r[7]) / s, (r[2] - r[6]) / s}
	default:
		s := 2 * math.Sqrt(1+r[8]-r[0]-r[4])
		q = Quaternion{(r[2] + r[6]) / s, (r[5] + r[7]) / s, s / 4, (r[3] - r[1]) / s}
	}
	n := math.Sqrt(q.X*q.X + q.Y*q.Y + q.Z*q.Z + q.W*q.W)
	if q.W < 0 {
		n = -n
	}
	return Quaternion{q.X / n, q.Y / n, q.Z / n, q.W / n}
}

// FromQuaternion returns the rotation by q, which need not be normalised, followed by a translation
// of t millimetres. It fails if q is zero or not finite.
func FromQuaternion(q Quaternion, t [3]float64) (Transform, error) {
	n := math.Sqrt(q.X*q.X + q.Y*q.Y + q.Z*q.Z + q.W*q.W)
	if !(n > 0) || math.IsInf(n, 0) {
		return Transform{}, fmt.Errorf("quaternion %v has invalid length %g", q, n)
	}
	x, y, z, w := q.X/n, q.Y/n, q.Z/n, q.W/n
	return Transform{R: [9]float64{
		1 - 2*(y*y+z*z), 2 * (x*y - w*z), 2 * (x*z + w*y),
		2 * (x*y + w*z), 1 - 2*(x*x+z*z), 2 * (y*z - w*x),
		2 * (x*z - w*y), 2 * (y*z + w*x), 1 - 2*(x*x+y*y),
	}, T: t}, nil
}
