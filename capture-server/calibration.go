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
	"holocast/capture-server/depthmap"
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
		// Gain (red, green, blue, in linear light) matches the camera's colours to the others'.
		Gain []float64 `yaml:"gain"`
	} `yaml:"cameras"`
}

// poses holds the contents of a calibration file.
type poses struct {
	path   string
	byName map[string]camera.Transform
	gains  map[string]depthmap.Gain
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
	p := &poses{path: setting, byName: map[string]camera.Transform{}, gains: map[string]depthmap.Gain{}}
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
		if len(c.Gain) == 0 {
			continue
		}
		if len(c.Gain) != 3 {
			return nil, fmt.Errorf("calibration %s: camera %s has %d gain values, want 3", setting, name, len(c.Gain))
		}
		gain := depthmap.Gain(c.Gain)
		if err := gain.Validate(); err != nil {
			return nil, fmt.Errorf("calibration %s: camera %s: %w", setting, name, err)
		}
		p.gains[name] = gain
	}
	return p, nil
}

// apply sets the cameras' poses and gains. A camera without a pose is an error.
func (p *poses) apply(cameras []points.Camera) error {
	if p == nil {
		return nil
	}
	all, err := p.of(cameraNames(cameras))
	for i, pose := range all {
		cameras[i].Pose, cameras[i].Gain = pose, p.gains[cameras[i].Source.Name()]
	}
	return err
}

// gainsOf returns the named cameras' gains, keyed by index in names.
func (p *poses) gainsOf(names []string) map[int]depthmap.Gain {
	all := map[int]depthmap.Gain{}
	for i, name := range names {
		all[i] = p.gains[name]
	}
	return all
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

// unsolvedStudio is a livescan source whose camera poses or gains are not solved yet.
type unsolvedStudio struct {
	dir     string
	box     string                      // the setting markerBox
	numbers map[string]int              // camera numbers in the session, by name in dir
	poses   map[string]camera.Transform // stored with the take, by name in dir; nil if not solved yet
}

// newUnsolved describes the studio in dir. Its cameras are numbered from first and have not been
// renamed yet. If stored is set, they have poses.
func newUnsolved(dir, box string, first int, cameras []points.Camera, stored bool) unsolvedStudio {
	s := unsolvedStudio{dir: dir, box: box, numbers: map[string]int{}}
	if stored {
		s.poses = map[string]camera.Transform{}
	}
	for i, c := range cameras {
		s.numbers[c.Source.Name()] = first + i
		if stored {
			s.poses[c.Source.Name()] = c.Pose
		}
	}
	return s
}

// solve solves the cameras' gains, and their poses from the markers they see unless they are known,
// and applies them. It takes seconds. Until then, or if solving fails, the cameras stay where they
// are.
func (s unsolvedStudio) solve(ctx context.Context, m *points.Medium, log *slog.Logger) {
	if s.poses != nil {
		solved, err := calibrate.LivescanColors(ctx, s.dir, s.poses)
		if err == nil {
			err = m.Match(byNumber(solved.Gains, s.numbers))
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			log.Warn("colours of cameras not matched", "studio", s.dir, "err", err)
		default:
			log.Info("colours of cameras matched", append([]any{"studio", s.dir}, colorFields(&solved)...)...)
		}
		return
	}
	solved, err := calibrate.Livescan(ctx, s.dir, s.box)
	for _, note := range solved.Notes {
		log.Warn("mistake in the file of marker poses", "studio", s.dir, "note", note)
	}
	poses := byNumber(solved.Poses, s.numbers)
	if err == nil {
		err = m.Place(poses)
	}
	if err == nil {
		err = m.Match(byNumber(solved.Gains, s.numbers))
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		log.Warn("camera poses not solved: all cameras stay at the origin; set markerBox, or calibration to a file "+
			"of poses", "studio", s.dir, "err", err)
		return
	}
	log.Info("camera poses solved", append([]any{
		"studio", s.dir, "cameras", len(poses),
		"surface_distance_mm", fmt.Sprintf("%.1f", solved.Residual.Median), "marker_distance_mm",
		fmt.Sprintf("%.1f", solved.Residual.Markers), "pairs", solved.Residual.Pairs,
	}, colorFields(&solved)...)...)
}

// byNumber replaces camera names by numbers in the session. It omits cameras that are not in it.
func byNumber[T any](byName map[string]T, numbers map[string]int) map[int]T {
	all := map[int]T{}
	for name, v := range byName {
		if n, ok := numbers[name]; ok {
			all[n] = v
		}
	}
	return all
}

// colorFields returns the gains' range and the difference of shared surfaces' colours, for the log.
func colorFields(s *calibrate.Studio) []any {
	least, most := 1.0, 1.0
	for _, gain := range s.Gains {
		least, most = min(least, slices.Min(gain[:])), max(most, slices.Max(gain[:]))
	}
	return []any{
		"gains", fmt.Sprintf("%.2f to %.2f", least, most),
		"color_difference", fmt.Sprintf("%.1f", s.Colors.After), "color_difference_before",
		fmt.Sprintf("%.1f", s.Colors.Before),
	}
}
