package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"holocast/capture-server/calibrate"
	"holocast/capture-server/points"
	"holocast/internal/camera"
	"holocast/internal/config"
)

// Values of the setting calibration that are not file names.
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
	all, err := p.of(cameraNames(cameras))
	for i, pose := range all {
		cameras[i].Pose = pose
	}
	return err
}

// of returns the poses of the cameras with names, by their numbers. Every camera must have one.
func (p *poses) of(names []string) (map[int]camera.Transform, error) {
	all := map[int]camera.Transform{}
	for i, name := range names {
		pose, ok := p.byName[name]
		if !ok {
			var have []string
			for name := range p.byName {
				have = append(have, name)
			}
			slices.Sort(have)
			return nil, fmt.Errorf("calibration %s has no camera %s, only %s", p.path, name, strings.Join(have, ", "))
		}
		all[i] = pose
	}
	return all, nil
}

// unplacedStudio is a livescan source whose cameras' poses are to be solved.
type unplacedStudio struct {
	dir     string
	numbers map[string]int // of the cameras in the session, by their names in dir
}

// newUnplaced is the studio in dir, its cameras numbered from first on and still named
// after their directories.
func newUnplaced(dir string, first int, cameras []points.Camera) unplacedStudio {
	s := unplacedStudio{dir: dir, numbers: map[string]int{}}
	for i, c := range cameras {
		s.numbers[c.Source.Name()] = first + i
	}
	return s
}

// place solves the poses of the studio's cameras from the markers they see and publishes
// them. That takes seconds; until then, and for good without markers, the cameras are at
// the origin.
func (s unplacedStudio) place(ctx context.Context, m *points.Medium, log *slog.Logger) {
	solved, residual, err := calibrate.Livescan(ctx, s.dir)
	poses := map[int]camera.Transform{}
	for name, pose := range solved {
		if n, ok := s.numbers[name]; ok {
			poses[n] = pose
		}
	}
	if err == nil {
		err = m.Place(poses)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		log.Warn("camera poses not solved, all cameras stay at the origin; set calibration to a file of poses", "studio", s.dir, "err", err)
		return
	}
	log.Info("camera poses solved", "studio", s.dir, "cameras", len(poses),
		"surface_distance_mm", fmt.Sprintf("%.1f", residual.Median), "pairs", residual.Pairs)
}
