package pointcloud

import (
	"fmt"
	"strings"
)

// Layout is the format of a frame's planes.
type Layout uint8

// The layouts of docs/spec/point-cloud-frame.md.
const (
	LayoutGrid        Layout = 1 // A: one sensor's pixel grid
	LayoutPoints      Layout = 2 // B: unorganised points, planar deltas
	LayoutInterleaved Layout = 3 // C: LiveScan3D's records, 3×int16 and 3×uint8
)

// layout defines one layout. kernels.c has a table with the kernels of each.
type layout struct {
	letter        string
	onGrid        bool
	bytesPerPoint float64
	// rawBounds returns the minimum and maximum length of the planes for a header.
	rawBounds func(h Header) (least, most uint64)
	// planes appends the planes of ph's share of f to dst. undo reverses it into ph's share of an
	// empty grid, or into a cloud of exactly points points, and returns false if raw is invalid.
	// Both implement the specification in plain Go.
	planes func(dst []byte, f *Frame, ph phase) (raw []byte, points int)
	undo   func(raw []byte, points int, f *Frame, ph phase) bool
}

var layouts = [...]layout{
	LayoutGrid: {
		letter: "A", onGrid: true, bytesPerPoint: 2,
		rawBounds: func(h Header) (least, most uint64) {
			width, height := h.subgrid()
			n, pixels := uint64(h.Points), uint64(width*height)
			nibbles := (n+1)/2*2 + n
			return pixels/255 + nibbles, pixels + pixels/255 + 1 + nibbles + 9*n
		},
		planes: func(dst []byte, f *Frame, ph phase) ([]byte, int) { return gridPlanes(dst, &f.Grid, ph) },
		undo:   func(raw []byte, points int, f *Frame, ph phase) bool { return planesToGrid(raw, points, &f.Grid, ph) },
	},
	LayoutPoints: {
		letter: "B", bytesPerPoint: 3,
		rawBounds: func(h Header) (least, most uint64) {
			n := uint64(h.Points)
			nibbles := (n+1)/2*4 + n
			return nibbles, nibbles + 15*n
		},
		planes: func(dst []byte, f *Frame, ph phase) ([]byte, int) { return pointPlanes(dst, &f.Points, ph) },
		undo:   func(raw []byte, _ int, f *Frame, _ phase) bool { return planesToPoints(raw, &f.Points) },
	},
	LayoutInterleaved: {
		letter: "C", bytesPerPoint: 9,
		rawBounds: func(h Header) (least, most uint64) { return 9 * uint64(h.Points), 9 * uint64(h.Points) },
		planes:    func(dst []byte, f *Frame, ph phase) ([]byte, int) { return interleave(dst, &f.Points, ph) },
		undo:      func(raw []byte, _ int, f *Frame, _ phase) bool { return deinterleave(raw, &f.Points) },
	},
}

// Layouts returns all layouts in the specification's order.
func Layouts() []Layout {
	var all []Layout
	for l := range layouts {
		if Layout(l).known() {
			all = append(all, Layout(l))
		}
	}
	return all
}

// ParseLayout parses a layout's letter, ignoring case. It returns false if the letter is unknown.
func ParseLayout(letter string) (Layout, bool) {
	for _, l := range Layouts() {
		if strings.EqualFold(letter, layouts[l].letter) {
			return l, true
		}
	}
	return 0, false
}

func (l Layout) known() bool { return int(l) < len(layouts) && layouts[l].letter != "" }

// String returns the layout's letter in the specification.
func (l Layout) String() string {
	if !l.known() {
		return fmt.Sprintf("layout %d", uint8(l))
	}
	return layouts[l].letter
}

// OnGrid reports whether frames are pixels of a sensor's grid, converted to points by their rays.
// Otherwise frames hold points in camera space.
func (l Layout) OnGrid() bool { return l.known() && layouts[l].onGrid }

// BytesPerPoint estimates the maximum compressed size of a point in real scenes, in bytes.
func (l Layout) BytesPerPoint() float64 {
	if !l.known() {
		return 0
	}
	return layouts[l].bytesPerPoint
}
