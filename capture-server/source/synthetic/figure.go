package synthetic

import "math"

// vec is a point or direction in studio space, in metres. x points right as seen by the first
// camera, y up, and z towards that camera.
type vec [3]float32

func (a vec) add(b vec) vec       { return vec{a[0] + b[0], a[1] + b[1], a[2] + b[2]} }
func (a vec) sub(b vec) vec       { return vec{a[0] - b[0], a[1] - b[1], a[2] - b[2]} }
func (a vec) scale(s float32) vec { return vec{a[0] * s, a[1] * s, a[2] * s} }
func (a vec) dot(b vec) float32   { return a[0]*b[0] + a[1]*b[1] + a[2]*b[2] }
func (a vec) length() float32     { return sqrt(a.dot(a)) }
func sqrt(x float32) float32      { return float32(math.Sqrt(float64(x))) }
func mix(a, b, t float32) float32 { return a + (b-a)*t }
func clamp01(x float32) float32   { return min(max(x, 0), 1) }
func step(lo, hi, x float32) float32 { // smoothstep
	t := clamp01((x - lo) / (hi - lo))
	return t * t * (3 - 2*t)
}

// bone is a rigid part of the figure.
type bone int

const (
	pelvis bone = iota
	chest
	head
	upperArmR // the performer's right is −x
	foreArmR
	handR
	upperArmL
	foreArmL
	handL
	thighR
	shinR
	footR
	thighL
	shinL
	footL
	bones
)

// motion is a rotation (row-major) and a translation, from the figure's rest pose to the studio.
type motion struct {
	r [9]float32
	t vec
}

func (m *motion) apply(p vec) vec {
	return vec{
		m.r[0]*p[0] + m.r[1]*p[1] + m.r[2]*p[2] + m.t[0],
		m.r[3]*p[0] + m.r[4]*p[1] + m.r[5]*p[2] + m.t[1],
		m.r[6]*p[0] + m.r[7]*p[1] + m.r[8]*p[2] + m.t[2],
	}
}

func (m *motion) undo(p vec) vec {
	x, y, z := p[0]-m.t[0], p[1]-m.t[1], p[2]-m.t[2]
	return vec{
		m.r[0]*x + m.r[3]*y + m.r[6]*z,
		m.r[1]*x + m.r[4]*y + m.r[7]*z,
		m.r[2]*x + m.r[5]*y + m.r[8]*z,
	}
}

// then returns the motion b followed by m.
func (m motion) then(b motion) motion {
	c := motion{t: m.apply(b.t)}
	for i := range 3 {
		for j := range 3 {
			c.r[3*i+j] = m.r[3*i]*b.r[j] + m.r[3*i+1]*b.r[3+j] + m.r[3*i+2]*b.r[6+j]
		}
	}
	return c
}

// turn rotates by angle radians about an axis through pivot.
func turn(axis int, angle float64, pivot vec) motion {
	s64, c64 := math.Sincos(angle)
	s, c := float32(s64), float32(c64)
	m := motion{r: [9]float32{1, 0, 0, 0, 1, 0, 0, 0, 1}}
	i, j := (axis+1)%3, (axis+2)%3
	m.r[3*i+i], m.r[3*j+j] = c, c
	m.r[3*i+j], m.r[3*j+i] = -s, s
	m.t = pivot.sub(m.apply(pivot))
	return m
}

// twist rotates by angle radians about an axis through pivot that lies in the xy plane, at
// direction radians from x.
func twist(direction, angle float64, pivot vec) motion {
	return turn(2, direction, pivot).then(turn(0, angle, pivot)).then(turn(2, -direction, pivot))
}

// Joints of the left side (+x) in the rest pose: upright, arms hanging 45° out, facing +z. mirror
// returns those of the right side.
var (
	waistJoint    = vec{0, 1.06, 0}
	neckJoint     = vec{0, 1.49, -0.01}
	shoulderJoint = vec{0.175, 1.415, -0.01}
	elbowJoint    = vec{0.375, 1.215, -0.015}
	wristJoint    = vec{0.545, 1.045, 0.0}
	hipJoint      = vec{0.092, 0.93, 0}
	kneeJoint     = vec{0.102, 0.505, 0.012}
	ankleJoint    = vec{0.108, 0.09, -0.015}
)

func mirror(p vec) vec { return vec{-p[0], p[1], p[2]} }

// shape is one solid of the figure in the rest pose: a rounded cone from a (radius ra) to b (rb),
// or an ellipsoid at a if radii is set. It moves with its bone and blends with its neighbours over
// blend metres.
type shape struct {
	bone   bone
	a, b   vec
	ra, rb float32
	radii  vec
	blend  float32

	axis    vec     // b − a
	inverse float32 // 1/|axis|²
}

// ready returns s with the fields derived from a and b filled in.
func (s shape) ready() shape {
	s.axis = s.b.sub(s.a)
	s.inverse = 1 / max(s.axis.dot(s.axis), 1e-9)
	return s
}

func cone(on bone, a, b vec, ra, rb, blend float32) shape {
	return shape{bone: on, a: a, b: b, ra: ra, rb: rb, blend: blend}
}

func ellipsoid(on bone, at, radii vec, blend float32) shape {
	return shape{bone: on, a: at, radii: radii, blend: blend}
}

// distance returns the signed distance from p to the shape: accurate near the surface, a lower
// bound elsewhere.
func (s *shape) distance(p vec) float32 {
	// Scalars, since Go keeps arrays in memory.
	x, y, z := p[0]-s.a[0], p[1]-s.a[1], p[2]-s.a[2]
	if s.radii[0] > 0 {
		nx, ny, nz := x/s.radii[0], y/s.radii[1], z/s.radii[2]
		gx, gy, gz := nx/s.radii[0], ny/s.radii[1], nz/s.radii[2]
		k := sqrt(nx*nx + ny*ny + nz*nz)
		return k * (k - 1) / max(sqrt(gx*gx+gy*gy+gz*gz), 1e-6)
	}
	t := (x*s.axis[0] + y*s.axis[1] + z*s.axis[2]) * s.inverse
	if t < 0 {
		t = 0
	} else if t > 1 {
		t = 1
	}
	x, y, z = x-s.axis[0]*t, y-s.axis[1]*t, z-s.axis[2]*t
	return sqrt(x*x+y*y+z*z) - mix(s.ra, s.rb, t)
}

// body returns the solids of a performer 1.8 m tall in a T-shirt, trousers and shoes.
func body() []shape {
	shapes := make([]shape, 0, 48)
	shapes = append(shapes,
		ellipsoid(pelvis, vec{0, 0.97, -0.005}, vec{0.172, 0.135, 0.122}, 0.05),
		cone(pelvis, vec{-0.066, 1.02, 0.003}, vec{0.066, 1.02, 0.003}, 0.113, 0.113, 0.05),
		cone(chest, vec{-0.062, 1.13, 0.005}, vec{0.062, 1.13, 0.005}, 0.112, 0.112, 0.07),
		ellipsoid(chest, vec{0, 1.305, -0.008}, vec{0.188, 0.19, 0.122}, 0.05),
		cone(chest, vec{-0.1, 1.33, 0.035}, vec{0.1, 1.33, 0.035}, 0.082, 0.082, 0.05),
		cone(chest, vec{-0.15, 1.415, -0.015}, vec{0.15, 1.415, -0.015}, 0.06, 0.06, 0.05),
		cone(chest, vec{0, 1.43, -0.015}, vec{0, 1.49, -0.012}, 0.075, 0.06, 0.04),
		cone(head, vec{0, 1.46, -0.012}, vec{0, 1.575, 0.005}, 0.056, 0.054, 0.025),
		ellipsoid(head, vec{0, 1.685, 0.0}, vec{0.084, 0.112, 0.102}, 0.02),
		ellipsoid(head, vec{0, 1.625, 0.03}, vec{0.068, 0.078, 0.074}, 0.025),
		ellipsoid(head, vec{0, 1.568, 0.062}, vec{0.026, 0.018, 0.022}, 0.025),      // chin
		ellipsoid(head, vec{0, 1.695, -0.008}, vec{0.096, 0.118, 0.115}, hairBlend), // hair
		cone(head, vec{0, 1.675, 0.09}, vec{0, 1.64, 0.112}, 0.008, 0.014, 0.014),   // nose
		cone(head, vec{-0.035, 1.698, 0.08}, vec{0.035, 1.698, 0.08}, 0.014, 0.014, 0.02),
	)
	for side, bonesOf := range [2][6]bone{
		{upperArmR, foreArmR, handR, thighR, shinR, footR},
		{upperArmL, foreArmL, handL, thighL, shinL, footL},
	} {
		at := func(p vec) vec {
			if side == 0 {
				return mirror(p)
			}
			return p
		}
		upper, fore, hand, thigh, shin, foot := bonesOf[0], bonesOf[1], bonesOf[2], bonesOf[3], bonesOf[4], bonesOf[5]
		arm := func(t float32) vec { // distance along the arm from the shoulder, metres
			const diagonal = 0.70711
			return vec{shoulderJoint[0] + diagonal*t, shoulderJoint[1] - diagonal*t, -0.012}
		}
		shapes = append(shapes,
			ellipsoid(head, at(vec{0.088, 1.655, 0.0}), vec{0.013, 0.032, 0.019}, 0.012),
			cone(upper, at(arm(0)), at(arm(0.15)), 0.066, 0.06, 0.05), // sleeve
			cone(upper, at(arm(0.1)), at(elbowJoint), 0.047, 0.041, 0.015),
			cone(fore, at(elbowJoint), at(arm(0.36)), 0.041, 0.041, 0.03),
			cone(fore, at(arm(0.36)), at(wristJoint), 0.041, 0.028, 0.03),
			cone(hand, at(wristJoint), at(vec{0.59, 1.0, 0.004}), 0.028, 0.034, 0.02),
			cone(hand, at(vec{0.575, 1.02, 0.02}), at(vec{0.59, 0.995, 0.062}), 0.015, 0.011, 0.015), // thumb
			cone(thigh, at(hipJoint), at(vec{0.1, 0.7, 0.01}), 0.093, 0.082, 0.04),
			cone(thigh, at(vec{0.1, 0.7, 0.01}), at(kneeJoint), 0.082, 0.07, 0.05),
			cone(shin, at(kneeJoint), at(vec{0.106, 0.33, -0.012}), 0.07, 0.069, 0.06),
			cone(shin, at(vec{0.106, 0.33, -0.012}), at(vec{0.108, 0.115, -0.015}), 0.069, 0.067, 0.03),
			cone(foot, at(vec{0.108, 0.07, -0.03}), at(vec{0.118, 0.045, 0.09}), 0.05, 0.043, 0.025),
			cone(foot, at(vec{0.112, 0.04, 0.02}), at(vec{0.122, 0.035, 0.14}), 0.04, 0.036, 0.03),
		)
		for f := range 4 { // fingers, along z
			z := 0.034 - 0.021*float32(f)
			reach := [4]float32{0.075, 0.085, 0.08, 0.062}[f] * 0.70711
			knuckle := vec{0.6, 0.99, z * 0.85}
			shapes = append(shapes, cone(hand, at(knuckle), at(vec{knuckle[0] + reach, knuckle[1] - reach, z * 1.9}),
				0.0125, 0.0105, 0.006))
		}
	}
	return shapes
}

// pose returns the motion of every bone at a phase of the loop from 0 to 1. The performer steps
// from foot to foot, turns a little, waves with his right arm, swings the left, and claps once.
func pose(phase float64) [bones]motion {
	wave := func(times, shift float64) float64 { return math.Sin(2 * math.Pi * (times*phase + shift)) }
	var m [bones]motion

	sway := turn(2, 0.03*wave(2, 0), vec{0, 0, 0})
	yaw := turn(1, 0.45*wave(1, 0), vec{})
	bob := motion{
		r: [9]float32{1, 0, 0, 0, 1, 0, 0, 0, 1},
		t: vec{float32(0.03 * wave(2, 0)), float32(-0.018 - 0.012*wave(4, 0.25)), 0},
	}
	m[pelvis] = yaw.then(bob).then(sway)
	m[chest] = m[pelvis].then(turn(1, 0.12*wave(2, 0.5), waistJoint)).
		then(turn(2, -0.06*wave(2, 0), waistJoint)).
		then(turn(0, 0.04, waistJoint))
	m[head] = m[chest].then(turn(1, -0.3*wave(1, 0)+0.1*wave(2, 0.2), neckJoint)).
		then(turn(2, 0.07*wave(2, 0.1), neckJoint)).
		then(turn(0, 0.03*wave(4, 0), neckJoint))

	// The right arm (−x) is raised outwards; its forearm waves.
	shoulderR, elbowR, wristR := mirror(shoulderJoint), mirror(elbowJoint), mirror(wristJoint)
	m[upperArmR] = m[chest].then(turn(2, -0.75-0.08*wave(4, 0), shoulderR)).then(turn(0, -0.15, shoulderR))
	m[foreArmR] = m[upperArmR].then(turn(2, -1.45-0.38*wave(4, 0.1), elbowR))
	// The palm faces forward.
	m[handR] = m[foreArmR].then(turn(2, -0.25*wave(4, 0.0), wristR)).then(twist(-0.75*math.Pi, 1.4, wristR))

	m[upperArmL] = m[chest].then(turn(2, -0.5, shoulderJoint)).then(turn(0, 0.4*wave(2, 0.02)-0.1, shoulderJoint))
	m[foreArmL] = m[upperArmL].then(turn(0, -0.55-0.3*wave(2, 0.05), elbowJoint)).then(turn(1, -0.3, elbowJoint))
	m[handL] = m[foreArmL].then(turn(0, -0.1, wristJoint))
	clap(&m, phase)

	for side, leg := range [2][3]bone{{thighR, shinR, footR}, {thighL, shinL, footL}} {
		at := func(p vec) vec {
			if side == 0 {
				return mirror(p)
			}
			return p
		}
		// A foot lifts during its half of each step.
		lift := max(0, wave(2, 0.5*float64(1-side)))
		lift *= lift
		bend := 0.16 + 0.75*lift
		m[leg[0]] = m[pelvis].then(turn(0, -0.5*bend, at(hipJoint))).then(turn(2, -0.03*wave(2, 0), at(hipJoint)))
		m[leg[1]] = m[leg[0]].then(turn(0, bend, at(kneeJoint)))
		m[leg[2]] = m[leg[1]].then(turn(0, -0.45*bend, at(ankleJoint)))
	}
	// Put the lower foot on the floor.
	low := float32(math.Inf(1))
	for _, foot := range []struct {
		on       bone
		toe, end vec
	}{
		{footR, mirror(vec{0.122, 0.0, 0.14}), mirror(vec{0.108, 0.02, -0.03})},
		{footL, vec{0.122, 0.0, 0.14}, vec{0.108, 0.02, -0.03}},
	} {
		low = min(low, m[foot.on].apply(foot.toe)[1], m[foot.on].apply(foot.end)[1])
	}
	for i := range m {
		m[i].t[1] -= low
	}
	return m
}

// figure is the body in one pose.
type figure struct {
	motions [bones]motion
	rest    []shape
	posed   []shape // cones in studio space; ellipsoids are evaluated in the rest pose
}

func newFigure(rest []shape, phase float64) *figure {
	f := &figure{motions: pose(phase), rest: rest, posed: make([]shape, len(rest))}
	for i, s := range rest {
		m := &f.motions[s.bone]
		s.a, s.b = m.apply(s.a), m.apply(s.b)
		f.posed[i] = s.ready()
	}
	return f
}

// bounds returns a box around the figure, including blends.
func (f *figure) bounds() (low, high vec) {
	const room = 0.06
	low, high = vec{9, 9, 9}, vec{-9, -9, -9}
	for i := range f.posed {
		s := &f.posed[i]
		r := max(s.ra, s.rb, s.radii[0], s.radii[1], s.radii[2]) + room
		for _, p := range [2]vec{s.a, s.b} {
			if s.radii[0] > 0 {
				p = s.a
			}
			for k := range 3 {
				low[k], high[k] = min(low[k], p[k]-r), max(high[k], p[k]+r)
			}
		}
	}
	return low, high
}

// distance returns the distance from p, in studio space, to solid i.
func (f *figure) distance(i int, p vec) float32 {
	if r := &f.rest[i]; r.radii[0] > 0 {
		q := f.motions[r.bone].undo(p)
		d := r.distance(q)
		if r.blend == hairBlend { // hair ends at the face and the neck
			d = max(d, 0.6*(q[2]-0.03)-0.8*(q[1]-1.715), 0.96*(1.625-q[1])+0.28*(q[2]+0.06))
		}
		return d
	}
	return f.posed[i].distance(p)
}

// hairBlend identifies the hair among the ellipsoids of body.
const hairBlend = 0.01

// union returns the distance from p to the blended union of the listed solids.
func (f *figure) union(solids []int, p vec) float32 {
	d := float32(math.Inf(1))
	for _, i := range solids {
		e, k := f.distance(i, p), f.rest[i].blend
		// Polynomial smooth minimum.
		if h := k - abs(d-e); h > 0 {
			d = min(d, e) - h*h/(4*k)
		} else {
			d = min(d, e)
		}
	}
	return d
}

// near appends the listed solids that are within reach of p to found. It also returns the smallest
// distance.
func (f *figure) near(solids, found []int, p vec, reach float32) (float32, []int) {
	least := float32(math.Inf(1))
	for _, i := range solids {
		d := f.distance(i, p)
		least = min(least, d)
		if d < reach {
			found = append(found, i)
		}
	}
	return least, found
}

func abs(x float32) float32 { return max(x, -x) }

// material returns p's position in the rest pose, which determines its colour.
func (f *figure) material(solids []int, p vec) vec {
	var at vec
	var sum float32
	for _, i := range solids {
		d := max(f.distance(i, p), 0) + 0.004
		w := 1 / (d * d * d)
		at = at.add(f.motions[f.rest[i].bone].undo(p).scale(w))
		sum += w
	}
	return at.scale(1 / sum)
}
