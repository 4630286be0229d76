//go:build linux

package tiles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
	"holocast/internal/quiccc"
	"holocast/tools/bench/internal/direct"
	"holocast/tools/holocast/player/sphere"
	"holocast/tools/holocast/player/sphere/spheretest"
)

// sessionDelay is the one-way delay of the emulated path, and leastMbit what it carries in
// seconds in which the trace carried nothing: enough to keep a connection.
const (
	sessionDelay = 20 * time.Millisecond
	sessionQueue = 150 * time.Millisecond
	leastMbit    = 0.05
)

// sessions has a viewer watch over an emulated path, by every scheme in turn.
func sessions(ctx context.Context, log io.Writer, set setup, c *clip, traces []trace, nets []network) (*Sessions, error) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(log, "real sessions are left out: network namespaces need root")
		return nil, nil
	}
	if err := netlab.Supported(); err != nil {
		return nil, err
	}
	if !quiccc.Patched() {
		return nil, errors.New("this program has quic-go's own congestion control, and streams without priority: build it with the tree of tools/quicpatch (make build)")
	}
	r := &Sessions{Heads: set.sessionHeads, Networks: set.sessionNetworks, Seconds: set.sessionGOPs, Schemes: map[string]SessionFigures{},
		Gains: map[string]Gain{}, Began: time.Now()}
	all := map[string]*gains{}
	for n := range set.sessionNetworks {
		net := nets[n].scaled(2*c.bytes(c.qualities/2), set.sessionGOPs)
		for h := range set.sessionHeads {
			var ours sphere.Report
			for _, s := range sessionSchemes {
				report, failures, err := session(ctx, c, traces[h], net, s.name, s.percentile, set.sessionGOPs)
				if err := errors.Join(err, ctx.Err()); err != nil {
					return nil, fmt.Errorf("%s over %s: %w", s.key, net.name, err)
				}
				fmt.Fprintf(log, "%s, %s, %s: %v\n", net.name, traces[h].name, s.key, report)
				r.Late += failures
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
				all[s.key].add(h, ours.PSNRMean-report.PSNRMean, ours.PSNRP5-report.PSNRP5, ours.StallRatio-report.StallRatio)
			}
		}
	}
	for key, g := range all {
		r.Gains[key] = g.gain()
	}
	return r, nil
}

// session is one viewing.
func session(ctx context.Context, c *clip, t trace, net network, scheme string, percentile float64, gops int) (report sphere.Report, late int, err error) {
	var schedule strings.Builder
	mbit := func(second int) float64 { return max(leastMbit, 8e-6*net.at(float64(second))) }
	for i := 1; i < gops+20; i++ {
		fmt.Fprintf(&schedule, "      - {at: %ds, rate: %.3fMbit, direction: forward}\n", i, mbit(i))
	}
	top, err := topology.Parse(fmt.Appendf(nil, `name: tiles
hosts: [a, b]
paths:
  - name: path
    between: [a, b]
    rate: %.3fMbit
    backward: {rate: 20Mbit}
    delay: %v
    queue: %v
    schedule:
%s`, mbit(0), sessionDelay, sessionQueue, schedule.String()))
	if err != nil {
		return report, 0, err
	}
	lab, err := netlab.Start(top, netlab.Options{})
	if err != nil {
		return report, 0, err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	ns := moqt.Namespace{"holocast", "bench"}
	publisher, err := spheretest.New(ns, c.film())
	if err != nil {
		return report, 0, err
	}
	var server *direct.Server
	if err := lab.Node("a").Namespace.Do(func() (err error) {
		server, err = direct.Listen(lab.Node("a").Addr, publisher.Set.Handler())
		return err
	}); err != nil {
		return report, 0, err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	failed := make(chan error, 2)
	running.Go(func() { failed <- publisher.Run(ctx) })
	select { // the rates of GoPs come when they have ended
	case <-time.After(2200 * time.Millisecond):
	case <-ctx.Done():
		return report, 0, ctx.Err()
	}
	var s *moqt.Session
	if err := lab.Node("b").Namespace.Do(func() (err error) {
		s, err = server.Dial(ctx)
		return err
	}); err != nil {
		return report, 0, err
	}
	defer s.Close(wire.NoError, "")
	cat, err := readCatalog(ctx, s, ns)
	if err != nil {
		return report, 0, err
	}
	v, err := sphere.New(sphere.Config{Head: t.head.At, Crowd: t.crowd, Viewport: fieldOfView, Scheme: scheme, Percentile: percentile, Log: direct.Quiet.Log})
	if err != nil {
		return report, 0, err
	}
	defer v.Close()
	v.Configure(cat, func(track catalog.Track) moqt.TrackName { return moqt.TrackName{Namespace: ns, Name: track.Name} })
	if err := lab.Begin(); err != nil {
		return report, 0, err
	}
	running.Go(func() { failed <- v.Play(ctx, s) })
	for limit := time.After(time.Duration(gops+20) * time.Second); v.Report().GOPs < gops; {
		select {
		case err := <-failed:
			return report, 0, fmt.Errorf("the session ended: %w", err)
		case <-limit:
			return v.Report(), 0, nil // what stalled so long that it did not come
		case <-time.After(50 * time.Millisecond):
		}
	}
	report = v.Report()
	lr, err := lab.Finish()
	if err == nil && len(lr.Failures) > 0 {
		late = 1
	}
	return report, late, err
}

func readCatalog(ctx context.Context, s *moqt.Session, ns moqt.Namespace) (*catalog.Catalog, error) {
	f, err := s.Fetch(ctx, moqt.TrackName{Namespace: ns, Name: catalog.TrackName}, moqt.Location{Group: 1}, moqt.Location{Group: 1}, moqt.FetchOptions{})
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

// film is the clip as a session publishes it.
func (c *clip) film() spheretest.Film {
	of := func(tile, quality int) *stream {
		if tile == spheretest.Video {
			return &c.encodedLow
		}
		return &c.encoded[tile][quality]
	}
	return spheretest.Film{
		Sphere: catalog.Sphere{Projection: catalog.ProjectionEquirectangular, Stereo: catalog.StereoMono, Width: c.grid.Width, Height: c.grid.Height,
			Columns: c.grid.Columns, Rows: c.grid.Rows, Qualities: c.qualities},
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

// add adds a viewing to the means over so many.
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
