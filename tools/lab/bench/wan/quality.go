package wan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	images "holocast/tools/lab/bench/internal/picture"

	"holocast/internal/camera"
	"holocast/internal/pointcloud"
	"holocast/internal/qoe"
	"holocast/tools/lab/bench/internal/cputime"
	"holocast/tools/lab/bench/internal/quantile"
)

// The codecs.
const (
	layoutW = "W"
	layoutA = "A, lossless"
	layoutC = "C, LiveScan3D"
	rvl     = "RVL and JPEG"
	folded  = "folded depth in H.264"
	draco   = "Draco"
)

const liveScanLevel = 2 // LiveScan3D's zstd level

// codecs lists the codecs that Run compares, in table order.
var codecs = []struct {
	name string
	open func(s *sequence) (coder, error)
}{
	{layoutW, func(s *sequence) (coder, error) { return newVideoCoder(s.rays.Width, s.rays.Height, 0, 0) }},
	{layoutA, func(s *sequence) (coder, error) { return newFrameCoder(pointcloud.LayoutGrid, 0, &s.rays) }},
	{layoutC, func(s *sequence) (coder, error) {
		return newFrameCoder(pointcloud.LayoutInterleaved, liveScanLevel, &s.rays)
	}},
	{rvl, func(*sequence) (coder, error) { return newRVLCoder() }},
	{folded, func(s *sequence) (coder, error) { return newFoldedCoder(s.rays.Width, s.rays.Height) }},
}

// The scenes.
const (
	sceneStill    = "static room"
	sceneMoving   = "moving performer"
	sceneRecorded = "recorded room"
)

// Scene holds the codecs' figures on one scene.
type Scene struct {
	Name    string  `json:"name"`
	Cameras int     `json:"cameras"`
	Frames  int     `json:"frames"` // of each camera
	Points  float64 `json:"points"` // mean of a frame
	Sensor  Errors  `json:"sensor"` // of the sensor's readings
	Moving  Errors  `json:"sensor_moving"`
	Color   float64 `json:"sensor_color_psnr"`

	// Appearance describes the sensor's readings.
	Appearance
	Coded []Coded `json:"coded"`
}

// Coded holds a codec's figures. Depth errors are differences from the pixel's exact depth.
type Coded struct {
	Name          string  `json:"name"`
	Mbps          float64 `json:"mbps"` // of one camera at 30 frames per second
	MbpsFour      float64 `json:"mbps_four,omitempty"`
	KeyBytes      int     `json:"key_bytes,omitempty"`
	BytesPerPoint float64 `json:"bytes_per_point"`
	Depth         Errors  `json:"depth"`
	Moving        Errors  `json:"moving"`
	ColorPSNR     float64 `json:"color_psnr"` // to the exact colour
	Appearance
	EncodeMs float64 `json:"encode_ms"` // median CPU time
	DecodeMs float64 `json:"decode_ms"`

	Bytes []int `json:"bytes,omitempty"` // of each frame, over all cameras
}

// Appearance compares clouds and their pictures with the exact depth's.
type Appearance struct {
	D1       float64 `json:"d1_psnr"` // dB, peak 8191 mm
	D2       float64 `json:"d2_psnr"`
	ViewPSNR float64 `json:"view_psnr,omitempty"` // dB
	ViewSSIM float64 `json:"view_ssim,omitempty"`
}

// extent is how much of the scenes Run measures.
type extent struct {
	quick         bool
	still, moving int // frames
	warmup        int // frames of moving before rate control is measured
	recorded      int // cameras
	shots         []int
	views         int // per shot
	qpStep        int // between the points of the curve
}

func extentOf(quick bool) extent {
	if quick {
		return extent{
			quick: true, still: fps / 2, moving: fps, warmup: fps / 3, recorded: 1, shots: []int{12}, views: 1, qpStep: 8,
		}
	}
	return extent{still: 2 * fps, moving: loop, warmup: fps, recorded: cameras, shots: []int{40, 55}, views: 3, qpStep: 4}
}

// measureQuality measures all codecs on all scenes.
func (r *Result) measureQuality(ctx context.Context, o Options, moving []*sequence) error {
	x := extentOf(o.Quick)
	still, err := moving[0].still()
	if err != nil {
		return err
	}
	real, err := recorded(o.Data)
	if err != nil {
		still.close()
		return err
	}
	real = real[:min(len(real), x.recorded)]
	defer func() {
		for _, s := range append(real, still) {
			s.close()
		}
	}()
	for _, c := range []struct {
		name      string
		sequences []*sequence
		frames    int
	}{{sceneStill, []*sequence{still}, x.still}, {sceneMoving, moving, x.moving}, {sceneRecorded, real, x.still}} {
		if len(c.sequences) == 0 {
			fmt.Fprintf(o.Log, "%s: no HOLOCAST_DATA\n", c.name)
			continue
		}
		m := newMeasurement(c.name, c.sequences, x)
		if err := m.run(ctx, c.frames, o.Log); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if hasDraco() && !o.Quick {
			r.Draco = true
			if err := m.draco(ctx); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		r.Scenes = append(r.Scenes, m.Scene)
		r.pictures = append(r.pictures, m.pictures...)
	}
	if r.Curve, err = curve(ctx, moving[0], x, o.Log); err != nil {
		return err
	}
	r.Rates, err = rates(ctx, moving, x, o.Log)
	return err
}

// measurement measures codecs on one scene.
type measurement struct {
	Scene
	extent
	sequences []*sequence
	totals    []totals // by codec; the last one is the sensor
	exact     []shot   // by index in shots
	points    int
	pictures  []picture
}

// totals are a codec's sums over a scene.
type totals struct {
	bytes, keyBytes, keys int
	perFrame              []int
	depth, moving         depthErrors
	color                 colorError
	encodeMs, decodeMs    []float64
	shots                 []shot
	clouds                [2][]float64 // D1 and D2
	view                  [2][]float64 // squared error and similarity
}

func newMeasurement(name string, from []*sequence, x extent) *measurement {
	m := &measurement{Scene: Scene{Name: name, Cameras: len(from)}, extent: x, sequences: from}
	m.totals, m.exact = make([]totals, len(codecs)+1), make([]shot, len(x.shots))
	for i := range m.totals {
		m.totals[i].shots = make([]shot, len(x.shots))
	}
	return m
}

func (m *measurement) run(ctx context.Context, frames int, log io.Writer) error {
	m.Frames = frames
	for i, s := range m.sequences {
		fmt.Fprintf(log, "%s: camera %d, %d frames\n", m.Name, i, frames)
		if err := m.camera(ctx, s, uint64(i)); err != nil {
			return err
		}
	}
	m.Points = float64(m.points) / float64(frames*len(m.sequences))
	if err := m.compare(ctx); err != nil {
		return err
	}
	for i, c := range codecs {
		m.Coded = append(m.Coded, m.coded(c.name, &m.totals[i]))
	}
	sensor := &m.totals[len(codecs)]
	m.Sensor, m.Moving, m.Appearance = sensor.depth.summary(), sensor.moving.summary(), sensor.appearance()
	m.Color = sensor.color.psnr()
	return nil
}

// camera codes a camera's frames with all codecs in turn.
func (m *measurement) camera(ctx context.Context, s *sequence, seed uint64) error {
	runtime.LockOSThread() // for cputime.Thread
	defer runtime.UnlockOSThread()
	s.restart(seed)
	var coders []coder
	defer func() {
		for _, c := range coders {
			c.close()
		}
	}()
	for _, c := range codecs {
		opened, err := c.open(s)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		coders = append(coders, opened)
	}
	var g, ideal, decoded pointcloud.Grid
	var object []byte
	var previous []uint16
	for k := range m.Frames {
		if err := ctx.Err(); err != nil {
			return err
		}
		exact, err := s.capture(k, &g)
		if err != nil {
			return err
		}
		if err := s.ideal(k, &ideal); err != nil {
			return err
		}
		frame := frame{k: k, exact: exact, shot: slices.Index(m.shots, k)}
		if previous != nil && len(s.exact) > 1 {
			frame.moving = moving(exact, previous)
		}
		previous = exact
		for i, c := range coders {
			start := cputime.Thread()
			if object, err = c.encode(object[:0], &g); err != nil {
				return fmt.Errorf("%s: %w", codecs[i].name, err)
			}
			encoded := cputime.Thread()
			if err := c.decode(&decoded, object); err != nil {
				return fmt.Errorf("%s: %w", codecs[i].name, err)
			}
			t := &m.totals[i]
			t.decodeMs = append(t.decodeMs, (cputime.Thread()-encoded).Seconds()*1e3)
			t.encodeMs = append(t.encodeMs, (encoded-start).Seconds()*1e3)
			t.count(frame, len(object))
			t.add(frame, &ideal, &decoded)
		}
		m.totals[len(codecs)].add(frame, &ideal, &g)
		m.points += points(&g)
		if frame.shot >= 0 {
			m.exact[frame.shot].grids = append(m.exact[frame.shot].grids, clone(&ideal))
		}
	}
	return nil
}

// frame is a captured frame.
type frame struct {
	k      int
	exact  []uint16
	moving []bool // nil if nothing moves
	shot   int    // index in shots, or -1
}

func (t *totals) count(f frame, bytes int) {
	t.bytes += bytes
	if f.k%group == 0 {
		t.keyBytes, t.keys = t.keyBytes+bytes, t.keys+1
	}
	if f.k >= len(t.perFrame) {
		t.perFrame = append(t.perFrame, 0)
	}
	t.perFrame[f.k] += bytes
}

// add compares a frame with the exact depth and with ideal's exact colour.
func (t *totals) add(f frame, ideal, decoded *pointcloud.Grid) {
	t.depth.add(f.exact, decoded.Depth, nil)
	if f.moving != nil {
		t.moving.add(f.exact, decoded.Depth, f.moving)
	}
	t.color.add(ideal, decoded)
	if f.shot >= 0 {
		t.shots[f.shot].grids = append(t.shots[f.shot].grids, clone(decoded))
	}
}

func clone(g *pointcloud.Grid) pointcloud.Grid {
	return pointcloud.Grid{
		Width: g.Width, Height: g.Height, Depth: slices.Clone(g.Depth), Color: slices.Clone(g.Color),
	}
}

func points(g *pointcloud.Grid) (n int) {
	for _, d := range g.Depth {
		if d != 0 {
			n++
		}
	}
	return n
}

// compare compares the clouds of the first camera's shots and the pictures of all cameras' shots.
func (m *measurement) compare(ctx context.Context) error {
	rays := &m.sequences[0].rays
	for k := range m.shots {
		if len(m.exact[k].grids) == 0 {
			continue
		}
		exact := exactCloud(tenfold(m.exact[k].grids[0].Depth), rays)
		fit, _ := m.exact[k].clouds(m.sequences)
		for i := range m.totals {
			if err := ctx.Err(); err != nil {
				return err
			}
			t := &m.totals[i]
			d1, d2 := distortion(exact, gridCloud(&t.shots[k].grids[0], rays))
			t.clouds[0], t.clouds[1] = append(t.clouds[0], d1), append(t.clouds[1], d2)
		}
		for v := range m.views {
			at := (float64(k) + float64(v)/float64(m.views)) / float64(len(m.shots))
			if err := m.look(ctx, k, fit, at); err != nil {
				return err
			}
		}
	}
	return m.picture()
}

// look compares all codecs' pictures from one point of the walk.
func (m *measurement) look(ctx context.Context, k int, fit []pointcloud.Points, at float64) error {
	ideal, err := m.exact[k].view(m.sequences, fit, at)
	if err != nil {
		return err
	}
	bright := images.Luma(ideal)
	for i := range m.totals {
		if err := ctx.Err(); err != nil {
			return err
		}
		t := &m.totals[i]
		img, err := t.shots[k].view(m.sequences, fit, at)
		if err != nil {
			return err
		}
		t.view[0] = append(t.view[0], pictureError(ideal, img))
		t.view[1] = append(t.view[1], images.SSIM(bright, images.Luma(img), viewWidth, viewHeight, nil))
	}
	return nil
}

func (t *totals) appearance() Appearance {
	return Appearance{
		D1: cloudPSNR(mean(t.clouds[0])), D2: cloudPSNR(mean(t.clouds[1])),
		ViewPSNR: psnr(255*255, mean(t.view[0])), ViewSSIM: qoe.Round(mean(t.view[1]), 4),
	}
}

func (m *measurement) coded(name string, t *totals) Coded {
	perCamera := mbps(t.bytes, m.Frames*m.Cameras)
	c := Coded{
		Name: name, Mbps: perCamera, KeyBytes: t.keyBytes / max(1, t.keys),
		BytesPerPoint: qoe.Round(float64(t.bytes)/float64(max(1, m.points)), 4),
		Depth:         t.depth.summary(), Moving: t.moving.summary(), ColorPSNR: t.color.psnr(),
		Appearance: t.appearance(),
		EncodeMs:   qoe.Round(quantile.Of(t.encodeMs, 0.5), 2), DecodeMs: qoe.Round(quantile.Of(t.decodeMs, 0.5), 2),
		Bytes: t.perFrame,
	}
	if m.Cameras == cameras {
		c.MbpsFour = qoe.Round(4*perCamera, 2)
	}
	return c
}

// draco adds Draco's figures on the first camera's shots.
func (m *measurement) draco(ctx context.Context) error {
	var t totals
	rays := &m.sequences[0].rays
	for k := range m.shots {
		sensor := &m.totals[len(codecs)].shots[k].grids[0]
		f, err := encodeDraco(ctx, sensor.Transform(rays, camera.Identity))
		if err != nil {
			return err
		}
		t.bytes += f.bytes
		t.encodeMs, t.decodeMs = append(t.encodeMs, f.encodeMs), append(t.decodeMs, f.decodeMs)
		d1, d2 := distortion(exactCloud(tenfold(m.exact[k].grids[0].Depth), rays), f.cloud)
		t.clouds[0], t.clouds[1] = append(t.clouds[0], d1), append(t.clouds[1], d2)
	}
	perCamera := mbps(t.bytes, len(m.shots))
	m.Coded = append(m.Coded, Coded{
		Name: draco, Mbps: perCamera, BytesPerPoint: qoe.Round(float64(t.bytes)/float64(len(m.shots))/m.Points, 4),
		Appearance: Appearance{D1: cloudPSNR(mean(t.clouds[0])), D2: cloudPSNR(mean(t.clouds[1]))},
		EncodeMs:   quantile.Of(t.encodeMs, 0.5), DecodeMs: quantile.Of(t.decodeMs, 0.5),
	})
	return nil
}

// mbps returns the bit rate of frames at 30 frames per second.
func mbps(bytes, frames int) float64 {
	return qoe.Round(8*fps*float64(bytes)/float64(max(1, frames))/1e6, 2)
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(max(1, len(v)))
}

// tenfold converts depth from mm to units of tenth.
func tenfold(depth []uint16) []uint16 {
	out := make([]uint16, len(depth))
	for i, d := range depth {
		out[i] = uint16(min(10*uint32(d), 1<<16-1))
	}
	return out
}

// Point is layout W at one pair of quantizers.
type Point struct {
	DepthQP   int     `json:"depth_qp"`
	ColorQP   int     `json:"color_qp"`
	Mbps      float64 `json:"mbps"` // of one camera
	Depth     Errors  `json:"depth"`
	ColorPSNR float64 `json:"color_psnr"`
}

// curve codes a sequence in layout W at several quantizers.
func curve(ctx context.Context, s *sequence, x extent, log io.Writer) (list []Point, err error) {
	for qp := 12; qp <= coarseQP; qp += x.qpStep {
		p := Point{DepthQP: qp, ColorQP: qp + 2}
		c, err := newVideoCoder(s.rays.Width, s.rays.Height, p.DepthQP, p.ColorQP)
		if err != nil {
			return nil, err
		}
		err = p.measure(ctx, s, c, x.moving)
		c.close()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(log, "layout W, quantizers %d and %d: %.2f Mbit/s, %.2f mm\n", p.DepthQP, p.ColorQP, p.Mbps,
			p.Depth.MeanMm)
		list = append(list, p)
	}
	return list, nil
}

func (p *Point) measure(ctx context.Context, s *sequence, c coder, frames int) error {
	var t totals
	var g, ideal, decoded pointcloud.Grid
	var object []byte
	s.restart(0)
	for k := range frames {
		exact, err := s.capture(k, &g)
		if err == nil {
			err = errors.Join(s.ideal(k, &ideal), ctx.Err())
		}
		if err != nil {
			return err
		}
		if object, err = c.encode(object[:0], &g); err != nil {
			return err
		}
		if err := c.decode(&decoded, object); err != nil {
			return err
		}
		t.bytes += len(object)
		t.depth.add(exact, decoded.Depth, nil)
		t.color.add(&ideal, &decoded)
	}
	p.Mbps, p.Depth, p.ColorPSNR = mbps(t.bytes, frames), t.depth.summary(), t.color.psnr()
	return nil
}
