package calibrate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"holocast/internal/camera"
	"holocast/internal/vec3"
)

// Marker order on LiveScan3D's four-sided boxes, seen from above.
var (
	testSetOrder   = []float64{0, 180, 90, -90} // degrees by identity: 1 is behind 0
	publishedOrder = []float64{0, -90, 180, 90} // 0, 1, 2, 3 clockwise
)

// Box returns the placement of four markers on the vertical sides of a box, as on the calibration
// cube of LiveScan3D's test set: 0 in front, 1 behind, 2 on the right, 3 on the left.
func Box(width float64) Placement { return box(testSetOrder, width) }

// PublishedBox returns the placement on LiveScan3D's published four-sided boxes: 0 in front, 1 on
// the left, 2 behind, 3 on the right.
func PublishedBox(width float64) Placement { return box(publishedOrder, width) }

func box(order []float64, width float64) Placement {
	p := make(Placement)
	for id, degrees := range order {
		r := turn(0, degrees, 0)
		p[id] = camera.Transform{R: r, T: vec3.Scale(outward(r), width/2)}
	}
	return p
}

// turn returns the rotation Rz·Ry·Rx by the given angles in degrees.
func turn(x, y, z float64) [9]float64 {
	sx, cx := math.Sincos(x * math.Pi / 180)
	sy, cy := math.Sincos(y * math.Pi / 180)
	sz, cz := math.Sincos(z * math.Pi / 180)
	return [9]float64{
		cz * cy, cz*sy*sx - sz*cx, cz*sy*cx + sz*sx,
		sz * cy, sz*sy*sx + cz*cx, sz*sy*cx - cz*sx,
		-sy, cy * sx, cy * cx,
	}
}

// outward returns the direction that points out of the paper.
func outward(r [9]float64) [3]float64 { return [3]float64{r[2], r[5], r[8]} }

// Limits of a marker file.
const (
	maxBoxFile = 64 << 10 // bytes
	maxMarkers = 16       // identities
	farMarker  = 10       // metres from the middle of the box
)

// markerEntry is an unconverted entry of LiveScan3D's marker file.
type markerEntry struct {
	id     int
	line   int
	angles [3]float64 // degrees
	at     [3]float64 // metres
	has    int        // bits: 1 angles, 2 position
}

// ReadBox reads LiveScan3D's text files of marker poses, in either form:
//
//	Marker ID 2                         Marker ID 2
//	Translation	X: 0	Y: 0	Z: -0.105   Orientation: 0 | 90 | 0
//	Rotation	X: 0	Y: 180	Z: 0        Translation: 0.105 | 0 | 0
//
// Lengths are metres and angles degrees, in the order x, y, z. The first form, which LiveScan3D
// writes, gives the inverse rotation. A marker at the origin is unused. ReadBox moves a marker that
// is not on the side its rotation faces onto that side, and adds a note. LiveScan3D's test set has
// one.
func ReadBox(r io.Reader) (at Placement, notes []string, err error) {
	entries, err := readEntries(r)
	if err != nil {
		return nil, nil, err
	}
	at = make(Placement)
	inverse := inverted(entries)
	for _, e := range entries {
		if e.at == ([3]float64{}) {
			continue
		}
		pose := camera.Transform{R: turn(e.angles[0], e.angles[1], e.angles[2]), T: vec3.Scale(e.at, 1000)}
		if inverse {
			pose.R = camera.Transform{R: pose.R}.Inverse().R
		}
		if side := outward(pose.R); vec3.Dot(side, pose.T) < 0.7*vec3.Length(pose.T) {
			pose.T = vec3.Scale(side, vec3.Length(pose.T))
			notes = append(notes, fmt.Sprintf("marker %d is at %v m, not on the side that it faces: moved there", e.id, e.at))
		}
		for id, other := range at {
			if vec3.Dot(outward(other.R), outward(pose.R)) > 0.7 {
				return nil, nil, fmt.Errorf("line %d: markers %d and %d are on the same side of the box", e.line, id, e.id)
			}
		}
		at[e.id] = pose
	}
	if len(at) == 0 {
		return nil, nil, errors.New(`no marker has a position: want LiveScan3D's marker poses, beginning with "Marker ID 0"`)
	}
	return at, notes, nil
}

func readEntries(r io.Reader) (entries []markerEntry, err error) {
	b, err := io.ReadAll(io.LimitReader(r, maxBoxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxBoxFile {
		return nil, fmt.Errorf("larger than %d bytes", maxBoxFile)
	}
	for i, line := range strings.Split(strings.TrimPrefix(string(b), "\ufeff"), "\n") {
		word, rest := cutName(line)
		if word == "marker" && strings.HasPrefix(strings.TrimSpace(rest), "ID") {
			id, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(rest), "ID")))
			if err != nil || id < 0 || id >= maxMarkers {
				return nil, fmt.Errorf("line %d: %.40q has no ID from 0 to %d", i+1, strings.TrimSpace(line), maxMarkers-1)
			}
			if slices.ContainsFunc(entries, func(e markerEntry) bool { return e.id == id }) {
				return nil, fmt.Errorf("line %d: marker %d appears twice", i+1, id)
			}
			entries = append(entries, markerEntry{id: id, line: i + 1})
			continue
		}
		position := word == "translation"
		if len(entries) == 0 || !position && word != "rotation" && word != "orientation" {
			continue // a title or comment
		}
		v, ok := triple(rest)
		if !ok || position && vec3.Length(v) > farMarker {
			return nil, fmt.Errorf("line %d: %.60q does not give x, y and z (want three numbers; positions in metres, "+
				"at most %d m from the middle)", i+1, strings.TrimSpace(line), farMarker)
		}
		e := &entries[len(entries)-1]
		if position {
			e.at, e.has = v, e.has|2
		} else {
			e.angles, e.has = v, e.has|1
		}
	}
	for _, e := range entries {
		if e.has != 3 {
			return nil, fmt.Errorf("line %d: marker %d has no translation or no rotation", e.line, e.id)
		}
	}
	return entries, nil
}

// cutName splits off the first word of a line, in lower case.
func cutName(line string) (word, rest string) {
	line = strings.TrimSpace(line)
	if i := strings.IndexAny(line, " \t:"); i > 0 {
		return strings.ToLower(line[:i]), line[i+1:]
	}
	return strings.ToLower(line), ""
}

// triple reads three numbers, separated by "|" or each preceded by a name and a colon.
func triple(s string) (v [3]float64, ok bool) {
	fields := strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" \t\r|:XYZ", r) })
	if len(fields) != 3 {
		return v, false
	}
	for k, f := range fields {
		x, err := strconv.ParseFloat(f, 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return v, false
		}
		v[k] = x
	}
	return v, true
}

// inverted reports whether the rotations are inverse, that is, whether inverting them makes more
// markers face away from the middle of the box.
func inverted(entries []markerEntry) bool {
	balance := 0
	for _, e := range entries {
		r := turn(e.angles[0], e.angles[1], e.angles[2])
		back := camera.Transform{R: r}.Inverse().R
		if vec3.Dot(outward(back), e.at) > 0.7*vec3.Length(e.at) {
			balance++
		}
		if vec3.Dot(outward(r), e.at) > 0.7*vec3.Length(e.at) {
			balance--
		}
	}
	return balance > 0
}

// choice holds the placements to try for a take.
type choice struct {
	options []Placement
	guessed bool     // the box's width is a guess
	notes   []string // notes on the marker file
}

// findBox returns the placements for the setting, which is a file or a width in millimetres. If it
// is empty, findBox uses the marker file in the take's directory, or else LiveScan3D's boxes for
// A4.
func findBox(dir, setting string) (c choice, err error) {
	if setting == "" {
		setting = markerFile(dir)
	}
	c.guessed = setting == ""
	width := float64(boxWidth)
	if w, err := strconv.ParseFloat(setting, 64); err == nil {
		if !(w >= 20 && w <= 2000) {
			return c, fmt.Errorf("calibrate: marker box is %s mm wide, want 20 to 2000", setting)
		}
		width, setting = w, ""
	}
	if setting == "" {
		c.options = []Placement{Box(width), PublishedBox(width)}
		return c, nil
	}
	f, err := os.Open(setting)
	if err != nil {
		return c, fmt.Errorf("calibrate: marker box: %w", err)
	}
	defer f.Close()
	at, notes, err := ReadBox(f)
	if err != nil {
		return c, fmt.Errorf("calibrate: marker box %s: %w", setting, err)
	}
	c.options, c.notes = []Placement{at}, notes
	return c, nil
}

// markerFile returns the path of a take's text file of marker poses, or "" if it has none.
func markerFile(dir string) string {
	files, _ := fs.Glob(os.DirFS(dir), "*.txt") // the pattern is valid
	for _, name := range files {
		path := filepath.Join(dir, name)
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		b, _ := io.ReadAll(io.LimitReader(f, maxBoxFile))
		_ = f.Close()
		if strings.Contains(string(b), "Marker ID 0") {
			return path
		}
	}
	return ""
}
