//go:build linux

package duplication

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"holocast/internal/camera"
	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
	"holocast/internal/pointcloud"
	"holocast/internal/recording"
)

// media is the source of a level's frames.
type media struct {
	level level
	app   App
	data  string // recordings of real cameras; "" means the synthetic performer
	file  string // frames encoded beforehand; "" = live
}

// capture returns the capture server's arguments, except those for the session.
func (m *media) capture(rate int) []string {
	from := "synthetic"
	if m.data != "" {
		from = "livescan:" + filepath.Join(m.data, "livescan_testdata")
	}
	return []string{
		"--source", from, "--cameras", "1", "--calibration", "none", "--low=false", "--layout", "a",
		"--depth-mode", "NFOV_UNBINNED", "--color-mode", m.level.color, "--geometry", m.level.geometry, "--fps",
		fmt.Sprint(rate),
	}
}

// start starts the level's publisher.
func (m *media) start(p *programs, node *netlab.Node, dir, url, hash string) (*process, error) {
	if m.file == "" {
		return p.start(node, dir, "capture-server", append(m.capture(fps), "--certificate-hash", hash, url)...)
	}
	return p.start(node, dir, "holocast", "replay", m.file, url, "--certificate-hash", hash, "--loop", "--live")
}

// openMedia encodes a level's frames unless the level is live.
func openMedia(ctx context.Context, p *programs, l level, o Options, dir string) (*media, error) {
	m := &media{level: l, app: o.App, data: o.Data}
	if l.live && !o.App.requests() {
		return m, nil
	}
	points := 0
	if o.App.requests() {
		points = l.points
	}
	dir = filepath.Join(dir, l.name+"-encode")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return nil, err
	}
	raw := filepath.Join(dir, "recorded.mcap")
	if err := m.record(ctx, p, dir, raw); err != nil {
		return nil, fmt.Errorf("%s: encode: %w", l.name, err)
	}
	m.file = filepath.Join(dir, "second.mcap")
	if err := retime(raw, m.file, points); err != nil {
		return nil, fmt.Errorf("%s: encode: %w", l.name, err)
	}
	return m, os.Remove(raw)
}

// record makes the capture server encode a few frames at a low rate.
func (m *media) record(ctx context.Context, p *programs, dir, path string) (err error) {
	t, err := topology.Builtin("lan")
	if err != nil {
		return err
	}
	lab, err := netlab.Start(t, netlab.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	var g group
	defer g.stop()
	node := lab.Node(source)
	url, hash, err := p.startRelay(ctx, &g, node, dir)
	if err != nil {
		return err
	}
	x, err := p.start(node, dir, "capture-server", append(m.capture(4), "--certificate-hash", hash, url)...)
	if err != nil {
		return err
	}
	g.add(x)
	rec, err := p.start(node, dir, "holocast", "record", url, path, "--certificate-hash", hash, "--wait", "--duration",
		"2500ms")
	if err != nil {
		return err
	}
	select {
	case <-rec.done:
	case <-time.After(3 * time.Minute): // rendering the synthetic performer takes time
		rec.kill()
	case <-ctx.Done():
		rec.kill()
		return ctx.Err()
	}
	if rec.err != nil {
		return rec.failure()
	}
	return nil
}

// retime writes one second of a recording's frames exactly 1/fps apart, so that a looped replay is
// as regular as a camera. points limits the points per frame; 0 means no limit.
func retime(from, to string, points int) (err error) {
	r, err := recording.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // read-only
	var frames, others []recording.Object
	isFrame := func(t moqt.TrackName) bool {
		ok, _ := filepath.Match("points/*/*", t.Name)
		return ok
	}
	for {
		o, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		switch {
		case o.EndOnly: // ends a frame's subgroup, which has one object
		case isFrame(o.Track):
			frames = append(frames, o)
		default:
			others = append(others, o)
		}
	}
	if len(frames) == 0 {
		return errors.New("the recording contains no frame")
	}
	if len(frames) > 1 {
		frames = frames[:len(frames)&^1] // the data's two frames alternate
	}
	if points > 0 {
		if err := thin(frames, others, points); err != nil {
			return err
		}
	}
	w, err := recording.Create(to, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for _, t := range r.Info.Tracks {
		if err := w.AddTrack(t); err != nil {
			return err
		}
	}
	start := r.Info.Start
	for _, o := range others {
		o.Arrival = start
		if err := w.Write(o); err != nil {
			return err
		}
	}
	for i := range fps {
		o := frames[i%len(frames)]
		o.Arrival = start.Add(time.Duration(i) * time.Second / fps)
		o.Group, o.End = frames[0].Group+uint64(i), recording.EndFIN
		if err := w.Write(o); err != nil {
			return err
		}
	}
	return nil
}

// thin reduces each frame to the given number of evenly chosen points and encodes it in layout B,
// so that the decoder need not search the grid for points. It takes the ray table from the catalogs
// in others and changes their layout.
func thin(frames, others []recording.Object, points int) error {
	var rays camera.RayTable
	for i, o := range others {
		if o.Track.Name != catalog.TrackName {
			continue
		}
		c, err := catalog.Parse(o.Payload)
		if err != nil {
			return err
		}
		for k := range c.Tracks {
			t := &c.Tracks[k]
			if t.Points == nil {
				continue
			}
			init, err := c.Init(*t)
			if err != nil {
				return err
			}
			rays = init.Grid.RayTable()
			t.Points.Layout, t.Points.MaxPoints = pointcloud.LayoutPoints.String(), points
		}
		if others[i].Payload, err = c.Marshal(); err != nil {
			return err
		}
	}
	decoder, err := pointcloud.NewDecoder()
	if err != nil {
		return err
	}
	defer decoder.Close()
	encoder, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{})
	if err != nil {
		return err
	}
	defer encoder.Close()
	for i := range frames {
		var f, thinned pointcloud.Frame
		h, err := decoder.Decode(&f, frames[i].Payload)
		if err != nil {
			return err
		}
		if len(rays.X) != len(f.Grid.Depth) {
			return fmt.Errorf("frame has %d pixels, but the catalog has %d", len(f.Grid.Depth), len(rays.X))
		}
		rest := 0
		for k, d := range f.Grid.Depth {
			if d == 0 {
				continue
			}
			if rest += points; rest < int(h.Points) {
				f.Grid.Depth[k] = 0
			} else {
				rest -= int(h.Points)
			}
		}
		thinned.SetGrid(pointcloud.LayoutPoints, &f.Grid, &rays)
		if frames[i].Payload, err = encoder.Encode(nil, h, &thinned, 0); err != nil {
			return err
		}
	}
	return nil
}
