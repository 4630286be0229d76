// Package vec3 calculates with vectors of three coordinates.
package vec3

import "math"

// Vector holds x, y and z.
type Vector = [3]float64

// Sub returns a − b.
func Sub(a, b Vector) Vector { return Vector{a[0] - b[0], a[1] - b[1], a[2] - b[2]} }

// Scale returns a times f.
func Scale(a Vector, f float64) Vector { return Vector{a[0] * f, a[1] * f, a[2] * f} }

// Dot returns the dot product.
func Dot(a, b Vector) float64 { return a[0]*b[0] + a[1]*b[1] + a[2]*b[2] }

// Length returns the Euclidean length.
func Length(a Vector) float64 { return math.Sqrt(Dot(a, a)) }

// Unit returns a scaled to length 1. A vector shorter than 1e-9 stays shorter.
func Unit(a Vector) Vector { return Scale(a, 1/max(Length(a), 1e-9)) }

// Cross returns the cross product.
func Cross(a, b Vector) Vector {
	return Vector{a[1]*b[2] - a[2]*b[1], a[2]*b[0] - a[0]*b[2], a[0]*b[1] - a[1]*b[0]}
}
