// Command capture-server turns depth cameras into the point-cloud tracks of a
// session and publishes them at a relay over Media over QUIC.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"holocast/capture-server/points"
	"holocast/capture-server/publish"
	"holocast/capture-server/source/k4a"
	"holocast/internal/config"
	"holocast/internal/connect"
	"holocast/internal/moqt/wire"
	"holocast/internal/quiccc"
	"holocast/internal/service"
)

func main() { service.Main("capture-server", defaultConfig, command) }

// command returns the capture server's command line, with the values in cfg as its defaults.
func command(cfg *Config) *cobra.Command {
	c := &cobra.Command{
		Use:   "capture-server [URL]",
		Short: "Publish depth cameras as point clouds at a relay",
		Long: `Publish depth cameras as point clouds at a relay.

URL is a session at a relay: moqt://host:port/session over raw QUIC or
https://host:port/session over WebTransport.`,
		Example: `  capture-server --source synthetic                      # a performer, to moqt://localhost:4443/demo
  capture-server --source synthetic --cameras 4 moqt://relay.example/stage
  capture-server --source livescan:recordings/studio --fps 15
  capture-server --source k4amkv:take1.mkv --source k4amkv:take2.mkv --calibration poses.yaml
  capture-server list                                    # the cameras attached
  capture-server --source k4a:000841194412 --depth-mode WFOV_2X2BINNED --descriptions 4
  capture-server --config capture-server.yaml --http :9090`,
		Version:       service.Version(wire.ALPN, quiccc.Build()),
		Args:          cobra.MaximumNArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	f := c.Flags()
	f.SortFlags = false
	c.PersistentFlags().String(config.Flag, "", "YAML configuration file; flags override it")
	f.StringArrayVar(&cfg.Sources, "source", cfg.Sources, sourceForms+"; repeatable")
	f.IntVar(&cfg.Cameras, "cameras", cfg.Cameras, "cameras of a livescan directory, or of the synthetic studio; 0 is all, or 1")
	f.Float64Var(&cfg.FPS, "fps", cfg.FPS, "frames per second of synthetic and k4a, and of livescan without time stamps")
	f.StringVar(&cfg.DepthMode, "depth-mode", cfg.DepthMode, "depth mode of livescan, synthetic and k4a")
	f.StringVar(&cfg.ColorMode, "color-mode", cfg.ColorMode, "colour mode of livescan, synthetic and k4a")
	f.BoolVar(&cfg.Loop, "loop", cfg.Loop, "begin recordings again at their end")
	f.StringVar(&cfg.Calibration, "calibration", cfg.Calibration, "YAML file of poses; auto solves markers, none leaves cameras at the origin")
	f.StringVar(&cfg.K4A.Library, "k4a-library", cfg.K4A.Library, "libk4a, or its directory (default: $"+k4a.LibraryEnv+" or the system's)")
	f.StringVar(&cfg.Points.Geometry, "geometry", cfg.Points.Geometry, "whose pixels become points: depth or color")
	f.Uint16Var(&cfg.Points.DepthMin, "depth-min", cfg.Points.DepthMin, "least depth kept, millimetres")
	f.Uint16Var(&cfg.Points.DepthMax, "depth-max", cfg.Points.DepthMax, "greatest depth kept, millimetres; 0 is no bound")
	f.Float64SliceVar(&cfg.Points.Crop, "crop", cfg.Points.Crop, "box kept in the studio: least x,y,z and greatest x,y,z, millimetres")
	f.IntVar(&cfg.Points.Erode.Radius, "erode", cfg.Points.Erode.Radius, "drop points so many pixels from an edge; 0 is off")
	f.IntVar(&cfg.Points.Isolated.Neighbors, "isolated", cfg.Points.Isolated.Neighbors, "drop points with fewer neighbours; 0 is off")
	f.StringVar(&cfg.Layout, "layout", cfg.Layout, "frame layout: a (grid), b (points) or c (LiveScan3D's)")
	f.IntVar(&cfg.Descriptions, "descriptions", cfg.Descriptions, "parts of a frame that decode alone: 1, or 4 for lossy paths")
	f.BoolVar(&cfg.Low, "low", cfg.Low, "offer each camera also at a quarter of its points")
	f.DurationVar(&cfg.DeliveryTimeout, "delivery-timeout", cfg.DeliveryTimeout, "age at which a frame's rest is dropped; 0 is never")
	f.BoolVar(&cfg.AlwaysEncode, "always-encode", cfg.AlwaysEncode, "encode also what nobody watches")
	f.StringVar(&cfg.HTTP, "http", cfg.HTTP, "TCP address for /metrics and /healthz; \"\" turns it off")
	f.StringVar(&cfg.CertificateHash, "certificate-hash", cfg.CertificateHash, "SHA-256 of the relay's certificate, hex (the relay logs it at its start)")
	f.BoolVar(&cfg.Insecure, "insecure", cfg.Insecure, "trust the development certificate that the relay names over plain HTTP")
	f.StringVar(&cfg.Congestion, "congestion", cfg.Congestion, connect.CongestionUsage)
	f.StringVar(&cfg.Log.Level, "log-level", cfg.Log.Level, "debug, info, warn or error")
	f.StringVar(&cfg.Log.Format, "log-format", cfg.Log.Format, "text or json")
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
	cameras, err := openSources(ctx, &cfg, log)
	if err != nil {
		return err
	}
	p := publish.New(publish.Config{Namespace: ns, Log: log, Metrics: reg})
	defer p.Close()
	if err := addPoints(p, &cfg, cameras); err != nil {
		closeCameras(cameras)
		return err
	}
	web.Handle("GET /metrics", service.MetricsHandler(reg))
	web.Handle("GET /healthz", service.Health(func() error {
		if !p.Connected() {
			return errNotConnected
		}
		return nil
	}))
	web.Start()
	for i, c := range cameras {
		cal := c.Source.Calibration()
		log.Info("camera", "number", i, "name", c.Source.Name(),
			"depth", fmt.Sprintf("%d×%d", cal.Depth.Width, cal.Depth.Height),
			"color", fmt.Sprintf("%d×%d", cal.Color.Width, cal.Color.Height), "fps", c.Source.FPS())
	}
	unhook := service.OnReload(ctx, log, cfg, []string{"log.level"}, func(next Config) error {
		logger.SetLevel(next.Log)
		return nil
	})
	defer unhook()
	service.Ready(ctx, func() { p.Connected() })
	return p.Run(ctx, target)
}

// addPoints makes the cameras a medium of the session.
func addPoints(p *publish.Publisher, cfg *Config, cameras []points.Camera) error {
	m, err := points.New(p, points.Config{
		Cloud: cfg.cloud(), Layout: layouts[cfg.layoutName()], Descriptions: cfg.Descriptions, Low: cfg.Low,
		DeliveryTimeout: cfg.DeliveryTimeout, AlwaysEncode: cfg.AlwaysEncode,
	}, cameras)
	if err != nil {
		return err
	}
	return p.Add(m)
}

// errNotConnected is why a capture server without a session is not healthy.
var errNotConnected = errors.New("not connected to the relay")
