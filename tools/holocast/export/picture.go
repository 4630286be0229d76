package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"holocast/internal/pointcloud"
	"holocast/internal/render"
)

// View is the viewer of a picture or a film.
type View struct {
	Look               render.Look
	Width, Height      int         // pixels
	Azimuth, Elevation float64     // degrees
	Distance           float64     // from the target, millimetres; 0 fits the picture
	Target             *[3]float64 // millimetres in studio coordinates; nil is the middle of the points
}

// options returns the renderer's options for a view of a shot.
func (v View) options(shot render.Shot) (render.Options, error) {
	o := render.Options{Width: v.Width, Height: v.Height, Azimuth: v.Azimuth, Elevation: v.Elevation}
	if v.Distance == 0 && v.Target == nil {
		return o, nil
	}
	clouds, _ := shot.Clouds()
	orbit, err := v.orbit(clouds, shot.YUp())
	o.Eye = orbit.Eye(v.Azimuth, v.Elevation)
	return o, err
}

// orbit returns the viewers' distance and target. It fits missing ones to the clouds.
func (v View) orbit(clouds []pointcloud.Points, yUp bool) (render.Orbit, error) {
	orbit, err := render.Around(clouds, yUp, v.Elevation, float64(v.Width)/float64(v.Height))
	if v.Distance != 0 {
		orbit.Distance = v.Distance
	}
	if v.Target != nil {
		orbit.Center = *v.Target
	}
	return orbit, err
}

// Still is the exported frame.
type Still struct {
	At      time.Duration // after the first frame
	Cameras int
}

// PNG draws the frame captured at a time after the first frame, or later. A negative time is the first frame with all
// cameras.
func PNG(ctx context.Context, path, out string, at time.Duration, v View, cfg Config) (Still, error) {
	return still(ctx, path, out, at, cfg, false, func(w io.Writer, shot render.Shot) error {
		o, err := v.options(shot)
		if err != nil {
			return err
		}
		img, err := shot.Draw(o, v.Look)
		if err != nil {
			return err
		}
		return render.PNG(w, img)
	})
}

// GLB writes the surfaces of a frame, chosen as by PNG.
func GLB(ctx context.Context, path, out string, at time.Duration, cfg Config) (Still, error) {
	return still(ctx, path, out, at, cfg, true, WriteGLB)
}

func still(
	ctx context.Context, path, out string, at time.Duration, cfg Config, onGrid bool,
	write func(io.Writer, render.Shot) error,
) (result Still, err error) {
	if err := UnusedFile(path, out, cfg.Force); err != nil {
		return result, err
	}
	x, err := open(path, cfg)
	if err != nil {
		return result, err
	}
	defer func() { _ = x.close() }() // read-only
	if onGrid {
		if err := x.onGrid(); err != nil {
			return result, err
		}
	}
	result.At, err = x.shotAt(ctx, at, func(shot render.Shot) error {
		result.Cameras = len(shot)
		return create(out, func(f *os.File) error { return write(f, shot) })
	})
	if err != nil {
		return result, fmt.Errorf("recording %s: %w", path, err)
	}
	return result, nil
}

// errFound ends reading.
var errFound = errors.New("found")

// shotAt calls use for one frame and returns its time after the first frame (PNG).
func (x *reader) shotAt(
	ctx context.Context, at time.Duration, use func(render.Shot) error,
) (found time.Duration, err error) {
	const patience = 5 * time.Second // for all cameras to begin
	var start, last uint64
	var best render.Shot
	since := func(t uint64) time.Duration { return time.Duration(t-min(start, t)) * time.Microsecond }
	wanted := func(t uint64) bool {
		if start == 0 {
			start = t
		}
		last = max(last, t)
		return since(t) >= at
	}
	err = x.merged(ctx, wanted, func(t uint64, shot render.Shot) error {
		if len(shot) > len(best) {
			best, found = shot.Clone(), since(t)
		}
		if len(best) > 0 && (at >= 0 || len(best) == len(x.chosen) || since(t) > patience) {
			return errFound
		}
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, errFound):
		return 0, err
	case len(best) > 0:
		return found, use(best)
	case start == 0 || x.result.Damaged > 0:
		return 0, errors.New("it has no intact frame of the cameras")
	}
	return 0, fmt.Errorf("no frame at %v; the last one is at %v", at, since(last))
}
