package main

import (
	"context"
	"fmt"
	"time"

	"holocast/capture-server/publish"
	"holocast/capture-server/source/videoinput"
	"holocast/capture-server/video360"
	"holocast/internal/catalog"
	video "holocast/internal/equirect"
	"holocast/internal/spherical"
)

// tilesConfig is the configuration section tiles, for 360° video.
type tilesConfig struct {
	Stereo     string        `yaml:"stereo"`
	Size       string        `yaml:"size"`
	Grid       string        `yaml:"grid"`
	Qualities  int           `yaml:"qualities"`
	Quantisers []int         `yaml:"quantisers"`
	Preset     string        `yaml:"preset"`
	MaxBitrate int64         `yaml:"maxBitrate"`
	Latency    time.Duration `yaml:"latency"`
}

func defaultTiles() tilesConfig {
	return tilesConfig{Stereo: video.StereoAuto, Grid: "8x4", Qualities: 3, Preset: "ultrafast", Latency: time.Second}
}

func (c *tilesConfig) validate() error {
	switch c.Stereo {
	case video.StereoAuto, spherical.Mono, spherical.TopBottom, spherical.SideBySide:
	default:
		return fmt.Errorf("tiles.stereo is %q, want auto, mono, top-bottom or side-by-side", c.Stereo)
	}
	if c.Size != "" {
		if _, _, err := parsePair(c.Size); err != nil {
			return fmt.Errorf("tiles.size is %q, want WIDTHxHEIGHT, such as 1920x960", c.Size)
		}
	}
	columns, rows, err := parsePair(c.Grid)
	switch {
	case err != nil:
		return fmt.Errorf("tiles.grid is %q, want COLUMNSxROWS, such as 8x4", c.Grid)
	case columns < 1 || rows < 1 || columns > catalog.MaxTiles || rows > catalog.MaxTiles ||
		columns*rows > catalog.MaxTiles:
		return fmt.Errorf("tiles.grid is %s, want 1 to %d tiles in total", c.Grid, catalog.MaxTiles)
	case c.Qualities < 1 || c.Qualities > catalog.MaxQualities:
		return fmt.Errorf("tiles.qualities is %d, want 1 to %d", c.Qualities, catalog.MaxQualities)
	case len(c.Quantisers) != 0 && len(c.Quantisers) != c.Qualities:
		return fmt.Errorf("tiles.quantisers has %d values, want one for each of %d qualities", len(c.Quantisers),
			c.Qualities)
	case c.MaxBitrate < 0:
		return fmt.Errorf("tiles.maxBitrate is %d, want at least 0 bits per second; 0 derives it from the size",
			c.MaxBitrate)
	case c.Latency < 100*time.Millisecond || c.Latency > maxTimeout:
		return fmt.Errorf("tiles.latency is %s, want 100ms to %s", c.Latency, maxTimeout)
	}
	return nil
}

// parsePair parses two numbers, such as "8x4".
func parsePair(s string) (a, b int, err error) {
	var rest string
	if n, _ := fmt.Sscanf(s, "%dx%d%s", &a, &b, &rest); n != 2 {
		return 0, 0, fmt.Errorf("%q is not a pair of numbers", s)
	}
	return a, b, nil
}

// addSphere adds the session's 360° video, if configured.
func addSphere(ctx context.Context, p *publish.Publisher, cfg *Config) error {
	for _, s := range cfg.Sources {
		spec, err := parseSource(s)
		if err != nil || !spec.sphere() {
			continue
		}
		var m publish.Medium
		if spec.kind == "tiles" {
			m, err = newPreparedMedium(p, spec.arg, cfg.Loop)
		} else {
			m, err = openSphere(ctx, p, cfg, spec)
		}
		if err != nil {
			return err
		}
		if err := p.Add(m); err != nil {
			return err
		}
	}
	return nil
}

func openSphere(ctx context.Context, p *publish.Publisher, cfg *Config, spec sourceSpec) (publish.Medium, error) {
	t := &cfg.Tiles
	opts := videoinput.Options{Loop: cfg.Loop, Log: p.Log()}
	opts.Stereo = t.Stereo
	if t.Size != "" {
		opts.Width, opts.Height, _ = parsePair(t.Size) // validated
	}
	src, err := videoinput.Open(ctx, spec.arg, opts)
	if err != nil {
		return nil, err
	}
	p.Log().Info("360° video opened", "input", spec.arg, "shows", src.Name(), "sound", src.AudioFormat() != nil)
	columns, rows, _ := parsePair(t.Grid) // validated
	return video360.New(p, video360.Config{
		Columns: columns, Rows: rows, Qualities: t.Qualities, Quantisers: t.Quantisers, Preset: t.Preset,
		MaxBitrate: t.MaxBitrate, TargetLatency: t.Latency,
	}, src)
}
