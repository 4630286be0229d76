package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"holocast/capture-server/points"
	"holocast/capture-server/source"
	"holocast/capture-server/source/k4a"
	"holocast/capture-server/source/k4amkv"
	"holocast/capture-server/source/livescan"
	"holocast/capture-server/source/synthetic"
	"holocast/internal/camera"
)

// sourceForms lists what a source can be, for messages.
const sourceForms = "synthetic, livescan:DIR, k4amkv:FILE, k4a, k4a:SERIAL, k4a:INDEX, equirect:FILE, equirect:URL, equirect:/dev/videoN"

// maxCameras bounds a session's cameras.
const maxCameras = 64

// sourceSpec is a parsed entry of the setting sources.
type sourceSpec struct{ kind, arg string }

var sourceKinds = []string{"synthetic", "livescan", "k4amkv", "k4a", "equirect"}

// sphere reports whether the source is a sphere of video, not cameras.
func (s sourceSpec) sphere() bool { return s.kind == "equirect" }

func parseSource(s string) (sourceSpec, error) {
	kind, arg, _ := strings.Cut(s, ":")
	spec := sourceSpec{kind, arg}
	switch {
	case (kind == "livescan" || kind == "k4amkv" || kind == "equirect") && arg == "":
		return spec, fmt.Errorf("source %q names no path: want one of %s", s, sourceForms)
	case kind == "synthetic" && arg != "":
		return spec, fmt.Errorf("source %q: synthetic takes nothing after a colon; --cameras sets how many", s)
	case !slices.Contains(sourceKinds, kind):
		return spec, fmt.Errorf("source %q is unknown: want one of %s", s, sourceForms)
	}
	return spec, nil
}

// openSources opens all cameras of the configuration, in the order they are given.
func openSources(ctx context.Context, cfg *Config, log *slog.Logger) (cameras []points.Camera, err error) {
	defer func() {
		if err != nil {
			closeCameras(cameras)
			cameras = nil
		}
	}()
	depth, err := camera.ParseDepthMode(cfg.DepthMode)
	if err != nil {
		return nil, err
	}
	color, err := camera.ParseColorMode(cfg.ColorMode)
	if err != nil {
		return nil, err
	}
	poses, err := loadPoses(cfg.Calibration)
	if err != nil {
		return nil, err
	}
	for _, s := range cfg.Sources {
		spec, err := parseSource(s)
		if err != nil {
			return cameras, err
		}
		if spec.sphere() {
			continue
		}
		o := opener{cfg: cfg, log: log, depth: depth, color: color}
		opened, err := o.open(ctx, spec)
		if err != nil {
			return cameras, err
		}
		cameras = append(cameras, opened...)
	}
	if len(cameras) > maxCameras {
		return cameras, fmt.Errorf("sources have %d cameras, more than %d", len(cameras), maxCameras)
	}
	rename(cameras)
	return cameras, poses.apply(cameras)
}

func closeCameras(cameras []points.Camera) {
	for _, c := range cameras {
		_ = c.Source.Close()
	}
}

// opener opens one source.
type opener struct {
	cfg   *Config
	log   *slog.Logger
	depth camera.DepthMode
	color camera.ColorMode
}

func (o *opener) open(ctx context.Context, spec sourceSpec) ([]points.Camera, error) {
	switch spec.kind {
	case "synthetic":
		return o.synthetic(ctx)
	case "livescan":
		return o.livescan(ctx, spec.arg)
	case "k4amkv":
		return o.recording(spec.arg)
	}
	return o.kinect(spec.arg)
}

func (o *opener) synthetic(ctx context.Context) ([]points.Camera, error) {
	began, told := time.Now(), time.Now()
	studio, err := synthetic.Open(ctx, synthetic.Options{
		Cameras: o.cfg.Cameras, Depth: o.depth, Color: o.color, FPS: o.cfg.FPS,
		Progress: func(done, total int) {
			if done == total {
				o.log.Info("performer rendered", "frames", total, "took", time.Since(began).Round(time.Millisecond))
			} else if time.Since(told) >= time.Second {
				told = time.Now()
				o.log.Info("rendering the performer", "frames", done, "of", total)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	opened := cameras(studio.Cameras...)
	if o.cfg.Calibration == calibrationAuto {
		for i, c := range opened {
			opened[i].Pose = studio.Poses[c.Source.Name()]
		}
	}
	return opened, nil
}

func (o *opener) livescan(ctx context.Context, dir string) ([]points.Camera, error) {
	sources, err := livescan.Open(dir, livescan.Options{Depth: o.depth, Color: o.color, FPS: o.cfg.FPS})
	if errors.Is(err, livescan.ErrMode) {
		return nil, fmt.Errorf("%w (depthMode is %s and colorMode %s: does the directory hold others?)", err, o.depth, o.color)
	}
	if err != nil {
		return nil, err
	}
	if n := o.cfg.Cameras; n > len(sources) {
		return nil, fmt.Errorf("cameras is %d, but %s has %d", n, dir, len(sources))
	} else if n > 0 {
		for _, s := range sources[n:] {
			_ = s.Close()
		}
		sources = sources[:n]
	}
	opened := cameras(sources...)
	if o.cfg.Calibration == calibrationAuto {
		o.solvePoses(ctx, dir, opened)
	}
	return opened, nil
}

func (o *opener) recording(path string) ([]points.Camera, error) {
	p, err := k4amkv.Open(path, k4amkv.Options{Loop: o.cfg.Loop})
	if err != nil {
		return nil, err
	}
	return cameras(p), nil
}

// maxIndex is the greatest number that counts cameras; greater ones are serial numbers.
const maxIndex = 99

func (o *opener) kinect(which string) ([]points.Camera, error) {
	opts := k4a.Options{
		Library: o.cfg.K4A.Library, Depth: o.depth, Color: o.color, FPS: int(o.cfg.FPS), Serial: which,
	}
	if float64(opts.FPS) != o.cfg.FPS {
		return nil, fmt.Errorf("fps is %g, but an Azure Kinect has 5, 15 or 30", o.cfg.FPS)
	}
	if i, err := strconv.Atoi(which); err == nil && i >= 0 && i <= maxIndex {
		opts.Serial, opts.Index = "", i
	}
	d, err := k4a.Open(opts)
	if err != nil {
		return nil, err
	}
	return cameras(d), nil
}

func cameras(sources ...source.Source) []points.Camera {
	cameras := make([]points.Camera, len(sources))
	for i, s := range sources {
		cameras[i].Source = s
	}
	return cameras
}

// rename gives cameras of the same name (two recordings of one sensor) different ones.
func rename(cameras []points.Camera) {
	seen := map[string]int{}
	for i, c := range cameras {
		name := c.Source.Name()
		seen[name]++
		if n := seen[name]; n > 1 {
			cameras[i].Source = renamed{c.Source, fmt.Sprintf("%s-%d", name, n)}
		}
	}
}

type renamed struct {
	source.Source
	name string
}

func (r renamed) Name() string { return r.name }
