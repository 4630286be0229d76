package export

import (
	"slices"

	"holocast/internal/pointcloud"
	"holocast/internal/pointvideo"
)

// video decodes a track in layout W in recording order, since its frames depend on each other.
type video struct {
	decoder *pointvideo.Decoder
	index   int // of the last frame
	grid    pointcloud.Grid
}

// take decodes an object into a frame. late reports an object of an earlier group, or a duplicate.
func (v *video) take(s *stream, group uint64, h pointcloud.Header, object []byte) (f *frame, late bool) {
	_, index, err := pointvideo.ParseHeader(object)
	if err == nil && s.some && (group < s.last || group == s.last && index <= v.index) {
		return nil, true
	}
	v.index = index
	f = &frame{group: group, header: h, objects: [][]byte{object}, decoded: true, err: err}
	if err != nil {
		return f, false
	}
	if _, f.err = v.decoder.Decode(&v.grid, object); f.err == nil {
		f.grid = pointcloud.Grid{
			Width: v.grid.Width, Height: v.grid.Height, Depth: slices.Clone(v.grid.Depth), Color: slices.Clone(v.grid.Color),
		}
	}
	return f, false
}

// decode decodes a frame into s.frame.
func (s *stream) decode(f *frame) (pointcloud.Header, error) {
	if !f.decoded {
		return s.decoder.Decode(&s.frame, f.objects...)
	}
	s.frame.Layout, s.frame.Grid = pointcloud.LayoutVideo, f.grid
	return f.header, f.err
}
