// Package viewtrace reads a recorded walk of a viewer: comma-separated text with a header line.
// Columns are found by name:
//
//	t               seconds from the start, ascending
//	x, y, z         eye in studio space, mm
//	qx, qy, qz, qw  rotation from eye space (x right, y down, z forward) to studio space, a quaternion
//	dx, dy, dz, ux, uy, uz  instead of the quaternion: directions of view and up in studio space
//	fovx, fovy      field of view, degrees; optional
package viewtrace

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sort"

	"holocast/internal/camera"
	"holocast/internal/columns"
	"holocast/internal/vec3"
	"holocast/internal/viewselect"
)

// Limits of a file.
const (
	MaxSamples  = 1 << 20
	maxPosition = 1e6 // mm
	minFOV      = 10  // degrees
	maxFOV      = 150
)

// Sample is the view at a time.
type Sample struct {
	T        float64 // seconds
	Position [3]float64
	Rotation camera.Quaternion // from eye space to studio space
	TanX     float64           // tangents of half the field of view; 0 if the file has none
	TanY     float64
}

// Trace is a walk.
type Trace []Sample

// Open reads a file.
func Open(path string) (Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	trace, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return trace, nil
}

// Read reads a walk.
func Read(r io.Reader) (Trace, error) {
	rows, err := columns.NewReader(r, MaxSamples)
	if err != nil {
		return nil, fmt.Errorf("view trace: %w", err)
	}
	c := layout{
		position: rows.Find("t", "x", "y", "z"), quaternion: rows.Find("qx", "qy", "qz", "qw"),
		directions: rows.Find("dx", "dy", "dz", "ux", "uy", "uz"), fov: rows.Find("fovx", "fovy"),
	}
	if c.position == nil || c.quaternion == nil && c.directions == nil {
		return nil, fmt.Errorf("view trace: columns %.200q; want t, x, y, z and either qx, qy, qz, qw or dx, dy, dz, ux, "+
			"uy, uz", rows.Header())
	}
	if c.quaternion != nil {
		c.directions = nil
	}
	var trace Trace
	for {
		err := rows.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("view trace: %w", err)
		}
		s, err := c.parse(rows)
		if n := len(trace); err == nil && n > 0 && s.T <= trace[n-1].T {
			err = errors.New("t does not ascend")
		}
		if err != nil {
			return nil, fmt.Errorf("view trace: line %d: %w", rows.Line(), err)
		}
		trace = append(trace, s)
	}
	if len(trace) == 0 {
		return nil, errors.New("view trace: no samples")
	}
	return trace, nil
}

// layout holds the file's columns, nil where they are missing.
type layout struct{ position, quaternion, directions, fov []int }

func (c *layout) parse(rows *columns.Reader) (s Sample, err error) {
	numbers := func(at []int) (v [6]float64) {
		for i := 0; i < len(at) && err == nil; i++ {
			if v[i], err = rows.Number(at[i]); err != nil {
				err = fmt.Errorf("%s: %w", rows.Name(at[i]), err)
			}
		}
		return v
	}
	v, q, d, f := numbers(c.position), numbers(c.quaternion), numbers(c.directions), numbers(c.fov)
	if err != nil {
		return s, err
	}
	s.T, s.Position = v[0], [3]float64(v[1:4])
	if slices.ContainsFunc(s.Position[:], func(x float64) bool { return math.Abs(x) > maxPosition }) {
		return s, fmt.Errorf("position %v exceeds %g mm", s.Position, float64(maxPosition))
	}
	if c.quaternion != nil {
		s.Rotation, err = unit(camera.Quaternion{X: q[0], Y: q[1], Z: q[2], W: q[3]})
	} else {
		s.Rotation, err = look([3]float64(d[0:3]), [3]float64(d[3:6]))
	}
	if err == nil && c.fov != nil {
		s.TanX, s.TanY = tan(f[0]), tan(f[1])
		if !(min(f[0], f[1]) >= minFOV && max(f[0], f[1]) <= maxFOV) {
			err = fmt.Errorf("field of view %g×%g, want %d to %d degrees", f[0], f[1], minFOV, maxFOV)
		}
	}
	return s, err
}

// tan returns the tangent of half an angle in degrees.
func tan(degrees float64) float64 { return math.Tan(degrees * math.Pi / 360) }

func unit(q camera.Quaternion) (camera.Quaternion, error) {
	m, err := camera.FromQuaternion(q, [3]float64{})
	if err == nil {
		err = m.Validate()
	}
	if err != nil {
		return q, fmt.Errorf("qx, qy, qz, qw: %w", err)
	}
	return m.Quaternion(), nil
}

// look returns the rotation of an eye that looks along forward, with up in the upper half of its
// picture.
func look(forward, up [3]float64) (camera.Quaternion, error) {
	f, okForward := direction(forward)
	up, okUp := direction(up)
	right, okRight := direction(vec3.Cross(f, up))
	if !okForward || !okUp || !okRight {
		return camera.Quaternion{}, errors.New("dx, dy, dz and ux, uy, uz do not give two directions")
	}
	down := vec3.Cross(f, right)
	m := camera.Transform{R: [9]float64{
		right[0], down[0], f[0], right[1], down[1], f[1], right[2], down[2], f[2],
	}}
	return m.Quaternion(), nil
}

// direction returns the unit vector along v. ok is false if v is too short or too long.
func direction(v [3]float64) (u [3]float64, ok bool) {
	n := math.Sqrt(v[0]*v[0] + v[1]*v[1] + v[2]*v[2])
	if !(n > 1e-3 && n < 1e6) {
		return u, false
	}
	return [3]float64{v[0] / n, v[1] / n, v[2] / n}, true
}

// At returns the view at a time, interpolated between samples and constant before the first and after
// the last. tanX and tanY are the tangents of half the field of view if the file has none.
func (t Trace) At(seconds, tanX, tanY float64) viewselect.View {
	i := sort.Search(len(t), func(i int) bool { return t[i].T > seconds })
	a, b := t[max(0, i-1)], t[min(i, len(t)-1)]
	f := 0.0
	if b.T > a.T {
		f = (seconds - a.T) / (b.T - a.T)
	}
	mix := func(x, y float64) float64 { return x + f*(y-x) }
	q := b.Rotation
	if p := a.Rotation; p.X*q.X+p.Y*q.Y+p.Z*q.Z+p.W*q.W < 0 { // the same rotation, on the shorter way
		q = camera.Quaternion{X: -q.X, Y: -q.Y, Z: -q.Z, W: -q.W}
	}
	q = camera.Quaternion{
		X: mix(a.Rotation.X, q.X), Y: mix(a.Rotation.Y, q.Y), Z: mix(a.Rotation.Z, q.Z), W: mix(a.Rotation.W, q.W),
	}
	at := [3]float64{
		mix(a.Position[0], b.Position[0]), mix(a.Position[1], b.Position[1]), mix(a.Position[2], b.Position[2]),
	}
	pose, err := camera.FromQuaternion(q, at)
	if err != nil { // unreachable: the shorter way between unit quaternions avoids 0
		pose, _ = camera.FromQuaternion(a.Rotation, at)
	}
	v := viewselect.View{Eye: pose.Inverse(), TanX: tanX, TanY: tanY}
	if a.TanX > 0 {
		v.TanX, v.TanY = mix(a.TanX, b.TanX), mix(a.TanY, b.TanY)
	}
	return v
}
