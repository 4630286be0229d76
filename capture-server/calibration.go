package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"holocast/capture-server/calibrate"
	"holocast/capture-server/points"
	"holocast/internal/camera"
	"holocast/internal/config"
)

// Values of the setting calibration that are no file.
const (
	calibrationAuto = "auto"
	calibrationNone = "none"
)

// poseFile is a file of camera poses.
type poseFile struct {
	Cameras map[string]struct {
		// Rotation is the 3×3 matrix, row after row, and Translation the millimetres
		// that take the depth camera's space to the studio's.
		Rotation    []float64 `yaml:"rotation"`
		Translation []float64 `yaml:"translation"`
	} `yaml:"cameras"`
}

// poses are those of a calibration file.
type poses struct {
	path   string
	byName map[string]camera.Transform
}

// maxPoseFile bounds a calibration file, bytes.
const maxPoseFile = 1 << 20

// loadPoses reads the calibration file that the setting names, if any.
func loadPoses(setting string) (*poses, error) {
	if setting == "" || setting == calibrationAuto || setting == calibrationNone {
		return nil, nil
	}
	f, err := os.Open(setting)
	if err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	defer f.Close()
	var file poseFile
	b, err := io.ReadAll(io.LimitReader(f, maxPoseFile))
	if err != nil {
		return nil, fmt.Errorf("calibration %s: %w", setting, err)
	}
	if err := config.Decode(setting, b, &file); err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	p := &poses{path: setting, byName: map[string]camera.Transform{}}
	for name, c := range file.Cameras {
		if len(c.Rotation) != 9 || len(c.Translation) != 3 {
			return nil, fmt.Errorf("calibration %s: camera %s has %d numbers of rotation and %d of translation, want 9 and 3",
				setting, name, len(c.Rotation), len(c.Translation))
		}
		t := camera.Transform{R: [9]float64(c.Rotation), T: [3]float64(c.Translation)}
		if err := t.Validate(); err != nil {
			return nil, fmt.Errorf("calibration %s: camera %s: %w", setting, name, err)
		}
		p.byName[name] = t
	}
	return p, nil
}

// apply gives the cameras their poses. Every camera must have one.
func (p *poses) apply(cameras []points.Camera) error {
	if p == nil {
		return nil
	}
	for i, c := range cameras {
		pose, ok := p.byName[c.Source.Name()]
		if !ok {
			var have []string
			for name := range p.byName {
				have = append(have, name)
			}
			slices.Sort(have)
			return fmt.Errorf("calibration %s has no camera %s, only %s", p.path, c.Source.Name(), strings.Join(have, ", "))
		}
		cameras[i].Pose = pose
	}
	return nil
}

// solvePoses finds where a studio's cameras stand from the markers they see. Without
// markers the cameras stay at the studio's origin, and the log says so.
func (o *opener) solvePoses(ctx context.Context, dir string, cameras []points.Camera) {
	solved, residual, err := calibrate.Livescan(ctx, dir)
	if err != nil {
		o.log.Warn("no poses found, so every camera is at the origin; set calibration to a file of poses", "err", err)
		return
	}
	for i, c := range cameras {
		cameras[i].Pose = solved[c.Source.Name()]
	}
	o.log.Info("cameras calibrated", "cameras", len(solved), "surface_distance_mm", fmt.Sprintf("%.1f", residual.Median), "pairs", residual.Pairs)
}
