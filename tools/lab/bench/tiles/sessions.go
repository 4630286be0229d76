package tiles

import (
	"context"
	"fmt"
	"io"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/tools/holocast/player/sphere"
	"holocast/tools/holocast/player/sphere/spheretest"
)

// The path of a session: one-way delay, queue, and the minimum capacity, which keeps the connection
// alive where the trace has none.
const (
	sessionDelay = 20 * time.Millisecond
	sessionQueue = 150 * time.Millisecond
	leastMbit    = 0.05
)

// viewings makes a viewer watch with each scheme in turn and compares the schemes. watch runs one
// session; its second result is 1 if the emulator was late, else 0.
func viewings(ctx context.Context, log io.Writer, set setup, c *clip, traces []trace, nets []network,
	watch func(t trace, net network, scheme string, percentile float64) (sphere.Report, int, error),
) (*Sessions, error) {
	r := &Sessions{
		Heads: set.sessionHeads, Networks: set.sessionNetworks, Seconds: set.sessionGOPs,
		Schemes: map[string]SessionFigures{},
		Gains:   map[string]Gain{}, Began: time.Now(),
	}
	all := map[string]*gains{}
	for n := range set.sessionNetworks {
		net := nets[n].scaled(2*c.bytes(c.qualities/2), set.sessionGOPs)
		for h := range set.sessionHeads {
			var ours sphere.Report
			for _, s := range sessionSchemes {
				report, late, err := watch(traces[h], net, s.name, s.percentile)
				if err == nil {
					err = ctx.Err()
				}
				if err != nil {
					return nil, fmt.Errorf("%s over %s: %w", s.key, net.name, err)
				}
				fmt.Fprintf(log, "%s, %s, %s: %v\n", net.name, traces[h].name, s.key, report)
				r.Late += late
				f := r.Schemes[s.key]
				f.add(report, float64(set.sessionNetworks*set.sessionHeads))
				f.Percentile = s.percentile
				r.Schemes[s.key] = f
				if s.name == Ours {
					ours = report
					continue
				}
				if all[s.key] == nil {
					all[s.key] = newGains(set.sessionHeads)
				}
				all[s.key].add(h, ours.PSNRMean-report.PSNRMean, ours.PSNRP5-report.PSNRP5,
					ours.StallRatio-report.StallRatio)
			}
		}
	}
	for key, g := range all {
		r.Gains[key] = g.gain()
	}
	return r, nil
}

func readCatalog(ctx context.Context, s *moqt.Session, ns moqt.Namespace) (*catalog.Catalog, error) {
	f, err := s.Fetch(ctx, moqt.TrackName{Namespace: ns, Name: catalog.TrackName}, moqt.Location{Group: 1},
		moqt.Location{Group: 1}, moqt.FetchOptions{})
	if err != nil {
		return nil, err
	}
	defer f.Cancel()
	if _, err := f.Next(); err != nil {
		return nil, err
	}
	doc, err := f.ReadPayload(nil, catalog.MaxSize)
	if err != nil {
		return nil, err
	}
	return catalog.Parse(doc)
}

// film returns the clip in the form that a session publishes.
func (c *clip) film() spheretest.Film {
	of := func(tile, quality int) *stream {
		if tile == spheretest.Video {
			return &c.encodedLow
		}
		return &c.encoded[tile][quality]
	}
	return spheretest.Film{
		Sphere: catalog.Sphere{
			Projection: catalog.ProjectionEquirectangular, Stereo: catalog.StereoMono, Width: c.grid.Width,
			Height:  c.grid.Height,
			Columns: c.grid.Columns, Rows: c.grid.Rows, Qualities: c.qualities,
		},
		VideoWidth: c.lowWidth, VideoHeight: c.lowHeight, FPS: fps, GOPs: len(c.gops), Latency: time.Second,
		Frame:  func(gop, tile, quality, frame int) []byte { return of(tile, quality).frames[gop*fps+frame] },
		Config: func(tile, quality int) []byte { return of(tile, quality).config },
		Rates: func(gop int) (r catalog.RatesData) {
			g := &c.gops[gop]
			for t := range c.grid.Tiles() {
				var bytes []*int64
				var mse []*float64
				for q := range c.qualities {
					bytes = append(bytes, new(int64(g.Bytes[t*c.qualities+q])))
					mse = append(mse, new(g.Distortion[t*c.qualities+q]))
				}
				r.Bytes, r.MSE, r.Missing = append(r.Bytes, bytes), append(r.MSE, mse), append(r.Missing, g.Miss[t])
			}
			return r
		},
	}
}

// add adds one session's contribution to the mean over the given number of sessions.
func (f *SessionFigures) add(r sphere.Report, of float64) {
	f.PSNRMean += r.PSNRMean / of
	f.PSNRP5 += r.PSNRP5 / of
	f.Stall += r.StallRatio / of
	f.Wasted += r.WastedRatio / of
	f.Hits += r.TileHits / of
	f.Mbps += r.MbitPerS / of
	f.QualityMs += r.MotionToQualityMS / of
	f.Messages += r.MessagesPerGOP / of
}
