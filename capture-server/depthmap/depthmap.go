// Package depthmap maps one camera's captures to point-cloud grids: depth in millimetres and a
// colour for each pixel. The pixels are either the depth camera's, where every reading appears once
// with its colour looked up, or the colour camera's, where depth is rendered into its image, which
// gives more points. The package filters depth, but does not capture, calibrate or encode.
package depthmap

// #cgo CFLAGS: -O3
// #include "kernels.h"
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"holocast/capture-server/source"
	"holocast/internal/camera"
	"holocast/internal/mjpeg"
	"holocast/internal/pointcloud"
)

// Geometry selects the camera whose pixels form the grid.
type Geometry string

const (
	// DepthGeometry keeps the depth camera's pixels. Every reading becomes a point, coloured by the
	// colour camera. Points outside the colour camera's image or occluded from it are dropped.
	DepthGeometry Geometry = "depth"
	// ColorGeometry renders the depth image into the colour camera, like
	// k4a_transformation_depth_image_to_color_camera: every colour pixel on a surface becomes a
	// point.
	ColorGeometry Geometry = "color"
)

// Defaults of capture-server for Config.
const (
	DefaultGrazing    = 10 // degrees
	DefaultColorInset = 1  // pixels
)

// Config configures a Mapper. The zero value keeps every point, in depth geometry, with the camera
// at the studio's origin.
type Config struct {
	Geometry Geometry // "" is DepthGeometry

	// DepthMin and DepthMax bound the readings kept, in millimetres; a DepthMax of 0 means no upper
	// bound.
	DepthMin, DepthMax uint16

	// Crop keeps the points inside a box in studio space; nil keeps all.
	Crop *Box

	// Grazing drops points where the surface on both sides, in a row, column or diagonal of the depth
	// image, is seen at less than this angle in degrees: flying pixels, which mix foreground and
	// background at an edge. A hole counts as one side. 0 is off, at most 45.
	Grazing  float64
	Isolated Isolated
	Erode    Erode

	// ColorInset takes the colors of points on the edge of a surface from this many depth pixels
	// inside it: at the edge itself the color camera mixes in the foreground or background. 0 is
	// off, at most 3.
	ColorInset int

	// Pose maps the depth camera's space to studio space. The zero Transform is Identity.
	Pose camera.Transform

	// Gain is applied to colours.
	Gain Gain
}

// Box is an axis-aligned box in studio space, in millimetres.
type Box struct {
	Min, Max [3]float64
}

// Erode drops points near depth edges and holes, where a depth camera mixes foreground and
// background. It drops a point if the square window of Radius pixels to each side contains a hole
// or a reading more than Step nearer. It is the minimum filter of LiveScan3D's depth-map filter
// (OpenCV's erode), but drops readings where LiveScan3D replaces them with the minimum.
type Erode struct {
	Radius int // pixels, 0 (off) to 8
	Step   int // millimetres; 0 means 50
}

// Isolated drops points with fewer than Neighbors other points within ±Band in the square window of
// Radius pixels to each side.
type Isolated struct {
	Neighbors int // 0 means off
	Radius    int // pixels, 1 (3×3) to 3 (7×7); 0 means 1
	Band      int // millimetres, at most 250; 0 means 30
}

const (
	// Positions in a colour image are 16-bit, in units of a sixteenth of a pixel. The image may be
	// decoded at a quarter of its size.
	minSide = 16
	maxSide = 4096

	defaultStep = 50
	defaultBand = 30
	maxGrazing  = 45 // degrees
	maxInset    = 3
	maxRadius   = 8
	maxWindow   = 3
	maxBand     = 250 // below any depth reading, so a hole never counts as a neighbour

	// Occlusion test (struct cover).
	slack     = 30  // millimetres
	cellWidth = 1.6 // depth pixels

	// A triangle of the rendered depth image may span at most this fraction of its depth; a steeper
	// one connects two surfaces.
	maxSlope = 0.045
)

// ErrNoColor is wrapped by the ColorError for a capture without a colour image.
var ErrNoColor = errors.New("frame has no colour image")

// ColorError reports a capture whose colour image is missing or damaged. Its depth is mapped, with
// the colours of the previous image if that is recent, otherwise with its infrared brightness or
// grey.
type ColorError struct{ Err error }

func (e *ColorError) Error() string { return "depthmap: " + e.Err.Error() }

func (e *ColorError) Unwrap() error { return e.Err }

// Mapper maps one camera's captures. It is not safe for concurrent use.
type Mapper struct {
	cal camera.Calibration
	cfg Config
	out camera.Intrinsics

	toDepth camera.Transform // from out's space to the depth camera's

	lens   C.struct_lens
	box    C.struct_box
	reduce int // colour is decoded at 1/reduce of its size

	rayX, rayY                []float32 // rays of the depth camera's pixels
	solid, slopes             []uint16  // of the grazing filter
	clean, tmp, low           []uint16
	u, v                      []uint16
	cover                     C.struct_cover
	coverHeight               C.int32_t
	nearest                   []uint16
	edge                      []byte // marks edges of surfaces
	every                     int    // one row of depth in this many is mapped
	vertexU, vertexV, vertexZ []float32
	warped                    []uint32

	decoder *mjpeg.Decoder
	image   colorImage
	levels  *levels // nil for a gain of 1
	last    lastColor
}

// New prepares the mapping of captures with calibration cal. Errors name the wrong setting.
func New(cal camera.Calibration, cfg Config) (*Mapper, error) {
	if err := cal.Validate(); err != nil {
		return nil, fmt.Errorf("depthmap: calibration: %w", err)
	}
	if cal.Color.Width == 0 && cfg.Geometry == ColorGeometry {
		return nil, errors.New(`depthmap: geometry is "color", but the camera captures no colour; set "depth"`)
	}
	if w, h := cal.Color.Width, cal.Color.Height; w != 0 && (min(w, h) < minSide || max(w, h) > maxSide) {
		return nil, fmt.Errorf("depthmap: colour camera has %d×%d pixels, want %d to %d each way", w, h, minSide,
			maxSide)
	}
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("depthmap: %w", err)
	}
	decoder, err := mjpeg.NewDecoder()
	if err != nil {
		return nil, fmt.Errorf("depthmap: %w", err)
	}
	m := &Mapper{cal: cal, cfg: cfg, decoder: decoder, levels: cfg.Gain.levels()}
	switch cfg.Geometry {
	case DepthGeometry:
		m.out, m.toDepth, m.reduce = cal.Depth, camera.Identity, reduction(cal)
	case ColorGeometry:
		m.out, m.toDepth, m.reduce = cal.Color, cal.DepthToColor.Inverse(), 1
	}
	m.prepareRays()
	if m.colored() {
		m.prepareLens()
	}
	m.prepareBox()
	m.prepareBuffers()
	return m, nil
}

// complete applies defaults and returns an error for the first invalid setting.
func (c *Config) complete() error {
	if c.Geometry == "" {
		c.Geometry = DepthGeometry
	}
	if c.Pose == (camera.Transform{}) {
		c.Pose = camera.Identity
	}
	if c.DepthMax == 0 {
		c.DepthMax = math.MaxUint16
	}
	if c.Erode.Step == 0 {
		c.Erode.Step = defaultStep
	}
	if c.Isolated.Radius == 0 {
		c.Isolated.Radius = 1
	}
	if c.Isolated.Band == 0 {
		c.Isolated.Band = defaultBand
	}
	window := 2*c.Isolated.Radius + 1
	switch {
	case c.Geometry != DepthGeometry && c.Geometry != ColorGeometry:
		return fmt.Errorf("geometry is %q, want %q or %q", c.Geometry, DepthGeometry, ColorGeometry)
	case c.DepthMin > c.DepthMax:
		return fmt.Errorf("minimum depth %d mm exceeds maximum depth %d mm", c.DepthMin, c.DepthMax)
	case !(c.Grazing >= 0 && c.Grazing <= maxGrazing):
		return fmt.Errorf("grazing angle is %g°, want 0 to %d", c.Grazing, maxGrazing)
	case c.ColorInset < 0 || c.ColorInset > maxInset:
		return fmt.Errorf("colour inset is %d pixels, want 0 to %d", c.ColorInset, maxInset)
	case c.Erode.Radius < 0 || c.Erode.Radius > maxRadius:
		return fmt.Errorf("erode radius is %d pixels, want 0 to %d", c.Erode.Radius, maxRadius)
	case c.Erode.Step < 0 || c.Erode.Step > math.MaxUint16:
		return fmt.Errorf("erode step is %d mm, want 0 to %d", c.Erode.Step, math.MaxUint16)
	case c.Isolated.Radius < 1 || c.Isolated.Radius > maxWindow:
		return fmt.Errorf("isolated-point radius is %d pixels, want 1 to %d", c.Isolated.Radius, maxWindow)
	case c.Isolated.Neighbors < 0 || c.Isolated.Neighbors >= window*window:
		return fmt.Errorf("isolated-point filter needs %d neighbours, but its window holds %d", c.Isolated.Neighbors,
			window*window-1)
	case c.Isolated.Band < 1 || c.Isolated.Band > maxBand:
		return fmt.Errorf("isolated-point band is %d mm, want 1 to %d", c.Isolated.Band, maxBand)
	}
	if err := c.Pose.Validate(); err != nil {
		return fmt.Errorf("pose: %w", err)
	}
	if err := c.Gain.Validate(); err != nil {
		return err
	}
	if c.Crop != nil {
		for i, axis := range []string{"x", "y", "z"} {
			if !(c.Crop.Min[i] < c.Crop.Max[i]) {
				return fmt.Errorf("crop box is empty: %s from %g to %g mm", axis, c.Crop.Min[i], c.Crop.Max[i])
			}
		}
	}
	return nil
}

// reduction returns the largest factor by which colour images can be reduced on decoding without
// becoming coarser than depth images.
func reduction(cal camera.Calibration) int {
	ratio := cal.Color.Fx / cal.Depth.Fx
	switch {
	case ratio >= 3.6:
		return 4
	case ratio >= 1.8:
		return 2
	}
	return 1
}

func (m *Mapper) prepareRays() {
	table := m.cal.Depth.RayTable()
	m.rayX, m.rayY = table.X, table.Y
}

func (m *Mapper) prepareLens() {
	in, t, r := m.cal.Color, m.cal.DepthToColor.T, float64(m.reduce)
	m.lens = C.struct_lens{
		tx: C.float(t[0]), ty: C.float(t[1]), tz: C.float(t[2]),
		fx: C.float(in.Fx / r), fy: C.float(in.Fy / r),
		// Pixel centres are integers: pixel 0 of an image of half the width lies between pixels 0
		// and 1.
		cx: C.float((in.Cx+0.5)/r - 0.5), cy: C.float((in.Cy+0.5)/r - 0.5),
		p1: C.float(in.P[0]), p2: C.float(in.P[1]),
		max_r2: math.MaxFloat32,
		width:  C.int32_t((in.Width + m.reduce - 1) / m.reduce),
		height: C.int32_t((in.Height + m.reduce - 1) / m.reduce),
	}
	for i, r := range m.cal.DepthToColor.R {
		m.lens.r[i] = C.float(r)
	}
	for i, k := range in.K {
		m.lens.k[i] = C.float(k)
	}
	if in.MaxRadius > 0 {
		m.lens.max_r2 = C.float(in.MaxRadius * in.MaxRadius)
	}
}

func (m *Mapper) prepareBox() {
	if c := m.cfg.Crop; c != nil {
		for i, r := range m.cfg.Pose.R {
			m.box.r[i] = C.float(r)
		}
		for i := range 3 {
			m.box.t[i] = C.float(m.cfg.Pose.T[i])
			m.box.min[i], m.box.max[i] = C.float(c.Min[i]), C.float(c.Max[i])
		}
	}
}

func (m *Mapper) prepareBuffers() {
	n := m.cal.Depth.Width * m.cal.Depth.Height
	m.clean = make([]uint16, n)
	if m.cfg.Grazing > 0 {
		m.solid, m.slopes = make([]uint16, n), m.steepest()
	}
	if r := m.cfg.Isolated.Radius; m.cfg.Isolated.Neighbors > 0 {
		m.tmp = make([]uint16, (m.cal.Depth.Width+2*r)*(m.cal.Depth.Height+2*r))
	} else if m.cfg.Erode.Radius > 0 {
		m.tmp = make([]uint16, n)
	}
	if m.cfg.Erode.Radius > 0 {
		m.low = make([]uint16, n)
	}
	if m.cfg.Geometry == ColorGeometry {
		m.vertexU, m.vertexV, m.vertexZ = make([]float32, n), make([]float32, n), make([]float32, n)
		m.warped = make([]uint32, m.cal.Color.Width*m.cal.Color.Height)
		return
	}
	if m.colored() {
		m.u, m.v = make([]uint16, n), make([]uint16, n)
		if m.cfg.ColorInset > 0 {
			m.edge = make([]byte, n)
		}
		m.aim(1)
	}
	m.every = 1
}

// steepest returns the depth difference between neighbours that Config.Grazing allows, relative to
// depth and times 65536, for each pixel.
func (m *Mapper) steepest() []uint16 {
	w, n := m.cal.Depth.Width, m.cal.Depth.Width*m.cal.Depth.Height
	slopes := make([]uint16, n)
	for i := range slopes {
		left, right, up, down := max(i-1, 0), min(i+1, n-1), max(i-w, 0), min(i+w, n-1)
		pitch := max(m.rayX[right]-m.rayX[left], m.rayY[down]-m.rayY[up]) / 2 // NaN without rays
		if s := 65536 * float64(pitch) / math.Tan(m.cfg.Grazing*math.Pi/180); s >= 0 && s < math.MaxUint16 {
			slopes[i] = uint16(s)
		} else {
			slopes[i] = math.MaxUint16
		}
	}
	return slopes
}

// colored reports whether the camera captures colour.
func (m *Mapper) colored() bool { return m.cal.Color.Width > 0 }

// Close frees the image decoder.
func (m *Mapper) Close() { m.decoder.Close() }

// Output returns the lens of the grids' pixels, and the transform from its space to the depth
// camera's.
func (m *Mapper) Output() (camera.Intrinsics, camera.Transform) { return m.out, m.toDepth }

// SetPose replaces Config.Pose.
func (m *Mapper) SetPose(pose camera.Transform) {
	m.cfg.Pose = pose
	m.prepareBox()
}

// SetGain replaces Config.Gain with a valid gain.
func (m *Mapper) SetGain(gain Gain) {
	m.cfg.Gain = gain
	m.levels = gain.levels()
}

// Map maps a capture to a grid, reusing g's buffers. If the colour image is missing, damaged or not
// of the calibrated size, it maps the depth and returns a *ColorError; a camera that captures no
// colour yields no error. After other errors g is undefined.
func (m *Mapper) Map(f *source.Frame, g *pointcloud.Grid) error { return m.MapRows(f, g, 1) }

// MapRows is like Map, but maps only rows 0, every, 2·every and so on, and leaves the others empty.
// The cost falls in proportion, except for decoding colour.
func (m *Mapper) MapRows(f *source.Frame, g *pointcloud.Grid, every int) error {
	d := m.cal.Depth
	if len(f.Depth) != d.Width*d.Height {
		return fmt.Errorf("depthmap: depth image has %d pixels, calibration has %d×%d (%d)", len(f.Depth), d.Width,
			d.Height, d.Width*d.Height)
	}
	clean := m.filter(f.Depth)
	resize(g, m.out)
	if !m.colored() {
		m.cut(clean, g, every)
		m.gray(f, g)
		return nil
	}
	frame, missing := m.last.complete(f)
	do := m.mapDepth
	if m.cfg.Geometry == ColorGeometry {
		do = m.mapColor
	}
	err := do(frame, clean, g, every)
	switch {
	case err != nil && !errors.Is(err, mjpeg.ErrIncomplete):
		m.gray(f, g)
	case missing == nil:
		m.last.keep(f)
	}
	if err = cmp.Or(missing, err); err != nil {
		return &ColorError{err}
	}
	return nil
}

// cut clears g's depth, copies the rows to map (see MapRows) from clean, and clips them.
func (m *Mapper) cut(clean []uint16, g *pointcloud.Grid, every int) {
	m.every = every
	if every > 1 {
		clear(g.Depth)
	}
	m.rows(func(first, n int) { copy(g.Depth[first:first+n], clean[first:first+n]) })
	m.clip(g.Depth)
}

// filter removes noise from depth. It works on a copy if a filter is enabled. Clipping comes later,
// as clipped readings still occlude others.
func (m *Mapper) filter(depth []uint16) []uint16 {
	w, h := C.int32_t(m.cal.Depth.Width), C.int32_t(m.cal.Depth.Height)
	iso, ero := m.cfg.Isolated, m.cfg.Erode
	if m.cfg.Grazing > 0 {
		C.grazing(u16(depth), u16(m.solid), w, h, u16(m.slopes))
		depth = m.solid
	}
	if iso.Neighbors == 0 && ero.Radius == 0 {
		return depth
	}
	if iso.Neighbors > 0 {
		C.isolated(u16(depth), u16(m.clean), w, h, C.int32_t(iso.Radius), C.int32_t(iso.Neighbors), C.int32_t(iso.Band),
			u16(m.tmp))
	} else {
		copy(m.clean, depth)
	}
	if ero.Radius > 0 {
		C.erode(u16(m.clean), w, h, C.int32_t(ero.Radius), C.int32_t(ero.Step), u16(m.tmp), u16(m.low))
	}
	return m.clean
}

// clip removes readings outside the depth range and the crop box.
func (m *Mapper) clip(depth []uint16) {
	n := C.int32_t(len(depth))
	if m.cfg.DepthMin > 0 || m.cfg.DepthMax < math.MaxUint16 {
		C.clip_range(u16(depth), n, C.uint16_t(m.cfg.DepthMin), C.uint16_t(m.cfg.DepthMax))
	}
	if m.cfg.Crop != nil {
		C.clip_box(u16(depth), n, f32(m.rayX), f32(m.rayY), &m.box)
	}
}

func (m *Mapper) mapDepth(f *source.Frame, clean []uint16, g *pointcloud.Grid, every int) error {
	// Decode colour and project depth concurrently; they take most of the time.
	decoded := make(chan error, 1)
	go func() { decoded <- m.image.load(m.decoder, f, m.cal.Color, m.reduce) }()
	m.aim(every)
	m.cut(clean, g, every)
	m.project(clean)
	m.splat(clean)
	err := <-decoded
	if err == nil || errors.Is(err, mjpeg.ErrIncomplete) {
		m.sample(g)
		m.inset(g)
	}
	return err
}

// aim adapts the occlusion test to the distance between mapped rows (see MapRows).
func (m *Mapper) aim(every int) {
	if m.every == every {
		return
	}
	m.every = every
	cell := max(1, cellWidth*float64(every)*m.cal.Color.Fx/m.cal.Depth.Fx/float64(m.reduce))
	m.cover.cells = C.int32_t(65536 / (cell * C.SUBPIXEL))
	m.cover.width = C.int32_t(float64(m.lens.width)/cell) + 1
	m.cover.slack = slack
	m.coverHeight = C.int32_t(float64(m.lens.height)/cell) + 1
	if n := int(m.cover.width*m.coverHeight) + 1; cap(m.nearest) < n {
		m.nearest = make([]uint16, n)
	}
}

// rows calls do for each run of mapped rows, with its first pixel and its number of pixels.
func (m *Mapper) rows(do func(first, n int)) {
	w, n := m.cal.Depth.Width, m.cal.Depth.Width*m.cal.Depth.Height
	if m.every == 1 {
		do(0, n)
		return
	}
	for first := 0; first < n; first += m.every * w {
		do(first, w)
	}
}

// project computes where the colour camera sees each point.
func (m *Mapper) project(clean []uint16) {
	m.rows(func(i, n int) {
		C.project(u16(clean[i:]), C.int32_t(n), f32(m.rayX[i:]), f32(m.rayY[i:]), &m.lens, u16(m.u[i:]), u16(m.v[i:]))
	})
}

// splat records the nearest depth that the colour camera sees in each direction.
func (m *Mapper) splat(clean []uint16) {
	C.uncover(u16(m.nearest), m.cover.width*m.coverHeight)
	m.rows(func(i, n int) {
		C.splat(u16(clean[i:]), u16(m.u[i:]), u16(m.v[i:]), C.int32_t(n), &m.cover, u16(m.nearest))
	})
}

// sample sets the colours of the points that the colour camera sees and drops the others.
func (m *Mapper) sample(g *pointcloud.Grid) {
	img := &m.image
	m.rows(func(i, n int) {
		depth, u, v, rgb := u16(g.Depth[i:]), u16(m.u[i:]), u16(m.v[i:]), u8(g.Color[3*i:])
		if img.bgra != nil {
			C.sample_bgra(depth, u, v, C.int32_t(n), &m.cover, u16(m.nearest), u8(img.bgra), img.layout.width, rgb)
		} else {
			C.sample_planes(depth, u, v, C.int32_t(n), &m.cover, u16(m.nearest), u8(img.y), u8(img.cb), u8(img.cr),
				&img.layout, rgb)
		}
		m.levels.apply(g.Depth[i:i+n], g.Color[3*i:])
	})
}

// inset replaces the colours of points on edges (Config.ColorInset).
func (m *Mapper) inset(g *pointcloud.Grid) {
	if m.cfg.ColorInset == 0 {
		return
	}
	w, h, stride := C.int32_t(g.Width), C.int32_t((g.Height+m.every-1)/m.every), C.int32_t(m.every*g.Width)
	if h < 3 {
		return
	}
	C.edges(u16(g.Depth), w, h, stride, u8(m.edge))
	C.inset(u16(g.Depth), u8(m.edge), w, h, stride, C.int32_t(m.cfg.ColorInset), u8(g.Color))
}

func (m *Mapper) mapColor(f *source.Frame, clean []uint16, g *pointcloud.Grid, every int) error {
	// Decode and warp concurrently.
	decoded := make(chan error, 1)
	go func() { decoded <- m.image.rgb(m.decoder, f, m.cal.Color, g.Color) }()
	if &clean[0] != &m.clean[0] {
		copy(m.clean, clean)
	}
	m.warp(g.Depth)
	for y := range g.Height {
		if y%every != 0 {
			clear(g.Depth[y*g.Width : (y+1)*g.Width])
		}
	}
	err := <-decoded
	m.levels.apply(g.Depth, g.Color)
	return err
}

// warp renders m.clean into the colour camera's depth image.
func (m *Mapper) warp(depth []uint16) {
	C.project_vertices(u16(m.clean), C.int32_t(len(m.clean)), f32(m.rayX), f32(m.rayY), &m.lens, f32(m.vertexU),
		f32(m.vertexV), f32(m.vertexZ))
	m.clip(m.clean)
	C.warp(u16(m.clean), f32(m.vertexU), f32(m.vertexV), f32(m.vertexZ),
		C.int32_t(m.cal.Depth.Width), C.int32_t(m.cal.Depth.Height), maxSlope,
		(*C.uint32_t)(unsafe.SliceData(m.warped)), C.int32_t(m.out.Width), C.int32_t(m.out.Height))
	C.resolve((*C.uint32_t)(unsafe.SliceData(m.warped)), C.int32_t(len(m.warped)), u16(depth))
}

func resize(g *pointcloud.Grid, in camera.Intrinsics) {
	n := in.Width * in.Height
	if cap(g.Depth) < n {
		g.Depth = make([]uint16, n)
	}
	if cap(g.Color) < 3*n {
		g.Color = make([]byte, 3*n)
	}
	g.Width, g.Height = in.Width, in.Height
	g.Depth, g.Color = g.Depth[:n], g.Color[:3*n]
}

func u16(s []uint16) *C.uint16_t { return (*C.uint16_t)(unsafe.SliceData(s)) }
func f32(s []float32) *C.float   { return (*C.float)(unsafe.SliceData(s)) }
func u8(s []byte) *C.uint8_t     { return (*C.uint8_t)(unsafe.SliceData(s)) }
