package wan

import (
	"context"
	"fmt"
	"io"

	"holocast/internal/pointcloud"
)

// stream is what four cameras send: a loop of objects for each, whose groups have the same number of
// frames.
type stream struct {
	contender string
	objects   [][][]byte // by camera and frame
	group     int        // frames
	stagger   int        // frames from a camera's key frame back to the next camera's
	qp        int        // quantizer of layout W's depth

	live func(camera, k int) []byte // encodes a frame; nil: objects repeat
}

// object returns a camera's frame k, which counts from a key frame.
func (s stream) object(camera, k int) []byte {
	if s.live != nil {
		return s.live(camera, k)
	}
	objects := s.objects[camera]
	return objects[k%len(objects)]
}

// layoutWStaggered is layout W whose cameras send key frames at different times.
const layoutWStaggered = "W, staggered key frames"

// mbps returns the bit rate of all cameras.
func (s stream) mbps() float64 {
	bytes, frames := 0, 0
	for _, objects := range s.objects {
		frames = len(objects)
		for _, o := range objects {
			bytes += len(o)
		}
	}
	return mbps(bytes, frames)
}

// streams encodes the performer in layout W, at the finest quantizers that fit the share of the home
// connection's rate, and in layout A.
func streams(ctx context.Context, from []*sequence, frames int, log io.Writer) (list []stream, err error) {
	frames -= frames % group // the loop ends with a group
	video := stream{contender: layoutW, group: group}
	for qp := leastQP; ; qp += 2 {
		one := video
		if err := one.encode(ctx, from[:1], frames, videoAt(qp)); err != nil {
			return nil, err
		}
		if four := one.mbps() * cameras; four > share*homeRate && qp < coarseQP {
			continue
		}
		fmt.Fprintf(log, "layout W with quantizers %d and %d\n", qp, qp+2)
		video.qp = qp
		if err := video.encode(ctx, from, frames, videoAt(qp)); err != nil {
			return nil, err
		}
		break
	}
	staggered := video
	staggered.contender, staggered.stagger = layoutWStaggered, group/cameras
	a := stream{contender: layoutA, group: 1}
	err = a.encode(ctx, from, frames, func(s *sequence) (coder, error) {
		return newFrameCoder(pointcloud.LayoutGrid, 0, &s.rays)
	})
	return []stream{video, staggered, a}, err
}

func videoAt(qp int) func(s *sequence) (coder, error) {
	return func(s *sequence) (coder, error) { return newVideoCoder(s.rays.Width, s.rays.Height, qp, qp+2) }
}

// encode encodes each camera's frames.
func (s *stream) encode(ctx context.Context, from []*sequence, frames int, open func(*sequence) (coder, error)) error {
	for i, camera := range from {
		c, err := open(camera)
		if err != nil {
			return err
		}
		objects, err := encodeLoop(ctx, camera, c, frames, i)
		if err != nil {
			return err
		}
		s.objects = append(s.objects, objects)
	}
	return nil
}

// encodeLoop encodes a camera's frames and closes c.
func encodeLoop(ctx context.Context, s *sequence, c coder, frames, seed int) (objects [][]byte, err error) {
	defer c.close()
	s.restart(uint64(seed))
	var g pointcloud.Grid
	for k := range frames {
		if _, err := s.capture(k, &g); err != nil {
			return nil, err
		}
		o, err := c.encode(nil, &g)
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return objects, nil
}
