package spherical

import "math"

// The metadata of this package and of the catalog rotate the sphere by R = Ry(-yaw) · Rx(pitch) ·
// Rz(roll), with x to the right, y up and z backward, right-handed: positive yaw turns its front to
// the right, positive pitch upwards, and positive roll turns it counter-clockwise.
//
// V2 (spherical-video-v2-rfc.md, "Projection Header Box") turns the projection counter-clockwise
// around the up vector, which is to the left, and clockwise around the forward vector. FFmpeg's
// documentation of AVSphericalMapping says that positive yaw is to the right, as a draft of the RFC
// did; but FFmpeg passes the box's number on unchanged, so the RFC, which corrected itself, applies
// to it too.
//
// V1 (spherical-video-rfc.md, diagram in "Initial Viewport") does not rotate the sphere. It names
// the point of the picture, positive to the right and up, at which the viewer looks first, and the
// clockwise roll of the view. The sphere turns the opposite way to bring this point to the front.

// Pose converts V2's pose of the projection, in degrees. It is its own inverse.
func Pose(yaw, pitch, roll float64) (y, p, r float64) { return 0 - yaw, pitch, 0 - roll }

// inverse returns the opposite of a rotation of the sphere, in degrees.
func inverse(yaw, pitch, roll float64) (y, p, r float64) {
	const degree = math.Pi / 180
	sy, cy := math.Sincos(-yaw * degree)
	sp, cp := math.Sincos(pitch * degree)
	sr, cr := math.Sincos(roll * degree)
	rotation := [3][3]float64{
		{cy*cr + sy*sp*sr, sy*sp*cr - cy*sr, sy * cp},
		{cp * sr, cp * cr, -sp},
		{cy*sp*sr - sy*cr, sy*sr + cy*sp*cr, cy * cp},
	}
	m := func(row, column int) float64 { return rotation[column][row] } // transposed
	p = math.Asin(max(-1, min(1, -m(1, 2))))
	if math.Abs(m(1, 2)) > 1-1e-9 { // straight up or down: yaw and roll have one axis
		y, r = math.Atan2(-m(2, 0), m(0, 0)), 0
	} else {
		y, r = math.Atan2(m(0, 2), m(2, 2)), math.Atan2(m(1, 0), m(1, 1))
	}
	return tidy(-y / degree), tidy(p / degree), tidy(r / degree)
}

// initialView converts V1's initial view to the rotation of the sphere, both in degrees.
func initialView(heading, pitch, roll float64) (y, p, r float64) {
	return inverse(heading, pitch, 0-roll)
}

// tidy removes rounding errors.
func tidy(v float64) float64 { return math.Round(v*1e6)/1e6 + 0 }
