package calibrate

import (
	"context"
	"errors"
	"fmt"
	"image"
	"slices"

	"holocast/capture-server/depthmap"
	"holocast/capture-server/source"
	"holocast/capture-server/source/livescanfiles"
	"holocast/internal/camera"
	"holocast/internal/mjpeg"
	"holocast/internal/pointcloud"
)

// boxWidth is the width in millimetres of LiveScan3D's box for markers printed on A4.
const boxWidth = 210

// Studio holds the solved positions and colors of a studio's cameras. Maps are keyed by camera name.
type Studio struct {
	Poses    map[string]camera.Transform // from depth camera space to studio space
	Gains    map[string]depthmap.Gain
	Residual Residual
	Colors   ColorResidual
	Notes    []string // mistakes in the file of marker poses
}

// Livescan solves the poses of a recorded studio (package livescanfiles) from its first frame, and
// matches its cameras' colours. box is LiveScan3D's file of marker poses or the width of a four-sided
// box in millimetres. If box is "", Livescan uses the marker file in dir, or else a width of 210 mm.
// It uses the largest recorded colour images, where markers are most legible.
func Livescan(ctx context.Context, dir, box string) (Studio, error) {
	choice, err := findBox(dir, box)
	if err != nil {
		return Studio{}, err
	}
	views, err := firstViews(ctx, dir)
	if err != nil {
		return Studio{}, err
	}
	poses, residual, err := solveAny(ctx, views, choice)
	if err != nil {
		return Studio{}, err
	}
	s := studioOf(views, poses)
	s.Residual, s.Notes = residual, choice.notes
	return s, nil
}

// LivescanColors matches the colours of a recorded studio's cameras whose poses are known, by camera
// name, from its first frame. It omits cameras without a pose.
func LivescanColors(ctx context.Context, dir string, known map[string]camera.Transform) (Studio, error) {
	views, err := firstViews(ctx, dir)
	if err != nil {
		return Studio{}, err
	}
	views = slices.DeleteFunc(views, func(v View) bool { _, ok := known[v.Name]; return !ok })
	poses := make([]camera.Transform, len(views))
	for i, v := range views {
		poses[i] = known[v.Name]
	}
	return studioOf(views, poses), nil
}

// studioOf matches the colours of views with solved poses.
func studioOf(views []View, poses []camera.Transform) Studio {
	s := Studio{Poses: map[string]camera.Transform{}, Gains: map[string]depthmap.Gain{}}
	var gains []depthmap.Gain
	gains, s.Colors = MatchColors(views, poses)
	for i, v := range views {
		s.Poses[v.Name], s.Gains[v.Name] = poses[i], gains[i]
	}
	return s
}

func firstViews(ctx context.Context, dir string) ([]View, error) {
	var cameras []source.Source
	var err error
	for _, depth := range []camera.DepthMode{camera.NFOVUnbinned, camera.WFOV2x2Binned} {
		for _, color := range []camera.ColorMode{camera.Color1080P, camera.Color720P} {
			cameras, err = livescanfiles.Open(dir, livescanfiles.Options{Depth: depth, Color: color, Frames: 1})
			if err == nil {
				return toViews(ctx, cameras)
			}
			if !errors.Is(err, livescanfiles.ErrMode) {
				return nil, fmt.Errorf("calibrate: %w", err)
			}
		}
	}
	return nil, fmt.Errorf("calibrate: %w", err)
}

func toViews(ctx context.Context, cameras []source.Source) ([]View, error) {
	d, err := mjpeg.NewDecoder()
	if err != nil {
		return nil, fmt.Errorf("calibrate: %w", err)
	}
	defer d.Close()
	var views []View
	for _, c := range cameras {
		var f source.Frame
		if err := c.Next(ctx, &f); err != nil {
			return nil, fmt.Errorf("calibrate: camera %s: %w", c.Name(), err)
		}
		var img image.YCbCr
		if err := d.DecodeYCbCr(&img, f.Color, 1); err != nil {
			return nil, fmt.Errorf("calibrate: camera %s: %w", c.Name(), err)
		}
		colors, err := colorsOf(c.Calibration(), &f)
		if err != nil {
			return nil, fmt.Errorf("calibrate: camera %s: %w", c.Name(), err)
		}
		views = append(views, View{
			Name: c.Name(), Calibration: c.Calibration(), Depth: f.Depth,
			Gray: &image.Gray{Pix: img.Y, Stride: img.YStride, Rect: img.Rect}, Color: colors,
		})
	}
	return views, nil
}

// colorsOf returns the colours of a frame's depth pixels, as in View.
func colorsOf(cal camera.Calibration, f *source.Frame) ([]byte, error) {
	m, err := depthmap.New(cal, depthmap.Config{})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	var g pointcloud.Grid
	if err := m.Map(f, &g); err != nil {
		return nil, err
	}
	for i, z := range g.Depth {
		if z == 0 {
			clear(g.Color[3*i : 3*i+3])
		}
	}
	return g.Color, nil
}
