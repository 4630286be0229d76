package main

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"holocast/capture-server/depthmap"
	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/config"
	"holocast/internal/connect"
	"holocast/internal/devcert"
	"holocast/internal/pointcloud"
	"holocast/internal/quiccc"
	"holocast/internal/trace"
)

// Config is the capture server's configuration; capture-server.example.yaml is its
// reference.
type Config struct {
	Relay           string   `yaml:"relay"`
	OtherRelays     []string `yaml:"otherRelays"`
	CertificateHash string   `yaml:"certificateHash"`
	Insecure        bool     `yaml:"insecure"`
	Token           string   `yaml:"token"`
	E2EKey          string   `yaml:"e2eKey"`
	Transport       string   `yaml:"transport"`
	Congestion      string   `yaml:"congestion"`
	Paths           []string `yaml:"paths"`

	Client connect.ClientCertificate `yaml:"client"`

	Sources     []string `yaml:"sources"`
	Cameras     int      `yaml:"cameras"`
	FPS         float64  `yaml:"fps"`
	DepthMode   string   `yaml:"depthMode"`
	ColorMode   string   `yaml:"colorMode"`
	Loop        bool     `yaml:"loop"`
	Calibration string   `yaml:"calibration"`
	MarkerBox   string   `yaml:"markerBox"`
	K4A         struct {
		Library string `yaml:"library"`
		Format  string `yaml:"format"`
	} `yaml:"k4a"`

	Points struct {
		Geometry string    `yaml:"geometry"`
		DepthMin uint16    `yaml:"depthMin"`
		DepthMax uint16    `yaml:"depthMax"`
		Crop     []float64 `yaml:"crop"`
		Grazing  float64   `yaml:"grazing"`
		Erode    struct {
			Radius int `yaml:"radius"`
			Step   int `yaml:"step"`
		} `yaml:"erode"`
		Isolated struct {
			Neighbors int `yaml:"neighbors"`
			Radius    int `yaml:"radius"`
			Band      int `yaml:"band"`
		} `yaml:"isolated"`
		ColorInset  int  `yaml:"colorInset"`
		MatchColors bool `yaml:"matchColors"`
	} `yaml:"points"`

	Tiles tilesConfig `yaml:"tiles"`

	Audio         []string `yaml:"audio"`
	AudioDelivery string   `yaml:"audioDelivery"`

	Layout          string         `yaml:"layout"`
	Descriptions    int            `yaml:"descriptions"`
	Low             bool           `yaml:"low"`
	High            bool           `yaml:"high"`
	Bitrate         config.Bitrate `yaml:"bitrate"`
	Delivery        string         `yaml:"delivery"`
	DeliveryTimeout time.Duration  `yaml:"deliveryTimeout"`
	AlwaysEncode    bool           `yaml:"alwaysEncode"`
	Thin            bool           `yaml:"thin"`

	HTTP  string       `yaml:"http"`
	Trace trace.Config `yaml:"trace"`
	Log   config.Log   `yaml:"log"`
}

func defaultConfig() Config {
	var c Config
	c.Relay = "moqt://localhost:4443/demo"
	c.FPS, c.DepthMode, c.ColorMode = 30, string(camera.NFOVUnbinned), string(camera.Color720P)
	c.Loop = true
	c.Calibration = calibrationAuto
	c.Points.Geometry, c.Points.Grazing = string(depthmap.DepthGeometry), depthmap.DefaultGrazing
	c.Points.ColorInset, c.Points.MatchColors = depthmap.DefaultColorInset, true
	c.Layout, c.Descriptions, c.Low, c.Thin = "a", 1, true, true
	c.Delivery = catalog.DeliveryStream
	c.DeliveryTimeout = 500 * time.Millisecond
	c.Tiles = defaultTiles()
	c.AudioDelivery = catalog.DeliveryDatagram
	c.Trace.Every = trace.DefaultEvery
	c.Log.Level, c.Log.Format = "info", "text"
	return c
}

// maxTimeout bounds deliveryTimeout and tiles.latency.
const maxTimeout = time.Minute

// Validate implements service.Settings. It leaves checks that depend on the source to openSources.
func (c *Config) Validate() error {
	if err := settings.Check(c); err != nil {
		return err
	}
	u, err := url.Parse(c.Relay)
	switch {
	case err != nil:
		return fmt.Errorf("relay: %w", connect.URLError(c.Relay, err))
	case u.Scheme != "moqt" && u.Scheme != "https":
		return fmt.Errorf("relay %q must begin with moqt:// (raw QUIC) or https:// (WebTransport)", c.Relay)
	case u.Hostname() == "":
		return fmt.Errorf("relay %q names no host", c.Relay)
	}
	if _, err := c.target().Session(); err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	for _, text := range c.OtherRelays {
		if u, err := url.Parse(text); err != nil || u.Scheme != "moqt" && u.Scheme != "https" || u.Hostname() == "" {
			return fmt.Errorf("otherRelays: %q is not of the form moqt://HOST:PORT", text)
		}
	}
	if c.CertificateHash != "" {
		if _, err := devcert.ParseHash(c.CertificateHash); err != nil {
			return fmt.Errorf("certificateHash: %w", err)
		}
	}
	if (c.Client.Certificate == "") != (c.Client.Key == "") {
		return errors.New("client.certificate and client.key must be given together")
	}
	if err := connect.CheckTransport(c.Transport); err != nil {
		return err
	}
	if err := quiccc.Check(c.Congestion); err != nil {
		return fmt.Errorf("congestion: %w", err)
	}
	for _, path := range c.Paths {
		if _, err := connect.ParsePath(path); err != nil {
			return fmt.Errorf("paths: %w", err)
		}
	}
	if len(c.Paths) > 0 && u.Scheme != "moqt" {
		return fmt.Errorf("paths: relay %q must begin with moqt:// (raw QUIC)", c.Relay)
	}
	if _, err := camera.ParseDepthMode(c.DepthMode); err != nil {
		return fmt.Errorf("depthMode: %w", err)
	}
	if m, err := camera.ParseColorMode(c.ColorMode); err != nil {
		return fmt.Errorf("colorMode: %w", err)
	} else if m == camera.ColorOff {
		return fmt.Errorf("colorMode is %q, but points take their colour from the colour camera", c.ColorMode)
	}
	layout, knownLayout := pointcloud.ParseLayout(c.Layout)
	if _, err := c.colorFormat(); err != nil {
		return fmt.Errorf("k4a.format: %w", err)
	}
	switch {
	case len(c.Sources) == 0 && len(c.Audio) == 0:
		return fmt.Errorf("sources is empty: use --source synthetic, or another of %s", sourceForms)
	case c.Cameras < 0 || c.Cameras > maxCameras:
		return fmt.Errorf("cameras is %d, want 1 to %d, or 0 for all cameras of a source", c.Cameras, maxCameras)
	case !(c.FPS >= 0.1 && c.FPS <= 120):
		return fmt.Errorf("fps is %g, want 0.1 to 120", c.FPS)
	case !knownLayout || layout == pointcloud.LayoutVideo:
		return fmt.Errorf("layout is %q, want a, b or c", c.Layout)
	case c.Descriptions != 1 && c.Descriptions != 4:
		return fmt.Errorf("descriptions is %d, want 1 or 4", c.Descriptions)
	case c.DeliveryTimeout < 0 || c.DeliveryTimeout > maxTimeout:
		return fmt.Errorf("deliveryTimeout is %s, want 0 (none) to %s", c.DeliveryTimeout, maxTimeout)
	case len(c.Points.Crop) != 0 && len(c.Points.Crop) != 6:
		return fmt.Errorf("points.crop has %d numbers, want 6: min x y z and max x y z, in millimetres",
			len(c.Points.Crop))
	}
	if err := checkDelivery("delivery", c.Delivery); err != nil {
		return err
	}
	if err := checkDelivery("audioDelivery", c.AudioDelivery); err != nil {
		return err
	}
	if _, err := c.microphones(); err != nil {
		return err
	}
	spheres := 0
	for _, s := range c.Sources {
		spec, err := parseSource(s)
		if err != nil {
			return err
		}
		if spec.sphere() {
			spheres++
		}
	}
	if spheres > 1 {
		return fmt.Errorf("sources has %d 360° videos, but a session can have only one", spheres)
	}
	if err := c.Tiles.validate(); err != nil {
		return err
	}
	if err := c.Trace.Validate(); err != nil {
		return err
	}
	return c.Log.Validate()
}

// colorFormat parses k4a.format; "" lets the camera choose.
func (c *Config) colorFormat() (camera.ColorFormat, error) {
	if c.K4A.Format == "" {
		return "", nil
	}
	return camera.ParseColorFormat(c.K4A.Format)
}

func (c *Config) target() connect.Target {
	return connect.Target{
		URL: c.Relay, CertificateHash: c.CertificateHash, Insecure: c.Insecure, Congestion: c.Congestion,
		Token: c.Token, Client: c.Client, Paths: c.Paths, Transport: c.Transport, Relays: c.OtherRelays,
	}
}

// cloud returns the configuration of the cameras' mappers, without their poses.
func (c *Config) cloud() depthmap.Config {
	p := &c.Points
	cfg := depthmap.Config{
		Geometry: depthmap.Geometry(p.Geometry), DepthMin: p.DepthMin, DepthMax: p.DepthMax,
		Grazing: p.Grazing, ColorInset: p.ColorInset,
		Erode:    depthmap.Erode{Radius: p.Erode.Radius, Step: p.Erode.Step},
		Isolated: depthmap.Isolated{Neighbors: p.Isolated.Neighbors, Radius: p.Isolated.Radius, Band: p.Isolated.Band},
	}
	if box := slices.Clone(p.Crop); len(box) == 6 {
		cfg.Crop = &depthmap.Box{Min: [3]float64(box[:3]), Max: [3]float64(box[3:])}
	}
	return cfg
}
