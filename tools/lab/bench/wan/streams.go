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
}

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

// streams encodes the performer in layout A, and in layout W at the finest quantizers that fit the
// share of the home connection's rate.
func streams(ctx context.Context, from []*sequence, frames int, log io.Writer) (list []stream, err error) {
	frames -= frames % group // the loop ends with a group
	for qp := leastQP; ; qp += 2 {
		s := stream{contender: layoutW, group: group}
		for i, camera := range from {
			c, err := newVideoCoder(camera.rays.Width, camera.rays.Height, qp, qp+2)
			if err != nil {
				return nil, err
			}
			objects, err := encodeLoop(ctx, camera, c, frames, i)
			if err != nil {
				return nil, err
			}
			s.objects = append(s.objects, objects)
		}
		fmt.Fprintf(log, "layout W, quantizers %d and %d: %.1f Mbit/s of four cameras\n", qp, qp+2, s.mbps())
		if s.mbps() <= share*homeRate || qp >= coarseQP {
			list = append(list, s)
			break
		}
	}
	a := stream{contender: layoutA, group: 1}
	for i, camera := range from {
		c, err := newFrameCoder(pointcloud.LayoutGrid, 0, &camera.rays)
		if err != nil {
			return nil, err
		}
		objects, err := encodeLoop(ctx, camera, c, frames, i)
		if err != nil {
			return nil, err
		}
		a.objects = append(a.objects, objects)
	}
	return append(list, a), nil
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
