// Package synthetic simulates a studio: a performer who steps, turns, waves and claps, heard by a
// microphone and seen by any number of sensors with an Azure Kinect's modes, lens models, calibration
// documents and noise. The figure is a signed-distance model, meshed for each frame of a loop and drawn
// through both lens models of each sensor.
//
// The loop is rendered on all processors when the studio opens, as rendering during playback would
// slow the pipeline under test. Playback costs only memory, about 0.9 MB per frame and camera.
// Equal options yield identical bytes.
package synthetic

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"holocast/capture-server/source"
	"holocast/capture-server/source/pace"
	"holocast/internal/camera"
	"holocast/internal/mjpeg"
)

// Options configures the studio. The zero value means one camera in NFOV unbinned and 720p modes at
// 30 frames per second.
type Options struct {
	Cameras int              // 1 to 8, evenly around the performer; 0 means 1
	Depth   camera.DepthMode // "" is NFOVUnbinned
	Color   camera.ColorMode // "" is Color720P
	FPS     float64          // 0 means 30
	Frames  int              // length of the loop, 1 to 900; 0 means 3 seconds
	Cut     int              // play only the loop's first frames; 0 means all
	Seed    uint64           // seed of sensor noise
	Room    bool             // a room with walls instead of a round stage with a curtain

	// Progress, if set, is called after each rendered frame, by one goroutine at a time.
	Progress func(done, total int)

	// Exact, if set, receives each frame's depth before the sensor's noise, in metres, 0 = no surface,
	// and its colour as JPEG. It is called from several goroutines, with frames in any order, and
	// may keep both slices.
	Exact func(camera, frame int, depth []float32, color []byte)
}

// Studio is an open studio.
type Studio struct {
	Cameras []source.Source
	// Poses are the depth cameras' poses in studio space, in millimetres, by camera name. The
	// origin is on the floor below the performer, y points up, and z points towards the first
	// camera.
	Poses map[string]camera.Transform
}

const (
	loopSeconds = 3
	maxFrames   = 900
	maxCameras  = 8
	quality     = 90 // JPEG quality

	// Camera positions, in millimetres; see around.
	distance = 2050
	height   = 1350
	target   = 740
)

// Open renders a studio's loop. It returns ctx.Err() if ctx is done first.
func Open(ctx context.Context, opts Options) (*Studio, error) {
	opts.Cameras = cmp.Or(opts.Cameras, 1)
	opts.Depth = cmp.Or(opts.Depth, camera.NFOVUnbinned)
	opts.Color = cmp.Or(opts.Color, camera.Color720P)
	opts.FPS = cmp.Or(opts.FPS, 30)
	clock, err := pace.NewClock(opts.FPS)
	if err != nil {
		return nil, fmt.Errorf("synthetic: %w", err)
	}
	opts.Frames = cmp.Or(opts.Frames, min(maxFrames, int(loopSeconds*opts.FPS+0.5)))
	switch {
	case opts.Cameras < 1 || opts.Cameras > maxCameras:
		return nil, fmt.Errorf("synthetic: cameras is %d, want 1 to %d", opts.Cameras, maxCameras)
	case opts.Frames < 1 || opts.Frames > maxFrames:
		return nil, fmt.Errorf("synthetic: loop has %d frames, want 1 to %d", opts.Frames, maxFrames)
	case opts.Cut < 0 || opts.Cut > opts.Frames:
		return nil, fmt.Errorf("synthetic: cut after %d frames, want at most the loop's %d", opts.Cut, opts.Frames)
	}
	opts.Cut = cmp.Or(opts.Cut, opts.Frames)

	studio := &Studio{Poses: make(map[string]camera.Transform)}
	sound := newSound(clock, opts.Frames)
	sensors := make([]*sensor, opts.Cameras)
	cal, err := Calibration(0, opts.Depth, opts.Color)
	if err != nil {
		return nil, fmt.Errorf("synthetic: %w", err)
	}
	rays := [2]camera.RayTable{cal.Depth.RayTable(), cal.Color.RayTable()} // equal for all cameras
	for i := range sensors {
		s, err := newSensor(i, opts, rays)
		if err != nil {
			return nil, fmt.Errorf("synthetic: %w", err)
		}
		s.pace.Clock, s.sound = clock, sound
		sensors[i] = s
		studio.Cameras = append(studio.Cameras, s)
		studio.Poses[s.name] = s.pose
	}
	if err := render(ctx, sensors, opts); err != nil {
		return nil, fmt.Errorf("synthetic: %w", err)
	}
	return studio, nil
}

// sensor is one camera with its rendered loop.
type sensor struct {
	name   string
	cal    camera.Calibration
	pose   camera.Transform
	views  [2]*view // background views of depth and colour; nil once the loop is rendered
	frames []frame
	pace   pace.Camera
	sound  *Sound
}

type frame struct {
	depth []uint16
	color []byte
}

func newSensor(i int, opts Options, rays [2]camera.RayTable) (*sensor, error) {
	cal, err := Calibration(i, opts.Depth, opts.Color)
	if err != nil {
		return nil, err
	}
	pose := around(i, opts.Cameras, distance, height, target)
	colorPose := pose.Compose(cal.DepthToColor.Inverse())
	return &sensor{
		name: fmt.Sprintf("synthetic-%d", i),
		cal:  cal,
		pose: pose,
		views: [2]*view{
			newView(cal.Depth, rays[0], pose, opts.Room, false),
			newView(cal.Color, rays[1], colorPose, opts.Room, true),
		},
		frames: make([]frame, opts.Cut),
	}, nil
}

// render draws the loop of every sensor, frames in parallel.
func render(ctx context.Context, sensors []*sensor, opts Options) error {
	rest := body()
	next := make(chan int)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(next)
		for k := range opts.Cut {
			select {
			case next <- k:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	var mu sync.Mutex
	done := 0
	for range min(runtime.GOMAXPROCS(0), opts.Cut) {
		g.Go(func() error {
			encoder, err := mjpeg.NewEncoder()
			if err != nil {
				return err
			}
			defer encoder.Close()
			m, c := newMesher(), new(canvas)
			for k := range next {
				m.mesh(newFigure(rest, float64(k)/float64(opts.Frames)))
				for i, s := range sensors {
					exact, err := s.draw(k, c, m, encoder, rand.NewPCG(opts.Seed, uint64(k)<<8|uint64(i)), opts.Exact != nil)
					if err != nil {
						return err
					}
					if opts.Exact != nil {
						opts.Exact(i, k, exact, s.frames[k].color)
					}
				}
				if opts.Progress != nil {
					mu.Lock()
					done++
					opts.Progress(done, opts.Cut)
					mu.Unlock()
				}
			}
			return nil
		})
	}
	err := g.Wait()
	for _, s := range sensors {
		s.views = [2]*view{}
	}
	return err
}

// draw renders frame k. It returns the exact depth if keep is set.
func (s *sensor) draw(k int, c *canvas, m *mesher, encoder *mjpeg.Encoder, rng *rand.PCG, keep bool) (exact []float32,
	err error,
) {
	f := frame{depth: make([]uint16, s.cal.Depth.Width*s.cal.Depth.Height)}
	s.views[0].draw(c, m)
	s.views[0].sense(c, rng, f.depth)
	if keep {
		exact = slices.Clone(c.depth[:len(f.depth)])
	}
	s.views[1].draw(c, m)
	jpeg, err := encoder.EncodeRGB(nil, c.rgb, s.cal.Color.Width, s.cal.Color.Height, quality)
	if err != nil {
		return nil, err
	}
	f.color = append(f.color, jpeg...) // copy at the exact size, since encoding needs a far larger buffer
	s.frames[k] = f
	return exact, nil
}

// Name implements source.Source. The first camera is called "synthetic-0".
func (s *sensor) Name() string { return s.name }

// Calibration returns the invented factory calibration for the modes.
func (s *sensor) Calibration() camera.Calibration { return s.cal }

// FPS returns the playback rate.
func (s *sensor) FPS() float64 { return s.pace.Clock.FPS() }

// Dropped counts frames overdue when Next was called.
func (s *sensor) Dropped() int64 { return s.pace.Dropped() }

// Next waits for the next frame of the endless loop.
func (s *sensor) Next(ctx context.Context, f *source.Frame) error {
	k, due, err := s.pace.Wait(ctx)
	if err != nil {
		return err
	}
	at := &s.frames[k%int64(len(s.frames))]
	*f = source.Frame{
		Depth:       at.depth,
		Color:       at.color,
		Format:      camera.MJPG,
		DeviceTime:  s.pace.Clock.Offset(k),
		CaptureTime: due,
	}
	return nil
}

// Close implements source.Source.
func (s *sensor) Close() error { return nil }
