package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"holocast/capture-server/points"
	"holocast/capture-server/source"
	"holocast/capture-server/source/k4a"
	"holocast/capture-server/source/k4arecording"
	"holocast/capture-server/source/livescanfiles"
	"holocast/capture-server/source/livescantcp"
	"holocast/capture-server/source/pace"
	"holocast/capture-server/source/synthetic"
	"holocast/internal/camera"
	protocol "holocast/internal/livescan"
	"holocast/internal/service"
)

// sourceForms lists the forms of a source, for help and error messages.
const sourceForms = "synthetic, livescan:DIR, livescan:FILE.bin, livescan-tcp:HOST:PORT, k4amkv:FILE, k4a, " +
	"k4a:SERIAL, k4a:INDEX, equirect:FILE, equirect:URL, equirect:/dev/videoN, tiles:FOLDER"

// maxCameras bounds a session's cameras.
const maxCameras = 64

// syncForms lists the options of a k4a source, for help and error messages.
const syncForms = "k4a takes ,sync=master or ,sync=subordinate, ,subordinate-delay=DURATION, ,depth-delay=DURATION"

// sourceSpec is a parsed entry of the setting sources.
type sourceSpec struct {
	kind, arg string
	sync      k4a.SyncMode // "" is k4a.Standalone
	// As in k4a.Options.
	subordinateDelay, depthDelay time.Duration
}

var sourceKinds = []string{"synthetic", "livescan", "livescan-tcp", "k4amkv", "k4a", "equirect", "tiles"}

// sphere reports whether the source is 360° video.
func (s sourceSpec) sphere() bool { return s.kind == "equirect" || s.kind == "tiles" }

// clouds reports whether the source delivers points instead of images.
func (s sourceSpec) clouds() bool {
	return s.kind == "livescan-tcp" || s.kind == "livescan" && strings.EqualFold(filepath.Ext(s.arg), ".bin")
}

// cameras reports whether the source is one or more depth cameras.
func (s sourceSpec) cameras() bool { return !s.sphere() && !s.clouds() }

func parseSource(s string) (sourceSpec, error) {
	kind, arg, _ := strings.Cut(s, ":")
	var options []string
	if kind == "k4a" || strings.HasPrefix(kind, "k4a,") {
		fields := strings.Split(s, ",")
		kind, arg, _ = strings.Cut(fields[0], ":")
		options = fields[1:]
	}
	spec := sourceSpec{kind: kind, arg: arg}
	switch {
	case kind == "livescan-tcp" && arg == "":
		return spec,
			fmt.Errorf("source %q has no address: want livescan-tcp:HOST:PORT, such as "+
				"livescan-tcp:192.168.1.20:48001, or livescan-tcp::48001 for all local addresses", s)
	case (kind == "livescan" || kind == "k4amkv" || kind == "equirect" || kind == "tiles") && arg == "":
		return spec, fmt.Errorf("source %q has no path: want one of %s", s, sourceForms)
	case kind == "synthetic" && arg != "":
		return spec, fmt.Errorf("source %q: synthetic takes no argument; set the number of cameras with --cameras", s)
	case !slices.Contains(sourceKinds, kind):
		return spec, fmt.Errorf("source %q is unknown: want one of %s", s, sourceForms)
	}
	for _, o := range options {
		if err := spec.set(o); err != nil {
			return spec, fmt.Errorf("source %q: %w", s, err)
		}
	}
	return spec, nil
}

// set parses one option of a k4a source.
func (s *sourceSpec) set(option string) (err error) {
	name, value, _ := strings.Cut(option, "=")
	switch name {
	case "sync":
		s.sync = k4a.SyncMode(value)
		if s.sync != k4a.Standalone && s.sync != k4a.Master && s.sync != k4a.Subordinate {
			return fmt.Errorf("sync is %q, want standalone, master or subordinate", value)
		}
	case "subordinate-delay":
		s.subordinateDelay, err = time.ParseDuration(value)
	case "depth-delay":
		s.depthDelay, err = time.ParseDuration(value)
	default:
		return fmt.Errorf("option %q is unknown: %s", option, syncForms)
	}
	if err != nil {
		return fmt.Errorf("%s is %q, want a duration such as 160us", name, value)
	}
	return nil
}

// depthSpacing is the minimum time between depth exposures of Azure Kinects that see the same
// surface. At shorter times their lasers interfere (Azure Kinect DK documentation, "Synchronize
// multiple Azure Kinect DK devices").
const depthSpacing = 160 * time.Microsecond

// checkSync warns about synchronized cameras with overlapping depth exposures.
func checkSync(names []string, specs []sourceSpec, log *slog.Logger) {
	at := func(s sourceSpec) time.Duration { return s.subordinateDelay + s.depthDelay }
	for i, a := range specs {
		for j, b := range specs[:i] {
			if inChain(a) && inChain(b) && (at(a)-at(b)).Abs() < depthSpacing {
				log.Warn("depth exposures overlap, so cameras that see the same surface interfere; set depth-delay",
					"sources", names[j]+" "+names[i], "apart", (at(a) - at(b)).Abs(), "want", depthSpacing)
			}
		}
	}
}

func inChain(s sourceSpec) bool { return s.sync == k4a.Master || s.sync == k4a.Subordinate }

// openSources opens all configured cameras, in order. Recordings join the take. Cameras of unsolved
// studios are at the origin until their poses are solved, unless these are stored.
func openSources(
	ctx context.Context,
	cfg *Config,
	take *pace.Take,
	log *slog.Logger,
) (cameras []points.Camera, unsolved []unsolvedStudio, err error) {
	depth, err := camera.ParseDepthMode(cfg.DepthMode)
	if err != nil {
		return nil, nil, err
	}
	color, err := camera.ParseColorMode(cfg.ColorMode)
	if err != nil {
		return nil, nil, err
	}
	poses, err := loadPoses(cfg.Calibration)
	if err != nil {
		return nil, nil, err
	}
	specs := make([]sourceSpec, len(cfg.Sources))
	for i, s := range cfg.Sources {
		if specs[i], err = parseSource(s); err != nil {
			return nil, nil, err
		}
	}
	checkSync(cfg.Sources, specs, log)
	opened := make([][]points.Camera, len(specs))
	defer func() {
		if err != nil {
			closeCameras(slices.Concat(opened...))
		}
	}()
	o := opener{cfg: cfg, log: log, take: take, depth: depth, color: color}
	// Start the masters last, when the subordinates already wait for the first trigger.
	for _, masters := range []bool{false, true} {
		for i, spec := range specs {
			if !spec.cameras() || (spec.sync == k4a.Master) != masters {
				continue
			}
			if opened[i], err = o.open(ctx, spec); err != nil {
				return nil, nil, err
			}
		}
	}
	for i, spec := range specs {
		if spec.kind == "livescan" && spec.cameras() && cfg.Calibration == calibrationAuto {
			if stored := placeStored(spec.arg, opened[i], log); !stored || cfg.Points.MatchColors {
				unsolved = append(unsolved, newUnsolved(spec.arg, cfg.MarkerBox, len(cameras), opened[i], stored))
			}
		}
		cameras = append(cameras, opened[i]...)
	}
	if len(cameras) > maxCameras {
		return nil, nil, fmt.Errorf("sources have %d cameras, want at most %d", len(cameras), maxCameras)
	}
	rename(cameras)
	if err := poses.apply(cameras); err != nil {
		return nil, nil, err
	}
	return cameras, unsolved, nil
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
	take  *pace.Take
	depth camera.DepthMode
	color camera.ColorMode
}

func (o *opener) open(ctx context.Context, spec sourceSpec) ([]points.Camera, error) {
	switch spec.kind {
	case "synthetic":
		return o.synthetic(ctx)
	case "livescan":
		return o.livescan(spec.arg)
	case "k4amkv":
		return o.recording(spec.arg)
	}
	return o.kinect(spec)
}

func (o *opener) synthetic(ctx context.Context) ([]points.Camera, error) {
	began, logged := time.Now(), time.Now()
	studio, err := synthetic.Open(ctx, synthetic.Options{
		Cameras: o.cfg.Cameras, Depth: o.depth, Color: o.color, FPS: o.cfg.FPS,
		Progress: func(done, total int) {
			if done == total {
				o.log.Info("rendered the performer", "frames", total, "took", time.Since(began).Round(time.Millisecond))
			} else if time.Since(logged) >= time.Second {
				logged = time.Now()
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

func (o *opener) livescan(dir string) ([]points.Camera, error) {
	sources, err := livescanfiles.Open(dir, livescanfiles.Options{
		Depth: o.depth, Color: o.color, FPS: o.cfg.FPS, Log: o.log,
	})
	if errors.Is(err, livescanfiles.ErrMode) {
		return nil, fmt.Errorf("%w (depthMode is %s and colorMode %s; the directory may have other modes)", err,
			o.depth, o.color)
	}
	if err != nil {
		return nil, err
	}
	if n := o.cfg.Cameras; n > len(sources) {
		return nil, fmt.Errorf("cameras is %d, but %s has only %d", n, dir, len(sources))
	} else if n > 0 {
		for _, s := range sources[n:] {
			_ = s.Close()
		}
		sources = sources[:n]
	}
	return cameras(sources...), nil
}

func (o *opener) recording(path string) ([]points.Camera, error) {
	p, err := k4arecording.Open(path, k4arecording.Options{Take: o.take})
	if err != nil {
		return nil, err
	}
	return cameras(p), nil
}

// maxIndex is the largest device index; larger numbers are serial numbers.
const maxIndex = 99

func (o *opener) kinect(spec sourceSpec) ([]points.Camera, error) {
	format, err := o.cfg.colorFormat()
	if err != nil {
		return nil, err
	}
	opts := k4a.Options{
		Library: o.cfg.K4A.Library, Depth: o.depth, Color: o.color, Format: format, FPS: int(o.cfg.FPS),
		Serial: spec.arg,
		Sync:   spec.sync, SubordinateDelay: spec.subordinateDelay, DepthDelay: spec.depthDelay, Log: o.log,
	}
	if float64(opts.FPS) != o.cfg.FPS {
		return nil, fmt.Errorf("fps is %g, but an Azure Kinect supports 5, 15 or 30", o.cfg.FPS)
	}
	if i, err := strconv.Atoi(spec.arg); err == nil && i >= 0 && i <= maxIndex {
		opts.Serial, opts.Index = "", i
	}
	d, err := k4a.Open(opts)
	if err != nil {
		return nil, err
	}
	return cameras(d), nil
}

// openClouds opens a source of points: a recording, which joins the take, or a server for LiveScan3D
// clients.
func (c *Config) openClouds(spec sourceSpec, take *pace.Take, log *slog.Logger) ([]source.Clouds, error) {
	if spec.kind == "livescan" {
		b, err := livescanfiles.OpenBin(spec.arg, take)
		if err != nil {
			return nil, err
		}
		return []source.Clouds{b}, nil
	}
	address := spec.arg
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(address, strconv.Itoa(protocol.CapturePort))
	}
	setting := fmt.Sprintf("source %q", spec.kind+":"+spec.arg)
	if err := service.CheckAddress(setting, address); err != nil {
		return nil, err
	}
	o := livescantcp.Options{Cameras: c.Cameras, FPS: c.FPS, Calibrate: c.Calibration == calibrationAuto, Log: log}
	if box := c.Points.Crop; len(box) == 6 {
		for i := range 3 {
			o.Min[i], o.Max[i] = float32(box[i]/1000), float32(box[3+i]/1000)
		}
	}
	places, err := livescantcp.Listen(address, o)
	if err != nil {
		return nil, service.AddressError(setting, address, err)
	}
	log.Info("waiting for LiveScan3D clients", "address", places[0].Address(), "cameras", len(places))
	list := make([]source.Clouds, len(places))
	for i, p := range places {
		list[i] = p
	}
	return list, nil
}

func cameras(sources ...source.Source) []points.Camera {
	cameras := make([]points.Camera, len(sources))
	for i, s := range sources {
		cameras[i].Source = s
	}
	return cameras
}

// rename makes camera names unique, since two recordings of one sensor share a name.
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
