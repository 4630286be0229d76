package calibrate

import (
	"context"
	"errors"
	"fmt"
	"image"

	"holocast/capture-server/source"
	"holocast/capture-server/source/livescanfiles"
	"holocast/internal/camera"
	"holocast/internal/mjpeg"
)

// boxWidth is the width in millimetres of LiveScan3D's box for markers printed on A4.
const boxWidth = 210

// Livescan solves the poses of a recorded studio (package livescanfiles) from its first frame. box
// is LiveScan3D's file of marker poses or the width of a four-sided box in millimetres. If box is
// "", Livescan uses the marker file in dir, or else a width of 210 mm. It returns poses by camera
// name, the residual, and notes on the marker file. It uses the largest recorded colour images,
// where markers are most legible.
func Livescan(ctx context.Context, dir, box string) (map[string]camera.Transform, Residual, []string, error) {
	choice, err := findBox(dir, box)
	if err != nil {
		return nil, Residual{}, nil, err
	}
	views, err := firstViews(ctx, dir)
	if err != nil {
		return nil, Residual{}, nil, err
	}
	poses, residual, err := solveAny(ctx, views, choice)
	if err != nil {
		return nil, Residual{}, nil, err
	}
	byName := make(map[string]camera.Transform, len(views))
	for i, v := range views {
		byName[v.Name] = poses[i]
	}
	return byName, residual, choice.notes, nil
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
		views = append(views, View{
			Name: c.Name(), Calibration: c.Calibration(), Depth: f.Depth,
			Gray: &image.Gray{Pix: img.Y, Stride: img.YStride, Rect: img.Rect},
		})
	}
	return views, nil
}
