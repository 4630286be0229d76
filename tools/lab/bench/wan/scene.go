package wan

import (
	"context"
	"errors"
	"io/fs"
	"math"

	"holocast/capture-server/depthmap"
	"holocast/capture-server/source"
	"holocast/capture-server/source/synthetic"
	"holocast/internal/camera"
	"holocast/internal/pointcloud"
	"holocast/internal/pointcloud/frametest"
)

const (
	fps     = 30
	cameras = 4
	loop    = 3 * fps // frames of the performer's loop
)

// sequence is a camera's view of a scene whose exact depth is known.
type sequence struct {
	cal   camera.Calibration // of a synthetic camera
	rays  camera.RayTable
	pose  camera.Transform
	exact [][]uint16 // by frame, in units of tenth, 0 = no surface; one for a static scene
	jpeg  [][]byte   // by frame, likewise
	color []byte     // on the depth grid, instead of jpeg

	mapper *depthmap.Mapper
	sensor *sensor
	absent []float32 // of a static scene
	depth  []uint16
}

// capture reads the next frame with the sensor's jitter into g, and returns its exact depth. Frames
// are captured in order.
func (s *sequence) capture(k int, g *pointcloud.Grid) (exact []uint16, err error) {
	at := k % len(s.exact)
	exact = s.exact[at]
	if s.absent == nil || len(s.exact) > 1 {
		s.absent = flicker(exact, s.sensor.width)
	}
	s.sensor.sense(s.depth, exact, s.absent)
	if err := s.paint(at, s.depth, g); err != nil {
		return nil, err
	}
	s.sensor.tint(g)
	return exact, nil
}

// paint writes depth with the colour of a frame to g.
func (s *sequence) paint(at int, depth []uint16, g *pointcloud.Grid) error {
	if s.mapper == nil {
		g.Width, g.Height = s.sensor.width, s.sensor.height
		g.Depth, g.Color = append(g.Depth[:0], depth...), append(g.Color[:0], s.color...)
		return nil
	}
	return s.mapper.Map(&source.Frame{Depth: depth, Color: s.jpeg[at], Format: camera.MJPG}, g)
}

// restart makes the sequence repeat from its first frame with the same jitter.
func (s *sequence) restart(seed uint64) {
	s.sensor = newSensor(s.rays.Width, s.rays.Height, seed)
}

func (s *sequence) close() {
	if s.mapper != nil {
		s.mapper.Close()
	}
}

// performer renders the synthetic performer in a room, seen by four cameras.
func performer(ctx context.Context, frames int) ([]*sequence, error) {
	list := make([]*sequence, cameras)
	for i := range list {
		list[i] = &sequence{exact: make([][]uint16, frames), jpeg: make([][]byte, frames)}
	}
	studio, err := synthetic.Open(ctx, synthetic.Options{
		Cameras: cameras, Frames: loop, Cut: frames, Room: true,
		Exact: func(c, k int, depth []float32, color []byte) {
			list[c].exact[k], list[c].jpeg[k] = tenths(depth), color
		},
	})
	if err != nil {
		return nil, err
	}
	for i, s := range list {
		from := studio.Cameras[i]
		s.cal, s.pose = from.Calibration(), studio.Poses[from.Name()]
		if s.mapper, err = depthmap.New(s.cal, depthmap.Config{}); err != nil {
			return nil, err
		}
		s.prepare(s.cal.Depth.RayTable())
	}
	return list, nil
}

func (s *sequence) prepare(rays camera.RayTable) {
	s.rays, s.depth = rays, make([]uint16, len(rays.X))
	s.restart(0)
}

// tenths converts depth from metres. Readings beyond the sensor's range are missing.
func tenths(depth []float32) []uint16 {
	const nearest, farthest = 0.25, 5.46 // metres, NFOV unbinned
	out := make([]uint16, len(depth))
	for i, z := range depth {
		if z >= nearest && z <= farthest {
			out[i] = uint16(math.Round(float64(z) * 1000 / tenth))
		}
	}
	return out
}

// ideal writes frame k as a camera without jitter would capture it.
func (s *sequence) ideal(k int, g *pointcloud.Grid) error {
	at := k % len(s.exact)
	depth := make([]uint16, len(s.depth))
	for i, e := range s.exact[at] {
		depth[i] = uint16(math.Round(float64(e) * tenth))
	}
	return s.paint(at, depth, g)
}

// still returns a camera's first frame as a static scene.
func (s *sequence) still() (*sequence, error) {
	t := &sequence{cal: s.cal, pose: s.pose, exact: s.exact[:1], jpeg: s.jpeg[:1]}
	var err error
	if t.mapper, err = depthmap.New(t.cal, depthmap.Config{}); err != nil {
		return nil, err
	}
	t.prepare(s.rays)
	return t, nil
}

// recorded returns a recorded frame of each real camera as a static scene whose readings count as
// exact, or none if the recordings are missing.
func recorded(dir string) ([]*sequence, error) {
	frames, err := frametest.Load(dir, 1)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []*sequence
	for i := range frames {
		g := &frames[i].NFOV.Grid
		exact := make([]uint16, len(g.Depth))
		for k, d := range g.Depth {
			if d <= math.MaxUint16/10 {
				exact[k] = 10 * d
			}
		}
		s := &sequence{exact: [][]uint16{exact}, color: g.Color, pose: camera.Identity}
		s.prepare(frames[i].Rays)
		list = append(list, s)
	}
	return list, nil
}
