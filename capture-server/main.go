// Command capture-server publishes depth cameras as point-cloud tracks, microphones as sound and 360°
// video as tiles on a MOQT relay.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"holocast/capture-server/imported"
	"holocast/capture-server/points"
	"holocast/capture-server/publish"
	"holocast/capture-server/source"
	"holocast/capture-server/source/pace"
	"holocast/internal/config"
	"holocast/internal/connect"
	"holocast/internal/moqt/wire"
	"holocast/internal/pointcloud"
	"holocast/internal/quiccc"
	"holocast/internal/service"
	"holocast/internal/trace"
)

func main() { service.Main("capture-server", defaultConfig, command) }

// command returns the command-line parser; cfg holds the defaults.
func command(cfg *Config) *cobra.Command {
	c := &cobra.Command{
		Use:   "capture-server [URL]",
		Short: "Publish depth cameras as point clouds, microphones, and 360° video as tiles, at a relay",
		Long: `Publish depth cameras as point clouds, microphones, and 360° video as tiles, at a relay.

URL is a session at a relay: moqt://host:port/session over raw QUIC or
https://host:port/session over WebTransport.`,
		Example: `  capture-server --source synthetic                  # a synthetic performer, to the default relay
  capture-server --source synthetic --cameras 4 moqt://relay.example/stage
  capture-server --source livescan:out/take1         # a LiveScan3D take
  capture-server --source livescan:recording_0.bin   # its merged points
  capture-server --source livescan-tcp::48001 --cameras 4   # LiveScan3D clients, as their server
  capture-server --source k4amkv:take1.mkv --source k4amkv:take2.mkv --calibration poses.yaml
  capture-server list                                # attached cameras and microphones
  capture-server --source k4a --audio default        # with the system's default microphone
  capture-server --source k4a:000841194412 --depth-mode WFOV_2X2BINNED --descriptions 4
  capture-server --source equirect:panorama.mp4      # 360° video as tiles
  capture-server --source tiles:tour                 # video prepared by holocast prepare
  capture-server --source equirect:rtmp://encoder/live --grid 6x3 --qualities 4
  capture-server --source k4a:000841194412,sync=master --source k4a:000123456789,sync=subordinate
  capture-server --config capture-server.yaml --http 127.0.0.1:9190`,
		Version:       service.Version(strings.Join(wire.ALPNs(wire.Versions()), ", "), quiccc.Build()),
		Args:          cobra.MaximumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	f := c.Flags()
	f.SortFlags = false
	c.PersistentFlags().String(config.Flag, "", "YAML configuration file; flags override it")
	// sources, audio and points.crop need their own flags: config splits lists at commas, which
	// sources and names may contain, and has no flags for lists of numbers.
	f.StringArrayVar(&cfg.Sources, "source", cfg.Sources, sourceForms+"; repeatable. "+syncForms)
	f.StringArrayVar(&cfg.Audio, "audio", cfg.Audio, "microphone: "+audioForms+"; repeatable")
	f.Float64SliceVar(&cfg.Points.Crop, "crop", cfg.Points.Crop,
		"crop box in studio space: min x,y,z, max x,y,z; millimetres")
	cfg.Settings().AddFlags(f, cfg)
	c.PreRunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 1 {
			cfg.Relay = args[0]
		}
		return cfg.Validate()
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), *cfg) }
	c.AddCommand(listCommand(cfg))
	return c
}

func run(ctx context.Context, cfg Config) error {
	logger, err := cfg.Log.Logger()
	if err != nil {
		return err
	}
	log := logger.Logger
	target := cfg.target()
	var current atomic.Pointer[Config] // as last loaded
	current.Store(&cfg)
	encrypt, err := newEncryption(cfg.E2EKey)
	if err != nil {
		return err
	}
	target.Renew = func() connect.Target { return current.Load().target() }
	move := func(_, _ string) error { return nil } // applies a new calibration to the cameras
	rotated := func() {}                           // publishes the catalog with a new key
	reload := func() (stop func()) {
		return service.OnReload(ctx, log, cfg, settings.Reloaded(), func(next Config) error {
			if err := move(current.Load().Calibration, next.Calibration); err != nil {
				return err
			}
			if err := encrypt.reload(next.E2EKey, rotated); err != nil {
				return err
			}
			logger.SetLevel(next.Log)
			current.Store(&next)
			return nil
		})
	}
	ns, err := target.Namespace()
	if err != nil {
		return err
	}
	web, err := service.ListenHTTP("http", cfg.HTTP, log)
	if err != nil {
		return err
	}
	defer web.Close()
	reg := service.NewRegistry()
	web.Handle("GET /metrics", service.MetricsHandler(reg))
	if dir := cfg.prepared(); dir != "" && encrypt == nil {
		defer reload()()
		return replayPrepared(ctx, dir, &cfg, target, ns, web, log)
	}
	tracer, err := trace.New(ctx, cfg.Trace, trace.Program{Name: "capture-server", Version: service.Version()}, log)
	if err != nil {
		return err
	}
	defer tracer.Close()
	take := pace.NewTake(cfg.Loop, log)
	cameras, unsolved, err := openSources(ctx, &cfg, take, log)
	if err != nil {
		return err
	}
	p := publish.New(publish.Config{Namespace: ns, Log: log, Metrics: reg, Tracer: tracer, Encrypt: encrypt.publisher()})
	defer p.Close()
	rotated = p.Changed
	var m *points.Medium
	if len(cameras) > 0 {
		if m, err = addPoints(p, &cfg, cameras); err != nil {
			return err
		}
	}
	if err := addClouds(p, &cfg, take, len(cameras)); err != nil {
		return err
	}
	if err := addSphere(ctx, p, &cfg); err != nil {
		return err
	}
	if err := addSound(p, &cfg, cameras); err != nil {
		return err
	}
	web.Handle("GET /healthz", service.Health(func() error {
		if !p.Connected() {
			return errNotConnected
		}
		return nil
	}))
	web.Start()
	for i, c := range cameras {
		cal := c.Source.Calibration()
		log.Info("camera opened", "number", i, "name", c.Source.Name(),
			"depth", fmt.Sprintf("%d×%d", cal.Depth.Width, cal.Depth.Height),
			"color", fmt.Sprintf("%d×%d", cal.Color.Width, cal.Color.Height), "fps", c.Source.FPS())
	}
	placing, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for _, s := range unsolved {
		all.Go(func() { s.solve(placing, m, log) })
	}
	names := cameraNames(cameras)
	abandon := func() { stop(); all.Wait() }
	move = func(before, next string) error { return replace(m, names, before, next, abandon) }
	defer reload()()
	service.Ready(ctx, func() { p.Connected() })
	return p.Run(ctx, target)
}

// replace applies the poses and gains of a calibration file. It may be the same file with new
// poses. before is the setting that applies now; abandon ends the solving of poses from markers, which
// would overwrite the file's.
func replace(m *points.Medium, names []string, before, setting string, abandon func()) error {
	p, err := loadPoses(setting)
	switch {
	case err != nil:
		return err
	case p == nil && setting != before:
		return fmt.Errorf("calibration: %q takes effect after a restart; only pose files apply immediately", setting)
	case p == nil || m == nil:
		return nil
	}
	poses, err := p.of(names)
	if err != nil {
		return err
	}
	abandon()
	return errors.Join(m.Place(poses), m.Match(p.gainsOf(names)))
}

// cameraNames returns the names that calibration files use for the cameras, in camera order.
func cameraNames(cameras []points.Camera) (names []string) {
	for _, c := range cameras {
		names = append(names, c.Source.Name())
	}
	return names
}

// addPoints adds the cameras to the session, or closes them if it fails.
func addPoints(p *publish.Publisher, cfg *Config, cameras []points.Camera) (*points.Medium, error) {
	layout, _ := pointcloud.ParseLayout(cfg.Layout) // validated
	m, err := points.New(p, points.Config{
		Cloud: cfg.cloud(), MatchColors: cfg.Points.MatchColors, Layout: layout, Descriptions: cfg.Descriptions,
		Low: cfg.Low, High: cfg.High || cfg.Bitrate > 0, Bitrate: float64(cfg.Bitrate),
		DeliveryTimeout: cfg.DeliveryTimeout, Delivery: cfg.Delivery, AlwaysEncode: cfg.AlwaysEncode, Thin: cfg.Thin,
	}, cameras)
	if err != nil {
		closeCameras(cameras)
		return nil, err
	}
	return m, p.Add(m)
}

// addClouds adds the point sources to the session. Their numbers follow the cameras'.
func addClouds(p *publish.Publisher, cfg *Config, take *pace.Take, first int) error {
	var sources []source.Clouds
	fail := func(err error) error {
		for _, s := range sources {
			_ = s.Close()
		}
		return err
	}
	for _, text := range cfg.Sources {
		spec, err := parseSource(text)
		if err != nil || !spec.clouds() {
			continue
		}
		opened, err := cfg.openClouds(spec, take, p.Log())
		if err != nil {
			return fail(err)
		}
		for _, c := range opened {
			p.Log().
				Info("point cloud source opened", "number", first+len(sources), "name", c.Name(), "fps", c.FPS(), "most_points",
					c.MaxPoints())
			sources = append(sources, c)
		}
	}
	if len(sources) == 0 {
		return nil
	}
	m, err := imported.New(
		p,
		imported.Config{
			First:           first,
			DeliveryTimeout: cfg.DeliveryTimeout,
			Delivery:        cfg.Delivery,
			AlwaysEncode:    cfg.AlwaysEncode,
		},
		sources,
	)
	if err != nil {
		return fail(err)
	}
	return p.Add(m)
}

// errNotConnected fails the health check while there is no session.
var errNotConnected = errors.New("not connected to the relay")
