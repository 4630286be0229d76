// Package spheretest publishes pre-encoded tiled 360° video in real time, for tests and benchmarks.
package spheretest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/loc"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
)

// Video stands for the low-resolution sphere in place of a tile number.
const Video = -1

// Film is the published content. It loops.
type Film struct {
	Sphere                  catalog.Sphere
	VideoWidth, VideoHeight int
	FPS                     int // also the number of frames per GoP
	GOPs                    int
	Latency                 time.Duration
	// Frame returns a frame as length-prefixed NAL units. Config returns the avcC record of a tile
	// at a quality.
	Frame  func(gop, tile, quality, frame int) []byte
	Config func(tile, quality int) []byte
	Rates  func(gop int) catalog.RatesData
}

// Publisher publishes a Film as a session.
type Publisher struct {
	Set   origin.Set
	film  Film
	video *track
	tiles [][]*track
	rates *origin.Track
}

// track is a track with its open group.
type track struct {
	*origin.Track
	priority uint8
	feed     *origin.Feed
}

// New creates the session's tracks. Pass viewers' requests to Set's handler.
func New(ns moqt.Namespace, film Film) (*Publisher, error) {
	p := &Publisher{film: film}
	ms := uint64(film.Latency.Milliseconds())
	timeout := func(ms uint64) moqt.Properties {
		return moqt.Properties(
			wire.AppendKeyValues(
				nil, wire.KeyValue{Type: wire.PropertyObjectDeliveryTimeout, Int: ms},
				wire.KeyValue{Type: wire.PropertySubgroupDeliveryTimeout, Int: ms},
			),
		)
	}
	timeouts := timeout(ms)
	add := func(name string, props moqt.Properties) *origin.Track {
		t := origin.NewTrack(moqt.TrackName{Namespace: ns, Name: name}, props, origin.Limits{MaxAge: 2500 * time.Millisecond})
		p.Set.Add(t)
		return t
	}
	c := catalog.Catalog{Version: catalog.Version}
	group := 2
	entry := func(name, role string, tile, quality int) (catalog.Track, error) {
		config := film.Config(tile, quality)
		codec, err := loc.AVCCodec(config)
		id := fmt.Sprintf("avc-%d", len(c.InitDataList))
		c.InitDataList = append(
			c.InitDataList, catalog.InitData{ID: id, Type: "inline", Data: base64.StdEncoding.EncodeToString(config)},
		)
		return catalog.Track{
			Name: name, Packaging: catalog.PackagingLOC, IsLive: true, Role: role, RenderGroup: &group, InitRef: id,
			Codec:         codec,
			TargetLatency: float64(ms), Framerate: float64(film.FPS), Bitrate: 1_000_000, MaxGOPDuration: 1000,
		}, err
	}
	video, err := entry(catalog.VideoTrack, catalog.RoleVideo, Video, 0)
	if err != nil {
		return nil, err
	}
	video.Width, video.Height, video.Sphere = film.VideoWidth, film.VideoHeight*film.Sphere.Eyes(), &film.Sphere
	c.Tracks = append(c.Tracks, video)
	p.video = &track{Track: add(catalog.VideoTrack, timeout(ms+1000)), priority: 64}
	depends := []string{catalog.VideoTrack}
	for i := range film.Sphere.Tiles() {
		var tile []*track
		r := film.Sphere.Rect(i)
		for q := range film.Sphere.Qualities {
			name := catalog.TileTrack(i, q)
			t, err := entry(name, catalog.RoleTile, i, q)
			if err != nil {
				return nil, err
			}
			alt := 1000 + i
			t.AltGroup, t.Depends, t.Width, t.Height = &alt, []string{catalog.VideoTrack}, r.Dx(), r.Dy()*film.Sphere.Eyes()
			t.Tile = &catalog.Tile{Tile: i, Quality: q, X: r.Min.X, Y: r.Min.Y, Width: r.Dx(), Height: r.Dy()}
			c.Tracks = append(c.Tracks, t)
			depends = append(depends, name)
			tile = append(tile, &track{Track: add(name, timeouts), priority: 128})
		}
		p.tiles = append(p.tiles, tile)
	}
	c.Tracks = append(c.Tracks, catalog.NewRatesTrack(depends...))
	p.rates = add(catalog.RatesTrack, nil)
	doc, err := c.Marshal()
	if err != nil {
		return nil, err
	}
	return p, add(
		catalog.TrackName, nil,
	).WriteObject(wire.SubgroupHeader{Group: 1, Priority: 32, EndOfGroup: true, FirstObject: true}, moqt.Object{}, doc)
}

// Run publishes until ctx is done. It starts the first group immediately.
func (p *Publisher) Run(ctx context.Context) error {
	began := time.Now()
	first := uint64(began.UnixMilli())
	tick := time.NewTimer(0)
	defer tick.Stop()
	for n := 0; ; n++ {
		at := began.Add(time.Duration(n) * time.Second / time.Duration(p.film.FPS))
		tick.Reset(time.Until(at))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		number, frame := n/p.film.FPS, n%p.film.FPS
		group, gop := first+uint64(number), number%p.film.GOPs
		write := func(t *track, tile, quality int) error {
			properties := loc.Properties{Timestamp: at}
			if frame == 0 {
				properties.VideoConfig = p.film.Config(tile, quality)
				f, err := t.OpenSubgroup(
					wire.SubgroupHeader{
						Group:         group,
						Mode:          wire.SubgroupIDExplicit,
						Priority:      t.priority,
						HasProperties: true,
						EndOfGroup:    true,
						FirstObject:   true,
					},
				)
				if err != nil {
					return err
				}
				t.feed = f
			}
			err := t.feed.WriteObject(
				moqt.Object{ID: uint64(frame), Properties: properties.Append(nil)}, p.film.Frame(gop, tile, quality, frame),
			)
			if err == nil && frame == p.film.FPS-1 {
				err = t.feed.Close()
			}
			return err
		}
		if err := write(p.video, Video, 0); err != nil {
			return err
		}
		for i, tile := range p.tiles {
			for q, t := range tile {
				if err := write(t, i, q); err != nil {
					return err
				}
			}
		}
		if frame == p.film.FPS-1 {
			b, err := json.Marshal([]catalog.Rates{{T: at.UnixMilli(), Data: p.film.Rates(gop)}})
			if err != nil {
				return err
			}
			h := wire.SubgroupHeader{Group: group, Priority: 32, EndOfGroup: true, FirstObject: true}
			if err := p.rates.WriteObject(h, moqt.Object{}, b); err != nil {
				return err
			}
		}
	}
}
