// Package gazetrace reads recorded head movements: comma-separated text with a header line,
// optionally gzipped. Columns are found by name:
//
//	t        seconds from the medium's start, ascending within a viewing
//	x, y, z  gaze direction: right, up, forward; length between 0.001 and 1000
//	yaw, pitch  gaze instead of x, y, z: degrees, right and up
//	video, user identify the viewing; optional
//
// The traces of Nasrabadi et al., "A Taxonomy and Dataset for 360° Videos" (MMSys 2019), have these
// columns.
package gazetrace

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sort"
	"strings"

	"holocast/internal/columns"
	"holocast/internal/tile360"
)

// MaxSamples is the maximum number of samples in a file.
const MaxSamples = 4 << 20

// Trace is one viewing.
type Trace struct {
	Video, User string // "" if not in the file
	Samples     []tile360.Sample
}

// Open reads a file.
func Open(path string) ([]Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	traces, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return traces, nil
}

// Read reads traces. It returns them in the order of their first lines.
func Read(r io.Reader) ([]Trace, error) {
	buffered := bufio.NewReader(r)
	if magic, _ := buffered.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, err
		}
		defer func() { _ = z.Close() }()
		buffered = bufio.NewReader(z)
	}
	rows, err := columns.NewReader(buffered, MaxSamples)
	if err != nil {
		return nil, fmt.Errorf("head trace: %w", err)
	}
	vector, angles := rows.Find("t", "x", "y", "z"), rows.Find("t", "yaw", "pitch")
	if vector == nil && angles == nil {
		return nil, fmt.Errorf("head trace: columns %q; want t and x, y, z or t and yaw, pitch", rows.Header())
	}
	names := [2][]int{rows.Find("video"), rows.Find("user")}
	var traces []Trace
	viewing := map[[2]string]int{}
	for {
		err := rows.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("head trace: %w", err)
		}
		line := rows.Line()
		var s tile360.Sample
		if vector != nil {
			v, err := numbers(rows, vector)
			if err != nil {
				return nil, fmt.Errorf("head trace: line %d: %w", line, err)
			}
			if l := v[1]*v[1] + v[2]*v[2] + v[3]*v[3]; !(l > 1e-6) || l > 1e6 {
				return nil, fmt.Errorf("head trace: line %d: x, y, z do not give a direction", line)
			}
			s = tile360.Sample{T: v[0], Gaze: tile360.Vec{X: v[1], Y: v[2], Z: v[3]}.Unit()}
		} else {
			v, err := numbers(rows, angles)
			if err != nil {
				return nil, fmt.Errorf("head trace: line %d: %w", line, err)
			}
			s = tile360.Sample{T: v[0], Gaze: tile360.Direction(v[1]*math.Pi/180, v[2]*math.Pi/180)}
		}
		var key [2]string
		for i, at := range names {
			if at != nil {
				key[i] = rows.Text(at[0])
			}
		}
		at, ok := viewing[key]
		if !ok {
			at = len(traces)
			viewing[key] = at
			traces = append(traces, Trace{Video: strings.Clone(key[0]), User: strings.Clone(key[1])})
		}
		trace := &traces[at]
		if k := len(trace.Samples); k > 0 && s.T <= trace.Samples[k-1].T {
			return nil, fmt.Errorf("head trace: line %d: t does not ascend", line)
		}
		trace.Samples = append(trace.Samples, s)
	}
	if len(traces) == 0 {
		return nil, errors.New("head trace: no samples")
	}
	return traces, nil
}

func numbers(rows *columns.Reader, at []int) (v [4]float64, err error) {
	for i, c := range at {
		if v[i], err = rows.Number(c); err != nil {
			return v, err
		}
	}
	return v, nil
}

// At returns the gaze at a time, interpolated between samples and constant before the first and
// after the last.
func (t Trace) At(seconds float64) tile360.Vec {
	n := len(t.Samples)
	i := sort.Search(n, func(i int) bool { return t.Samples[i].T > seconds })
	switch {
	case n == 0:
		return tile360.Vec{Z: 1}
	case i == 0:
		return t.Samples[0].Gaze
	case i == n:
		return t.Samples[n-1].Gaze
	}
	a, b := t.Samples[i-1], t.Samples[i]
	f := (seconds - a.T) / (b.T - a.T)
	return tile360.Vec{
		X: a.Gaze.X + f*(b.Gaze.X-a.Gaze.X),
		Y: a.Gaze.Y + f*(b.Gaze.Y-a.Gaze.Y),
		Z: a.Gaze.Z + f*(b.Gaze.Z-a.Gaze.Z),
	}.Unit()
}

// Crowd returns the gaze of all traces, at rate samples per second.
func Crowd(traces []Trace, rate float64) *tile360.Crowd {
	c := &tile360.Crowd{Rate: rate}
	for _, t := range traces {
		n := int(min(t.Samples[len(t.Samples)-1].T*rate, MaxSamples)) + 1
		viewer := make([]tile360.Vec, 0, max(0, n))
		for i := range n {
			viewer = append(viewer, t.At(float64(i)/rate))
		}
		c.Viewers = append(c.Viewers, viewer)
	}
	return c
}

// Of returns the traces of a video, sorted by user.
func Of(traces []Trace, video string) []Trace {
	var of []Trace
	for _, t := range traces {
		if t.Video == video {
			of = append(of, t)
		}
	}
	slices.SortFunc(of, func(a, b Trace) int { return strings.Compare(a.User, b.User) })
	return of
}

// Videos returns the names of the traces' videos, sorted.
func Videos(traces []Trace) []string {
	var names []string
	for _, t := range traces {
		names = append(names, t.Video)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
