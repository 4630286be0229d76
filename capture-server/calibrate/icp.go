package calibrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"holocast/internal/camera"
	"holocast/internal/vec3"
)

// Residual measures how well surfaces seen by several cameras coincide, as distances from one
// camera's readings to the surface measured by another. It excludes pairs more than 50 mm apart, as
// only one of the cameras sees the surface.
type Residual struct {
	RMS    float64 // millimetres
	Median float64 // millimetres
	Pairs  int
	// Markers is the root mean square distance in millimetres of the markers' corners from their
	// positions on the box.
	Markers float64
	// Size is the measured half side of the markers' squares, in millimetres.
	Size float64
	// Through is the fraction of one camera's readings in view of a second camera that lie more than
	// 80 mm in front of the surface measured by the second, for the pair with the largest fraction.
	// Worst names that pair: the second camera, then the first.
	Through float64
	Worst   [2]string
}

const (
	pixelStep  = 4 // use every fourth pixel of every fourth row
	normalStep = 3 // pixel distance of the readings used for a normal
	farthest   = 4000
	finalGate  = 50  // millimetres
	seeThrough = 80  // millimetres
	minShared  = 500 // minimum readings in view of another camera to judge the two

	// maxThrough bounds Residual.Through for a known box, maxGuess for a guessed one. A real studio
	// reaches 0.007; cameras placed on the wrong sides of the box in an empty square room reach
	// 0.027.
	maxThrough, maxGuess = 0.15, 0.02
)

// gates are the maximum distances between matched readings in each iteration, in millimetres.
var gates = []float64{200, 150, 100, 70, 50, 50, 50, 50, 50, 50}

// Solve returns each view's pose, from depth camera space to studio space. It starts from the
// markers and refines the poses with the surfaces that several views share (point-to-plane ICP,
// Chen and Medioni 1992, all views jointly, readings matched by projection). It takes seconds.
// Errors name the view.
func Solve(ctx context.Context, views []View, at Placement) ([]camera.Transform, Residual, error) {
	s, err := newScene(ctx, views)
	if err != nil {
		return nil, Residual{}, err
	}
	return s.solve(ctx, at)
}

// scene holds the surfaces and markers that the views show.
type scene struct {
	views    []View
	surfaces []*surface
	found    [][]marker
}

func newScene(ctx context.Context, views []View) (*scene, error) {
	for _, v := range views {
		d, c := v.Calibration.Depth, v.Calibration.Color
		if len(v.Depth) != d.Width*d.Height {
			return nil, fmt.Errorf("calibrate: camera %s: depth image has %d pixels, calibration has %d×%d",
				v.Name, len(v.Depth), d.Width, d.Height)
		}
		if size := v.Gray.Rect.Size(); size.X != c.Width || size.Y != c.Height {
			return nil, fmt.Errorf("calibrate: camera %s: colour image is %d×%d, calibration has %d×%d",
				v.Name, size.X, size.Y, c.Width, c.Height)
		}
	}
	s := &scene{views, make([]*surface, len(views)), make([][]marker, len(views))}
	// Sequentially, since publishing is already running and needs the other processors.
	for i := range views {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.surfaces[i], s.found[i] = newSurface(&views[i]), findMarkers(views[i].Gray)
	}
	return s, nil
}

func (s *scene) solve(ctx context.Context, at Placement) ([]camera.Transform, Residual, error) {
	views, surfaces := s.views, s.surfaces
	sightings, size, err := sight(views, surfaces, s.found, at)
	if err != nil {
		return nil, Residual{}, err
	}
	if err := check(views, sightings, at, size); err != nil {
		return nil, Residual{}, err
	}
	poses := byMarkers(sightings, at, size)
	for _, gate := range gates {
		if err := ctx.Err(); err != nil {
			return nil, Residual{}, err
		}
		if err := adjust(surfaces, poses, gate, anchors(sightings, at, size)); err != nil {
			return nil, Residual{}, err
		}
	}
	for i, v := range views {
		own := sightings[i : i+1]
		if off := distance(cornersOf(own, poses[i:i+1]), placesOf(own, at, size)); off > markerTolerance {
			return nil, Residual{}, fmt.Errorf("calibrate: camera %s: %w: its markers are %.0f mm off their positions "+
				"on the box; set markerBox", v.Name, ErrDisagree, off)
		}
	}
	r := residual(surfaces, poses, distance(cornersOf(sightings, poses), placesOf(sightings, at, size)))
	r.Size = size
	for i, from := range surfaces {
		for j, to := range surfaces {
			share, n := through(from, to, poses[j].Inverse().Compose(poses[i]))
			if i != j && n >= minShared && share >= r.Through {
				r.Through, r.Worst = share, [2]string{views[j].Name, views[i].Name}
			}
		}
	}
	return poses, r, r.refuse(maxThrough)
}

// refuse returns an error if Through exceeds most. The error names the two cameras that disagree
// most.
func (r Residual) refuse(most float64) error {
	if r.Through <= most {
		return nil
	}
	return fmt.Errorf("calibrate: cameras %s and %s disagree: %w: the first looks through %.0f %% of the surfaces of the "+
		"second; set markerBox", r.Worst[0], r.Worst[1], ErrDisagree, 100*r.Through)
}

// through projects the readings of one camera, from, into another, to, and compares them with its
// readings. n is the number of readings compared, and share is the fraction that lies more than
// seeThrough in front of the surface that to measured. move maps from's space to to's.
func through(from, to *surface, move camera.Transform) (share float64, n int) {
	behind := 0
	for _, s := range from.sample {
		p := move.Apply(from.points[s])
		u, v, ok := to.lens.Project(p)
		if !ok || u < 0 || v < 0 || u > float64(to.lens.Width-1) || v > float64(to.lens.Height-1) {
			continue
		}
		k := int(v+0.5)*to.lens.Width + int(u+0.5)
		z := to.points[k][2]
		switch {
		case to.normals[k] == ([3]float64{}) || p[2] > z+seeThrough:
			continue // not measured, an edge, or hidden
		case p[2] < z-seeThrough:
			behind++
		}
		n++
	}
	return float64(behind) / float64(max(1, n)), n
}

func distance(a, b [][3]float64) float64 {
	var sum float64
	for i := range a {
		for k := range 3 {
			sum += (a[i][k] - b[i][k]) * (a[i][k] - b[i][k])
		}
	}
	return math.Sqrt(sum / float64(len(a)))
}

// surface holds the points and normals of a view's depth image, in depth camera space and in
// millimetres.
type surface struct {
	lens    camera.Intrinsics
	points  [][3]float64 // z is 0 for no reading
	normals [][3]float64 // 0 for none
	sample  []int        // indices of pixels matched with other views
}

func newSurface(v *View) *surface {
	lens := v.Calibration.Depth
	table := lens.RayTable()
	s := &surface{lens: lens, points: make([][3]float64, len(v.Depth)), normals: make([][3]float64, len(v.Depth))}
	for i, z := range v.Depth {
		if z > 0 && z < farthest && !math.IsNaN(float64(table.X[i])) {
			d := float64(z)
			s.points[i] = [3]float64{float64(table.X[i]) * d, float64(table.Y[i]) * d, d}
		}
	}
	for y := range lens.Height {
		for x := range lens.Width {
			if s.normal(x, y) && x%pixelStep == 0 && y%pixelStep == 0 {
				s.sample = append(s.sample, y*lens.Width+x)
			}
		}
	}
	return s
}

// normal fits a plane to 5×5 readings around a pixel. It fails at edges and where the surface is
// seen at less than 15°.
func (s *surface) normal(x, y int) bool {
	const half = 2 * normalStep
	w := s.lens.Width
	if x < half || y < half || x >= w-half || y >= s.lens.Height-half || s.points[y*w+x][2] == 0 {
		return false
	}
	center := s.points[y*w+x]
	// Solve n·p = 1 by least squares; no visible surface passes through the camera.
	var a [6]float64
	var b [3]float64
	for dy := -half; dy <= half; dy += normalStep {
		for dx := -half; dx <= half; dx += normalStep {
			p := s.points[(y+dy)*w+x+dx]
			if p[2] == 0 || math.Abs(p[2]-center[2]) > 0.06*center[2] {
				return false
			}
			a[0], a[1], a[2] = a[0]+p[0]*p[0], a[1]+p[0]*p[1], a[2]+p[0]*p[2]
			a[3], a[4], a[5] = a[3]+p[1]*p[1], a[4]+p[1]*p[2], a[5]+p[2]*p[2]
			b[0], b[1], b[2] = b[0]+p[0], b[1]+p[1], b[2]+p[2]
		}
	}
	c0, c1, c2 := a[3]*a[5]-a[4]*a[4], a[2]*a[4]-a[1]*a[5], a[1]*a[4]-a[2]*a[3]
	det := a[0]*c0 + a[1]*c1 + a[2]*c2
	if det == 0 {
		return false
	}
	c3, c4, c5 := a[0]*a[5]-a[2]*a[2], a[1]*a[2]-a[0]*a[4], a[0]*a[3]-a[1]*a[1]
	n := [3]float64{
		(c0*b[0] + c1*b[1] + c2*b[2]) / det,
		(c1*b[0] + c3*b[1] + c4*b[2]) / det,
		(c2*b[0] + c4*b[1] + c5*b[2]) / det,
	}
	n = vec3.Scale(n, 1/vec3.Length(n))
	if math.Abs(vec3.Dot(n, center)) < grazing*vec3.Length(center) {
		return false
	}
	s.normals[y*w+x] = n
	return true
}

// pair is a reading of view i matched with the surface of view j, in studio space.
type pair struct {
	i, j          int
	from, to      int // pixels of the two views
	point, normal [3]float64
	distance      float64 // from the surface to the point, along normal
}

// match projects each view's readings onto the surfaces of the other views. It calls found for every
// pair at most gate millimetres apart whose normals differ by less than 30°.
func match(surfaces []*surface, poses []camera.Transform, gate float64, found func(pair)) {
	for i, from := range surfaces {
		for j, to := range surfaces {
			if i == j {
				continue
			}
			move := poses[j].Inverse().Compose(poses[i])
			turn := camera.Transform{R: move.R}
			back := camera.Transform{R: poses[j].R}
			for _, s := range from.sample {
				p := move.Apply(from.points[s])
				u, v, ok := to.lens.Project(p)
				if !ok || u < 0 || v < 0 || u > float64(to.lens.Width-1) || v > float64(to.lens.Height-1) {
					continue
				}
				k := int(v+0.5)*to.lens.Width + int(u+0.5)
				n := to.normals[k]
				if n == ([3]float64{}) || vec3.Dot(n, turn.Apply(from.normals[s])) < 0.87 {
					continue
				}
				q := to.points[k]
				d := [3]float64{p[0] - q[0], p[1] - q[1], p[2] - q[2]}
				if vec3.Dot(d, d) > gate*gate {
					continue
				}
				found(pair{
					i: i, j: j, from: s, to: k, point: poses[i].Apply(from.points[s]), normal: back.Apply(n),
					distance: vec3.Dot(n, d),
				})
			}
		}
	}
}

// anchor is a marker's corner: its position as view i sees it, in depth camera space, and its
// position in the studio, both in millimetres.
type anchor struct {
	view  int
	seen  [3]float64
	place [3]float64
}

func anchors(sightings [][]sighting, at Placement, size float64) (list []anchor) {
	for i := range sightings {
		for _, s := range sightings[i] {
			place := at[s.id]
			for k, c := range outline {
				list = append(list, anchor{i, s.corners[k], place.Apply([3]float64{c[0] * size, -c[1] * size, 0})})
			}
		}
	}
	return list
}

// anchorShare is the total weight of the anchors relative to the pairs. Surfaces determine the
// rotations, as they extend for metres; the box determines the positions, as time-of-flight
// readings of floors and corners share a bias.
const anchorShare = 1

// minPairs is the minimum number of pairs for an adjustment.
const minPairs = 200

// system holds the normal equations of a Gauss–Newton step. Each view has six unknowns: a rotation
// vector about the origin in milliradians and a translation in millimetres.
type system struct {
	n int
	h []float64 // n×n, upper triangle
	g []float64
}

// gradient is the derivative of a point's distance along normal with respect to its view's pose.
func gradient(x, normal [3]float64) [6]float64 {
	return [6]float64{
		(x[1]*normal[2] - x[2]*normal[1]) / 1000, (x[2]*normal[0] - x[0]*normal[2]) / 1000,
		(x[0]*normal[1] - x[1]*normal[0]) / 1000,
		normal[0], normal[1], normal[2],
	}
}

// add adds the term weight·error², where row is the error's derivative for view i.
func (s *system) add(i int, row *[6]float64, weight, err float64) {
	for a := range 6 {
		s.g[6*i+a] -= weight * row[a] * err
		at := s.h[(6*i+a)*s.n+6*i:]
		for b := a; b < 6; b++ {
			at[b] += weight * row[a] * row[b]
		}
	}
}

// addPair adds the term weight·error², where row is the error's derivative for view i and its
// negative for view j.
func (s *system) addPair(i, j int, row *[6]float64, weight, err float64) {
	s.add(i, row, weight, err)
	opposite := *row
	for a := range opposite {
		opposite[a] = -row[a]
	}
	s.add(j, &opposite, weight, err)
	lo, hi := min(i, j), max(i, j)
	for a := range 6 {
		at := s.h[(6*lo+a)*s.n+6*hi:]
		for b := range 6 {
			at[b] -= weight * row[a] * row[b]
		}
	}
}

// adjust performs one Gauss–Newton step for all poses.
func adjust(surfaces []*surface, poses []camera.Transform, gate float64, anchors []anchor) error {
	n := 6 * len(poses)
	s := system{n: n, h: make([]float64, n*n), g: make([]float64, n)}
	pairs := 0
	match(surfaces, poses, gate, func(p pair) {
		pairs++
		row := gradient(p.point, p.normal)
		r := p.distance / (gate / 3)
		s.addPair(p.i, p.j, &row, 1/(1+r*r), p.distance) // Cauchy weight, against false matches
	})
	if pairs < minPairs {
		return nil // no shared surfaces: keep the poses from the markers
	}
	weight := anchorShare * float64(pairs) / float64(len(anchors))
	for _, c := range anchors {
		x := poses[c.view].Apply(c.seen)
		for k := range 3 {
			var axis [3]float64
			axis[k] = 1
			row := gradient(x, axis)
			s.add(c.view, &row, weight, x[k]-c.place[k])
		}
	}
	var chol mat.Cholesky
	if !chol.Factorize(mat.NewSymDense(n, s.h)) {
		return errors.New("calibrate: markers and surfaces do not determine the cameras' poses")
	}
	var x mat.VecDense
	if err := chol.SolveVecTo(&x, mat.NewVecDense(n, s.g)); err != nil {
		return fmt.Errorf("calibrate: adjust poses: %w", err)
	}
	for i := range poses {
		poses[i] = small(x.RawVector().Data[6*i:]).Compose(poses[i])
	}
	return nil
}

// small converts a rotation vector (mrad) and a translation (mm) to a rigid motion.
func small(x []float64) camera.Transform {
	angle := math.Sqrt(x[0]*x[0]+x[1]*x[1]+x[2]*x[2]) / 1000
	s := 0.0005 // limit of sin(angle/2)/angle for angle → 0, per mrad
	if angle > 1e-9 {
		s = math.Sin(angle/2) / angle / 1000
	}
	m, err := camera.FromQuaternion(camera.Quaternion{X: x[0] * s, Y: x[1] * s, Z: x[2] * s, W: math.Cos(angle / 2)},
		[3]float64{x[3], x[4], x[5]})
	if err != nil { // not finite
		return camera.Identity
	}
	return m
}

func residual(surfaces []*surface, poses []camera.Transform, markers float64) Residual {
	var distances []float64
	var sum float64
	match(surfaces, poses, finalGate, func(p pair) {
		distances = append(distances, math.Abs(p.distance))
		sum += p.distance * p.distance
	})
	r := Residual{Pairs: len(distances), Markers: markers}
	if len(distances) > 0 {
		slices.Sort(distances)
		r.Median = distances[len(distances)/2]
		r.RMS = math.Sqrt(sum / float64(len(distances)))
	}
	return r
}

// solveAny solves the poses with each placement and returns the solution on which the views agree
// best. The side of LiveScan3D's markers is four fifths of the width of a box, so their measured
// size can contradict a guessed width.
func solveAny(ctx context.Context, views []View, box choice) (
	best []camera.Transform, least Residual, err error,
) {
	s, err := newScene(ctx, views)
	if err != nil {
		return nil, Residual{}, err
	}
	for _, at := range box.options {
		poses, r, failed := s.solve(ctx, at)
		if failed == nil && len(box.options) > 1 {
			failed = r.refuse(maxGuess)
		}
		if width := 2 * vec3.Length(at[0].T); failed == nil && box.guessed && math.Abs(r.Size/0.4-width) > 0.1*width {
			failed = fmt.Errorf("calibrate: %w: markers %.0f mm wide belong to a box of about %.0f mm, not %.0f mm; set "+
				"markerBox", ErrDisagree, 2*r.Size, r.Size/0.4, width)
		}
		switch {
		case failed != nil && !errors.Is(failed, ErrDisagree):
			return nil, Residual{}, failed
		case failed != nil:
			err = cmp.Or(err, failed)
		case best == nil || r.Through < least.Through:
			best, least = poses, r
		}
	}
	if best != nil {
		err = nil
	}
	return best, least, err
}
