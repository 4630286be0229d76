package synthetic

import "math"

// ClapPhase is the phase of the loop, from 0 to 1, at which the performer's hands meet.
const ClapPhase = 0.5

// Distances in phase from the clap. Within clapNear the hands close and open again; between clapNear
// and clapFar the arms leave or return to their usual motion.
const (
	clapNear = 0.07
	clapFar  = 0.17
)

// The left wrist's position when the hands meet, in chest space in metres, and its offset from
// there at clapNear.
var (
	clapWrist = vec{0.045, 1.27, 0.33}
	clapOpen  = vec{0.2, 0, 0}
	clapElbow = vec{0.5, -1, 0.1} // direction in which the elbow bends
)

// clap blends the arms of a pose towards a clap.
func clap(m *[bones]motion, phase float64) {
	away := float32(math.Abs(phase - ClapPhase))
	weight := 1 - step(clapNear, clapFar, away)
	if weight == 0 {
		return
	}
	wrist := clapWrist.add(clapOpen.scale(min(away/clapNear, 1)))
	upper, fore := reachFor(wrist)
	for side, arm := range [2][3]bone{{upperArmR, foreArmR, handR}, {upperArmL, foreArmL, handL}} {
		at := func(p vec) vec {
			if side == 0 {
				return mirror(p)
			}
			return p
		}
		rest := [3]vec{at(shoulderJoint), at(elbowJoint), at(wristJoint)}
		along := [2]vec{at(upper), at(fore)}
		parent, before := m[chest], m[chest]
		turned := motion{r: [9]float32{1, 0, 0, 0, 1, 0, 0, 0, 1}} // of the parent, by the clap alone
		for i, on := range arm {
			usual := before.inverse().then(m[on]) // relative to the parent
			before = m[on]
			var aimed motion
			if i < 2 {
				bone := rest[i+1].sub(rest[i])
				aimed = align(bone, turned.undo(along[i]))
				turned = turned.then(aimed)
			} else {
				aimed = motion{r: [9]float32{1, 0, 0, 0, 1, 0, 0, 0, 1}} // the hand follows the arm
			}
			parent = parent.then(about(between(usual, aimed, weight), rest[i]))
			m[on] = parent
		}
	}
}

// reachFor returns the directions of the left upper arm and forearm, in the space of the chest, that
// bring the wrist to a position.
func reachFor(wrist vec) (upper, fore vec) {
	a, b := elbowJoint.sub(shoulderJoint).length(), wristJoint.sub(elbowJoint).length()
	to := wrist.sub(shoulderJoint)
	d := min(to.length(), 0.999*(a+b))
	along := to.scale(1 / to.length())
	side := clapElbow.sub(along.scale(clapElbow.dot(along)))
	side = side.scale(1 / side.length())
	x := (a*a + d*d - b*b) / (2 * d)
	elbow := along.scale(x).add(side.scale(sqrt(max(a*a-x*x, 0))))
	return elbow, along.scale(d).sub(elbow)
}

// inverse returns the motion that undoes m.
func (m *motion) inverse() motion {
	i := motion{r: [9]float32{m.r[0], m.r[3], m.r[6], m.r[1], m.r[4], m.r[7], m.r[2], m.r[5], m.r[8]}}
	i.t = i.apply(m.t).scale(-1)
	return i
}

// about returns m's rotation about a pivot.
func about(m motion, pivot vec) motion {
	m.t = vec{}
	m.t = pivot.sub(m.apply(pivot))
	return m
}

// rotation returns a rotation by angle radians about a unit axis (Rodrigues' formula).
func rotation(axis vec, angle float64) motion {
	s64, c64 := math.Sincos(angle)
	s, c := float32(s64), float32(c64)
	x, y, z, k := axis[0], axis[1], axis[2], 1-c
	return motion{r: [9]float32{
		c + x*x*k, x*y*k - z*s, x*z*k + y*s,
		y*x*k + z*s, c + y*y*k, y*z*k - x*s,
		z*x*k - y*s, z*y*k + x*s, c + z*z*k,
	}}
}

// align returns the smallest rotation that turns direction a to direction b.
func align(a, b vec) motion {
	a, b = a.scale(1/a.length()), b.scale(1/b.length())
	axis := vec{a[1]*b[2] - a[2]*b[1], a[2]*b[0] - a[0]*b[2], a[0]*b[1] - a[1]*b[0]}
	n := axis.length()
	if n < 1e-6 {
		return rotation(vec{1, 0, 0}, 0)
	}
	return rotation(axis.scale(1/n), math.Atan2(float64(n), float64(a.dot(b))))
}

// between returns the rotation at a fraction of the way from a's to b's.
func between(a, b motion, fraction float32) motion {
	a.t, b.t = vec{}, vec{}
	d := a.inverse().then(b)
	axis := vec{d.r[7] - d.r[5], d.r[2] - d.r[6], d.r[3] - d.r[1]}
	n := axis.length()
	if n < 1e-6 {
		return b
	}
	angle := math.Atan2(float64(n), float64(d.r[0]+d.r[4]+d.r[8]-1))
	return a.then(rotation(axis.scale(1/n), angle*float64(fraction)))
}
