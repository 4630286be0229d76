package pointcloud

import (
	"cmp"
	"fmt"
	"strings"
)

// Layout is the format of a frame's planes.
type Layout uint8

// The layouts of docs/spec/point-cloud-frame.md and docs/spec/video-frame.md.
const (
	LayoutGrid        Layout = 1 // A: one sensor's pixel grid
	LayoutPoints      Layout = 2 // B: unorganised points, planar deltas
	LayoutInterleaved Layout = 3 // C: LiveScan3D's records, 3×int16 and 3×uint8
	LayoutVideo       Layout = 4 // W: one sensor's pixel grid in video; package pointvideo codes it
)

// layout defines one layout. kernels.c has a table with the kernels of each.
type layout struct {
	letter        string
	onGrid        bool
	codec         Codec // 0 is CodecZstd
	bytesPerPoint float64
	// rawBounds returns the minimum and maximum length of the planes for a header.
	rawBounds func(h Header) (least, most uint64)
	// planes appends the planes of ph's share of f to dst. undo reverses it into ph's share of an
	// empty grid, or into a cloud of exactly that many points, and returns false if raw is invalid.
	// Both implement the specification in plain Go. They are nil for LayoutVideo.
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
	LayoutVideo: {
		letter: "W", onGrid: true, codec: CodecVideo, bytesPerPoint: 0.05,
		rawBounds: func(h Header) (least, most uint64) { return 1, 3*uint64(h.Width)*uint64(h.Height) + 1 },
	},
}

// Layouts returns the layouts whose frames share no state, in the specification's order: all but
// LayoutVideo.
func Layouts() []Layout {
	var all []Layout
	for l := range layouts {
		if layouts[l].planes != nil {
			all = append(all, Layout(l))
		}
	}
	return all
}

// ParseLayout parses a layout's letter, ignoring case. It returns false if the letter is unknown.
func ParseLayout(letter string) (Layout, bool) {
	for l := range layouts {
		if Layout(l).known() && strings.EqualFold(letter, layouts[l].letter) {
			return Layout(l), true
		}
	}
	return 0, false
}

func (l Layout) known() bool { return int(l) < len(layouts) && layouts[l].letter != "" }

func (l Layout) codec() Codec { return cmp.Or(layouts[l].codec, CodecZstd) }

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
