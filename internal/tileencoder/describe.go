package tileencoder

import (
	"encoding/base64"
	"fmt"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/loc"
)

// Publisher priorities of a sphere's tracks (docs/spec/tiles.md); lower first.
const (
	PriorityRates = 32
	PriorityAudio = 48
	PriorityVideo = 64
	PriorityTile  = 128
)

// DefaultLatency is the default time from capture to display.
const DefaultLatency = time.Second

// renderGroup is the render group of 360° video; cameras use 1.
const renderGroup = 2

// altGroup is the alternate group of the first tile, above the cameras' groups.
const altGroup = 1000

// audioBitrate bounds FFmpeg's sound in bits per second.
const audioBitrate = 160_000

// Description holds the catalog fields that do not follow from the encoder's settings.
type Description struct {
	Label         string
	TargetLatency time.Duration
	Audio         *loc.AudioFormat // nil without sound
	Skip          []bool           // qualities left out
}

// Describe adds the sphere's tracks to a live session's catalog.
func (e *Encoder) Describe(c *catalog.Catalog, d Description) error {
	s := e.cfg.Sphere
	fps := float64(e.cfg.FPSNum) / float64(e.cfg.FPSDen)
	inits := map[string]string{}
	initRef := func(data []byte) string {
		key := string(data)
		if inits[key] == "" {
			inits[key] = fmt.Sprintf("tiles-%d", len(inits))
			c.InitDataList = append(c.InitDataList,
				catalog.InitData{ID: inits[key], Type: "inline", Data: base64.StdEncoding.EncodeToString(data)})
		}
		return inits[key]
	}
	group := renderGroup
	entry := func(name, role string, tile, quality int) (catalog.Track, error) {
		config := e.Config(tile, quality)
		codec, err := loc.AVCCodec(config)
		return catalog.Track{
			Name: name, Packaging: catalog.PackagingLOC, IsLive: true, Role: role, RenderGroup: &group,
			InitRef: initRef(config), Codec: codec,
			TargetLatency: float64(d.TargetLatency.Milliseconds()), Framerate: fps, Bitrate: e.Bitrate(tile, quality),
			MaxGOPDuration: float64(e.cfg.GOP) / fps * 1000,
		}, err
	}
	video, err := entry(catalog.VideoTrack, catalog.RoleVideo, Video, 0)
	if err != nil {
		return err
	}
	video.Width, video.Height = VideoSize(&s)
	video.Height *= s.Eyes()
	video.Sphere, video.Label = &s, d.Label
	c.Tracks = append(c.Tracks, video)
	depends := []string{catalog.VideoTrack}
	for i := range s.Tiles() {
		r := s.Rect(i)
		for q := range s.Qualities {
			name := catalog.TileTrack(i, q)
			depends = append(depends, name)
			if q < len(d.Skip) && d.Skip[q] {
				continue
			}
			t, err := entry(name, catalog.RoleTile, i, q)
			if err != nil {
				return err
			}
			alt := altGroup + i
			t.AltGroup, t.Depends = &alt, []string{catalog.VideoTrack}
			t.Width, t.Height = r.Dx(), r.Dy()*s.Eyes()
			t.Tile = &catalog.Tile{Tile: i, Quality: q, X: r.Min.X, Y: r.Min.Y, Width: r.Dx(), Height: r.Dy()}
			c.Tracks = append(c.Tracks, t)
		}
	}
	if f := d.Audio; f != nil {
		a := catalog.Track{
			Name: catalog.AudioTrack, Packaging: catalog.PackagingLOC, IsLive: true, Role: catalog.RoleAudio,
			RenderGroup: &group, Codec: f.Codec,
			TargetLatency: float64(d.TargetLatency.Milliseconds()), Samplerate: f.SampleRate,
			ChannelConfig: fmt.Sprint(f.Channels), Bitrate: audioBitrate,
		}
		if f.Config != nil {
			a.InitRef = initRef(f.Config)
		}
		c.Tracks = append(c.Tracks, a)
	}
	c.Tracks = append(c.Tracks, catalog.NewRatesTrack(depends...))
	return nil
}
