// Package calibrate solves the poses of a studio's cameras. Their colour cameras locate a box with
// LiveScan3D markers on its sides, their depth cameras measure it, and the poses are then adjusted
// until the surfaces seen by several cameras coincide. The cameras' colours are then matched on these
// surfaces.
//
// Studio space is in millimetres, with its origin at the middle of the box; seen from marker 0, y
// is up, x right and z forward.
//
// It uses gonum/mat for four solvers: symmetric eigenvectors, SVD, least squares and Cholesky.
// Saving the 1.3 MB that it adds to the program is not worth the code to replace all four.
package calibrate

import (
	"errors"
	"fmt"
	"image"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/mat"

	"holocast/internal/camera"
	"holocast/internal/vec3"
)

// View is one camera's capture.
type View struct {
	Name        string
	Calibration camera.Calibration
	Depth       []uint16    // width×height of Calibration.Depth, millimetres
	Gray        *image.Gray // width×height of Calibration.Color
	// Color is the R G B of each pixel of Depth, 0 0 0 where the colour camera does not see it. Only
	// MatchColors uses it.
	Color []byte
}

// Placement maps marker IDs to transforms from marker space to studio space. Marker space has its
// origin in the middle of the square, x right, y up and z out of the paper.
type Placement map[int]camera.Transform

// ErrNoMarker is wrapped by errors for a view that sees no placed marker.
var ErrNoMarker = errors.New("no marker")

// ErrDisagree is wrapped by errors for cameras whose images contradict the box or each other.
var ErrDisagree = errors.New("wrong marker box")

// sighting is a measured marker. Its corners are in depth camera space, in millimetres.
type sighting struct {
	id      int
	corners [5][3]float64
	size    float64 // half the square's side, millimetres
}

// sight measures the placed markers in every view. size is half the side of their squares, in
// millimetres.
func sight(
	views []View,
	surfaces []*surface,
	found [][]marker,
	at Placement,
) (sightings [][]sighting, size float64, err error) {
	sightings = make([][]sighting, len(views))
	var sizes []float64
	for i, v := range views {
		for _, m := range found[i] {
			if _, placed := at[m.id]; !placed {
				continue
			}
			if s, ok := measure(&v, surfaces[i], m); ok {
				sightings[i] = append(sightings[i], s)
				sizes = append(sizes, s.size)
			}
		}
	}
	if len(sizes) > 0 {
		// All markers are printed at one size, so a deviation means a bad measurement, for example
		// at a grazing angle.
		slices.Sort(sizes)
		size = sizes[len(sizes)/2]
	}
	for i, v := range views {
		sightings[i] = slices.DeleteFunc(sightings[i], func(s sighting) bool {
			return math.Abs(s.size-size) > sizeTolerance*size
		})
		if len(sightings[i]) == 0 {
			return nil, 0,
				fmt.Errorf("calibrate: camera %s: %w of the %d placed markers can be read in its colour image and "+
					"measured in its depth image", v.Name, ErrNoMarker, len(at))
		}
	}
	return sightings, size, nil
}

// sizeTolerance is the maximum relative deviation of a marker's size from the other markers' size.
const sizeTolerance = 0.03

// markerTolerance bounds the root mean square distance in millimetres of markers' corners from
// their positions on the box. Real studios reach 3.5; a box for the next paper size is off by at
// least twenty.
const markerTolerance = 8

// check returns an error if a camera sees markers in positions that are impossible on the box. The
// error names the camera.
func check(views []View, sightings [][]sighting, at Placement, size float64) error {
	for i, v := range views {
		if len(sightings[i]) < 2 {
			continue
		}
		own := sightings[i : i+1]
		pose := byMarkers(own, at, size)
		off := distance(cornersOf(own, pose), placesOf(own, at, size))
		if off <= markerTolerance {
			continue
		}
		var ids []int
		for _, s := range sightings[i] {
			ids = append(ids, s.id)
		}
		return fmt.Errorf("calibrate: camera %s: %w: it sees markers %s together, %.0f mm off their positions; "+
			"set markerBox", v.Name, ErrDisagree, strings.Trim(fmt.Sprint(ids), "[]"), off)
	}
	return nil
}

// byMarkers computes each view's pose from the markers that it sees.
func byMarkers(sightings [][]sighting, at Placement, size float64) []camera.Transform {
	poses := make([]camera.Transform, len(sightings))
	for i := range sightings {
		own := sightings[i : i+1]
		poses[i] = rigid(cornersOf(own, []camera.Transform{camera.Identity}), placesOf(own, at, size))
	}
	return poses
}

// cornersOf returns the measured corners of all sightings in studio space.
func cornersOf(sightings [][]sighting, poses []camera.Transform) (corners [][3]float64) {
	for i := range sightings {
		for _, s := range sightings[i] {
			for _, c := range s.corners {
				corners = append(corners, poses[i].Apply(c))
			}
		}
	}
	return corners
}

// placesOf returns where the corners returned by cornersOf are on the box, in the same order.
func placesOf(sightings [][]sighting, at Placement, size float64) (places [][3]float64) {
	for i := range sightings {
		for _, s := range sightings[i] {
			place := at[s.id]
			for _, c := range outline {
				places = append(places, place.Apply([3]float64{c[0] * size, -c[1] * size, 0}))
			}
		}
	}
	return places
}

// measure intersects the rays of a marker's corners with the plane fitted to its depth readings.
func measure(v *View, on *surface, m marker) (s sighting, ok bool) {
	lines, ok := edgeLines(v.Gray, m, v.Calibration.Color.Unproject)
	if !ok {
		return s, false
	}
	var rays [5][2]float64
	for k := range rays {
		if rays[k], ok = meet(lines[(k+4)%5], lines[k]); !ok {
			return s, false
		}
	}
	// Readings inside the outline, in colour camera space.
	var readings [][3]float64
	for _, q := range on.points {
		if p := v.Calibration.DepthToColor.Apply(q); q[2] > 0 && p[2] > 0 && contains(rays[:], p[0]/p[2], p[1]/p[2]) {
			readings = append(readings, p)
		}
	}
	normal, offset, ok := plane(readings)
	if !ok {
		return s, false
	}
	if center := centroid(readings); math.Abs(vec3.Dot(normal, center)) < grazing*vec3.Length(center) {
		return s, false
	}
	back := v.Calibration.DepthToColor.Inverse()
	var model [5][3]float64
	for k, r := range rays {
		t := offset / (normal[0]*r[0] + normal[1]*r[1] + normal[2])
		s.corners[k] = back.Apply([3]float64{r[0] * t, r[1] * t, t})
		model[k] = [3]float64{outline[k][0], outline[k][1], 0}
	}
	s.id, s.size = m.id, spread(s.corners[:])/spread(model[:])
	return s, s.size > 0
}

// spread returns the root mean square distance of points from their mean.
func spread(points [][3]float64) float64 {
	c := centroid(points)
	var sum float64
	for _, p := range points {
		for k := range 3 {
			sum += (p[k] - c[k]) * (p[k] - c[k])
		}
	}
	return math.Sqrt(sum / float64(len(points)))
}

func centroid(points [][3]float64) (c [3]float64) {
	for _, p := range points {
		for k := range 3 {
			c[k] += p[k] / float64(len(points))
		}
	}
	return c
}

func contains(polygon [][2]float64, x, y float64) bool {
	in := false
	for i, a := range polygon {
		b := polygon[(i+1)%len(polygon)]
		if (a[1] > y) != (b[1] > y) && x < a[0]+(y-a[1])/(b[1]-a[1])*(b[0]-a[0]) {
			in = !in
		}
	}
	return in
}

// grazing is the sine of the smallest angle at which a surface is measured.
const grazing = 0.26

// minOnPlane is the minimum number of readings that define a plane.
const minOnPlane = 60

// plane fits normal·p = offset, |normal| = 1, ignoring outliers.
func plane(points [][3]float64) (normal [3]float64, offset float64, ok bool) {
	for range 4 {
		if len(points) < minOnPlane {
			return normal, 0, false
		}
		c := centroid(points)
		cov := mat.NewSymDense(3, nil)
		for i := range 3 {
			for j := i; j < 3; j++ {
				var sum float64
				for _, p := range points {
					sum += (p[i] - c[i]) * (p[j] - c[j])
				}
				cov.SetSym(i, j, sum)
			}
		}
		var eigen mat.EigenSym
		if !eigen.Factorize(cov, true) {
			return normal, 0, false
		}
		var vectors mat.Dense
		eigen.VectorsTo(&vectors)
		normal = [3]float64{vectors.At(0, 0), vectors.At(1, 0), vectors.At(2, 0)} // smallest eigenvalue
		offset = normal[0]*c[0] + normal[1]*c[1] + normal[2]*c[2]
		sigma := math.Sqrt(max(eigen.Values(nil)[0], 0) / float64(len(points)))
		limit := max(2.5*sigma, 1)
		points = slices.DeleteFunc(slices.Clone(points), func(p [3]float64) bool {
			return math.Abs(normal[0]*p[0]+normal[1]*p[1]+normal[2]*p[2]-offset) > limit
		})
	}
	return normal, offset, true
}

// rigid returns the least-squares rigid motion from the points in from to those in to (Kabsch
// 1976).
func rigid(from, to [][3]float64) camera.Transform {
	cf, ct := centroid(from), centroid(to)
	h := mat.NewDense(3, 3, nil)
	for n := range from {
		for i := range 3 {
			for j := range 3 {
				h.Set(i, j, h.At(i, j)+(from[n][i]-cf[i])*(to[n][j]-ct[j]))
			}
		}
	}
	var svd mat.SVD
	svd.Factorize(h, mat.SVDFull)
	var u, v mat.Dense
	svd.UTo(&u)
	svd.VTo(&v)
	flip := mat.NewDiagDense(3, []float64{1, 1, math.Copysign(1, mat.Det(&u)*mat.Det(&v))})
	var r mat.Dense
	r.Product(&v, flip, u.T())
	m := camera.Transform{}
	for i := range 3 {
		for j := range 3 {
			m.R[3*i+j] = r.At(i, j)
		}
	}
	moved := m.Apply(cf)
	for k := range 3 {
		m.T[k] = ct[k] - moved[k]
	}
	return m
}
