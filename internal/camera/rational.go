package camera

import (
	"fmt"
	"math"
)

// maxConversion bounds the error of a converted lens model, in focal lengths: 1 mm at a distance of
// 1 m.
const maxConversion = 1e-3

// fromRational6KT converts l, which holds tangential coefficients of the model Rational6KT, to the
// closest Brown-Conrady lens. centre is the centre of distortion in focal lengths. Rational6KT
// differs from Brown-Conrady in having that centre and half the weight on the mixed tangential
// terms (transformation_project_internal in the Azure Kinect Sensor SDK 1.4). Tangential
// coefficients and principal point are fitted by least squares over the image.
func (l *unitLens) fromRational6KT(centre [2]float64) error {
	p1, p2 := l.rest.P[0], l.rest.P[1]
	if centre == [2]float64{} && p1 == 0 && p2 == 0 {
		return nil
	}
	radial := Intrinsics{Fx: 1, Fy: 1, K: l.rest.K}
	rational := func(x, y float64) (u, v float64) {
		x, y = x-centre[0], y-centre[1]
		d, s, xy := radial.distort(x, y), x*x+y*y, x*y
		return d.u + (s+2*x*x)*p2 + xy*p1 + centre[0], d.v + (s+2*y*y)*p1 + xy*p2 + centre[1]
	}
	// The unknowns are p1, p2 and the shift of the principal point.
	var rows [][5]float64 // coefficients and right side
	var normal [4][5]float64
	const directions, step = 64, 1.0 / 64
	for i := range directions {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / directions)
		last := 0.0
		for r := step; r <= l.rest.MaxRadius; r += step {
			x, y := r*cos, r*sin
			u, v := rational(x, y)
			inside := math.Abs(u*l.fx+l.cx-0.5) <= 0.5 && math.Abs(v*l.fy+l.cy-0.5) <= 0.5
			distance := math.Hypot(u, v)
			if !inside || distance <= last { // outside the image, or beyond the model's range
				break
			}
			last = distance
			straight := radial.distort(x, y)
			for _, row := range [2][5]float64{
				{2 * x * y, r*r + 2*x*x, 1, 0, u - straight.u},
				{r*r + 2*y*y, 2 * x * y, 0, 1, v - straight.v},
			} {
				rows = append(rows, row)
				for j := range 4 {
					for k := range 5 {
						normal[j][k] += r * row[j] * row[k]
					}
				}
			}
		}
	}
	fit := solve(normal)
	worst := 0.0
	for _, row := range rows {
		e := row[4]
		for j, v := range fit {
			e -= row[j] * v
		}
		worst = math.Max(worst, math.Abs(e)) // keeps NaN
	}
	if !(worst <= maxConversion) || len(rows) == 0 {
		return fmt.Errorf("lens model Rational6KT deviates by %.2g focal lengths from any Brown-Conrady model; the limit is %g",
			worst, maxConversion)
	}
	l.rest.P = [2]float64{fit[0], fit[1]}
	l.cx += l.fx * fit[2]
	l.cy += l.fy * fit[3]
	return nil
}

// solve solves a positive definite system of equations by Gauss-Jordan elimination.
func solve(m [4][5]float64) (x [4]float64) {
	for i := range 4 {
		for j := range 4 {
			if j == i {
				continue
			}
			f := m[j][i] / m[i][i]
			for k := i; k < 5; k++ {
				m[j][k] -= f * m[i][k]
			}
		}
	}
	for i := range 4 {
		x[i] = m[i][4] / m[i][i]
	}
	return x
}
