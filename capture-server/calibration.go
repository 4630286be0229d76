package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"

	"holocast/capture-server/calibrate"
	"holocast/capture-server/points"
	"holocast/capture-server/source"
	"holocast/capture-server/source/livescanfiles"
	"holocast/internal/camera"
	"holocast/internal/config"
)

// Values of the setting calibration that are not file names.
const (
	calibrationAuto = "auto"
	calibrationNone = "none"
)

// poseFile is the YAML format of a calibration file.
type poseFile struct {
	Cameras map[string]struct {
		// Rotation (3×3, row-major) and Translation (millimetres) map the depth camera's space to
		// studio space.
		Rotation    []float64 `yaml:"rotation"`
		Translation []float64 `yaml:"translation"`
	} `yaml:"cameras"`
}

// poses holds the contents of a calibration file.
type poses struct {
	path   string
	byName map[string]camera.Transform
}

// maxPoseFile bounds the size of a calibration file, in bytes.
const maxPoseFile = 1 << 20

// loadPoses reads the calibration file if the setting names one.
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
			return nil, fmt.Errorf("calibration %s: camera %s has %d rotation and %d translation values, want 9 and 3",
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

// apply sets the cameras' poses. A camera without a pose is an error.
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

// of returns the named cameras' poses, keyed by index in names. A camera without a pose is an
// error.
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

// placeStored moves a livescan source's cameras to the poses stored with the take. It returns false
// if there are none or they cannot be read; the poses must then be solved from the markers.
func placeStored(dir string, cameras []points.Camera, log *slog.Logger) bool {
	sources := make([]source.Source, len(cameras))
	for i, c := range cameras {
		sources[i] = c.Source
	}
	poses, err := livescanfiles.Poses(dir, sources)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			log.Warn("ignored the stored camera poses; solving them from the markers", "studio", dir, "err", err)
		}
		return false
	}
	for i, pose := range poses {
		cameras[i].Pose = pose
	}
	log.Info("camera poses read from the take", "studio", dir, "cameras", len(poses))
	return true
}

// unplacedStudio is a livescan source whose camera poses are not solved yet.
type unplacedStudio struct {
	dir     string
	box     string         // the setting markerBox
	numbers map[string]int // camera numbers in the session, by name in dir
}

// newUnplaced describes the studio in dir. Its cameras are numbered from first and have not been
// renamed yet.
func newUnplaced(dir, box string, first int, cameras []points.Camera) unplacedStudio {
	s := unplacedStudio{dir: dir, box: box, numbers: map[string]int{}}
	for i, c := range cameras {
		s.numbers[c.Source.Name()] = first + i
	}
	return s
}

// place solves the cameras' poses from the markers they see and publishes them, which takes
// seconds. Until then, or if solving fails, the cameras stay at the origin.
func (s unplacedStudio) place(ctx context.Context, m *points.Medium, log *slog.Logger) {
	solved, residual, notes, err := calibrate.Livescan(ctx, s.dir, s.box)
	for _, note := range notes {
		log.Warn("mistake in the file of marker poses", "studio", s.dir, "note", note)
	}
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
		log.Warn("camera poses not solved: all cameras stay at the origin; set markerBox, or calibration to a file "+
			"of poses", "studio", s.dir, "err", err)
		return
	}
	log.Info("camera poses solved", "studio", s.dir, "cameras", len(poses),
		"surface_distance_mm", fmt.Sprintf("%.1f", residual.Median), "marker_distance_mm",
		fmt.Sprintf("%.1f", residual.Markers), "pairs", residual.Pairs)
}
