// Package render draws depth cameras' frames in software: as surfaces, or points as discs sized by
// distance with eye-dome lighting (Boucheny, 2009) to show shape without normals. It is meant for
// still pictures, not for playback.
package render

import (
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"slices"

	"holocast/internal/camera"
	"holocast/internal/pointcloud"
)

// Options select the picture. The zero value is one view of 1280×720 pixels, from a sensor in front
// of the cloud.
type Options struct {
	Width, Height int     // of the whole picture, pixels; 0, 0 = 1280, 720
	Views         int     // views around the cloud, drawn in a grid; 0 means 1
	Azimuth       float64 // degrees that the first camera moves right around the cloud
	Elevation     float64 // degrees the camera is raised
	YUp           bool    // y points up and the first camera looks along −z; otherwise y down and along +z

	// Sensors holds the position from which each cloud was captured, in millimetres. It may be nil.
	// Points facing away from the viewer are skipped, so a room shows its inside, not the back of
	// its walls.
	Sensors [][3]float64

	// Eye maps the clouds' coordinates to the viewer's: x right, y down, z forward, in millimetres.
	// It replaces Azimuth, Elevation, YUp and Fit. The vertical field of view is 40° (TanHalfView).
	// Discs have the size that each cloud's own spacing requires.
	Eye *camera.Transform

	// Lens replaces the field of view if Eye is set.
	Lens *Lens

	// Depth, if not nil, receives the distance of the last view's samples, Supersample² per pixel, in
	// millimetres; +Inf where nothing is drawn.
	Depth *[]float32

	// Fit holds the points to frame; nil means the drawn clouds. Pictures of different clouds with
	// the same Fit match pixel by pixel.
	Fit []pointcloud.Points
}

// Lens is a lens without distortion, in pixels: focal lengths, and the principal point from the
// picture's top left corner.
type Lens struct{ Focal, X, Y float64 }

// Supersample is the number of samples per pixel, each way.
const Supersample = 2

const (
	margin   = 0.92 // part of the view that the cloud fills
	spread   = 1.5  // disc diameter relative to the point spacing
	maxDisc  = 32   // samples, diameter
	strays   = 250  // one in this many points may lie outside the picture
	shade    = 7    // strength of eye-dome lighting
	maxStep  = 0.05 // log2 of the depth ratio at which shading saturates
	closings = 2    // rounds of closing gaps, each by one sample from every side
	gapStep  = 1.02 // depth ratio to its neighbors that marks a sample as a gap
	maxSide  = 16384
	nearest  = 50 // millimetres before Options.Eye, of drawn points
)

// TanHalfView is the tangent of half the vertical field of view, 40°.
var TanHalfView = math.Tan(20 * math.Pi / 180)

// PNG writes a picture as a PNG file.
func PNG(w io.Writer, img image.Image) error {
	encoder := png.Encoder{CompressionLevel: png.BestSpeed}
	if err := encoder.Encode(w, img); err != nil {
		return fmt.Errorf("render: %w", err)
	}
	return nil
}

// Image draws the merged clouds as discs. They share one coordinate system, in millimetres.
func Image(opts Options, clouds ...pointcloud.Points) (*image.RGBA, error) {
	if opts.Sensors != nil && len(opts.Sensors) != len(clouds) {
		return nil, fmt.Errorf("render: %d sensors for %d clouds, want one per cloud", len(opts.Sensors), len(clouds))
	}
	if err := check(clouds); err != nil {
		return nil, err
	}
	return opts.draw(clouds, func(v *view, s scene) {
		for j, c := range clouds {
			spacing := s.spacing
			if opts.Eye != nil {
				spacing = measure([]pointcloud.Points{c}, false).spacing
			}
			if opts.Sensors != nil {
				v.draw(c, spacing, &opts.Sensors[j])
			} else {
				v.draw(c, spacing, nil)
			}
		}
		for range closings {
			v.close()
		}
		v.light()
	})
}

// check returns an error if a cloud's slices differ in length.
func check(clouds []pointcloud.Points) error {
	for i, c := range clouds {
		if len(c.XYZ)%3 != 0 || len(c.RGB) != len(c.XYZ) {
			return fmt.Errorf("render: cloud %d has %d coordinates and %d colour values, want three of each per point",
				i, len(c.XYZ), len(c.RGB))
		}
	}
	return nil
}

// draw calls paint for each view and returns the picture. It frames clouds unless Fit or Eye is set.
func (o Options) draw(clouds []pointcloud.Points, paint func(v *view, s scene)) (*image.RGBA, error) {
	if o.Width == 0 && o.Height == 0 {
		o.Width, o.Height = 1280, 720
	}
	if o.Width < 1 || o.Height < 1 || o.Width > maxSide || o.Height > maxSide {
		return nil, fmt.Errorf("render: picture of %d×%d pixels, want 1 to %d per side", o.Width, o.Height, maxSide)
	}
	views := max(o.Views, 1)
	columns := int(math.Ceil(math.Sqrt(float64(views))))
	rows := (views + columns - 1) / columns
	width, height := o.Width/columns, o.Height/rows
	if width < 1 || height < 1 {
		return nil, fmt.Errorf("render: %d views do not fit in a picture of %d×%d pixels", views, o.Width, o.Height)
	}
	if o.Fit != nil {
		clouds = o.Fit
	}
	if err := check(clouds); err != nil {
		return nil, err
	}
	s := measure(clouds, o.YUp)
	img := image.NewRGBA(image.Rect(0, 0, o.Width, o.Height))
	for y := range o.Height {
		for x := range o.Width {
			img.SetRGBA(x, y, background(y, o.Height))
		}
	}
	v := newView(width, height)
	for i := range views {
		if o.Eye != nil {
			v.place(*o.Eye, o.Lens)
		} else {
			v.aim(s, o.Azimuth+360*float64(i)/float64(views), o.Elevation)
		}
		v.clear()
		paint(v, s)
		v.copyTo(img, i%columns*width, i/columns*height)
	}
	if o.Depth != nil {
		*o.Depth = v.depth
	}
	return img, nil
}

// place sets the viewer's position and lens.
func (v *view) place(eye camera.Transform, lens *Lens) {
	v.rotation, v.shift, v.origin, v.flip, v.near = eye.R, eye.T, [3]float64{}, 1, nearest
	if lens != nil {
		v.focal, v.middle = Supersample*lens.Focal, [2]float64{Supersample * lens.X, Supersample * lens.Y}
	}
}

func background(y, height int) color.RGBA {
	f := float64(y) / float64(height)
	return color.RGBA{uint8(30 - 18*f), uint8(33 - 19*f), uint8(40 - 22*f), 255}
}

// scene is the data for framing the clouds.
type scene struct {
	sample  [][3]float64 // about 50 000 points at most, millimetres
	centre  [3]float64   // center of nearly all points
	spacing float64      // between neighboring points, millimetres
	flip    float64      // −1 if y points up: turns the scene by 180° about x
}

// measure examines a sample of the points. Outliers must neither shrink the picture nor enlarge the
// points.
func measure(clouds []pointcloud.Points, yUp bool) scene {
	s := scene{flip: 1}
	if yUp {
		s.flip = -1
	}
	total := 0
	for _, c := range clouds {
		total += len(c.XYZ) / 3
	}
	if total == 0 {
		return s
	}
	step := total/50000 + 1
	var gaps []float64
	for _, c := range clouds {
		for i := 0; i < len(c.XYZ); i += 3 * step {
			s.sample = append(s.sample, [3]float64{float64(c.XYZ[i]), float64(c.XYZ[i+1]), float64(c.XYZ[i+2])})
			if i+5 < len(c.XYZ) {
				gaps = append(gaps, math.Sqrt(squaredGap(c.XYZ[i:i+6])))
			}
		}
	}
	size := 1.
	axis := make([]float64, len(s.sample))
	for k := range 3 {
		for i := range axis {
			axis[i] = s.sample[i][k]
		}
		low, high := most(axis)
		s.centre[k] = (low + high) / 2
		size = max(size, high-low)
	}
	// In sensor order, successive points are neighbors. Otherwise assume that the points cover a
	// surface of the scene's size.
	s.spacing = 1.5 * size / math.Sqrt(float64(total))
	if len(gaps) > 0 {
		slices.Sort(gaps)
		s.spacing = min(s.spacing, gaps[len(gaps)/2])
	}
	s.spacing = max(s.spacing, 1)
	return s
}

// most returns the range of values without the outliers at either end. It sorts values.
func most(values []float64) (low, high float64) {
	slices.Sort(values)
	n := len(values)
	return values[n/strays], values[n-1-n/strays]
}

func squaredGap(p []int16) (sum float64) {
	for k := range 3 {
		d := float64(p[k]) - float64(p[k+3])
		sum += d * d
	}
	return sum
}

// view is one picture's camera and samples.
type view struct {
	width, height int // samples
	focal         float64
	middle        [2]float64 // principal point
	origin        [3]float64 // subtracted from the clouds' coordinates
	flip          float64    // factor of y and z
	rotation      [9]float64 // rotation, row-major
	shift         [3]float64 // translation to camera coordinates
	near          float64    // least distance of drawn points
	depth         []float32  // +Inf = empty
	colour        [][3]uint8
}

func newView(width, height int) *view {
	w, h := width*Supersample, height*Supersample
	return &view{
		width: w, height: h, focal: float64(h) / 2 / TanHalfView, middle: [2]float64{float64(w) / 2, float64(h) / 2},
		depth: make([]float32, w*h), colour: make([][3]uint8, w*h),
	}
}

// turned returns the rotation of a camera moved around the cloud. Its axes are x right, y down, z
// forward. Moving it right turns it left; raising it turns it down.
func turned(azimuth, elevation float64) [9]float64 {
	sa, ca := math.Sincos(azimuth * math.Pi / 180)
	se, ce := math.Sincos(elevation * math.Pi / 180)
	return [9]float64{
		ca, 0, sa,
		sa * se, ce, -ca * se,
		-sa * ce, se, ca * ce,
	}
}

// aim rotates and places the camera to fit nearly all points.
func (v *view) aim(s scene, azimuth, elevation float64) {
	v.rotation = turned(azimuth, elevation)
	v.origin, v.flip = s.centre, s.flip
	v.shift, v.near = [3]float64{0, 0, 1000}, 20
	if len(s.sample) == 0 {
		return
	}
	xs, ys, zs := make([]float64, len(s.sample)), make([]float64, len(s.sample)), make([]float64, len(s.sample))
	v.shift = [3]float64{}
	for i, p := range s.sample {
		xs[i], ys[i], zs[i] = v.turn(p[0], p[1], p[2])
	}
	left, right := most(slices.Clone(xs))
	top, bottom := most(slices.Clone(ys))
	v.shift[0], v.shift[1] = -(left+right)/2, -(top+bottom)/2
	// Compute the distance at which each point fits, then choose one that suits nearly all points.
	tanY := TanHalfView * margin
	tanX := tanY * float64(v.width) / float64(v.height)
	for i := range zs {
		zs[i] = max(math.Abs(xs[i]+v.shift[0])/tanX, math.Abs(ys[i]+v.shift[1])/tanY) - zs[i]
	}
	_, distance := most(zs)
	v.shift[2] = max(distance, 100)
	v.near = v.shift[2] / 50
}

// turn converts a point to camera coordinates.
func (v *view) turn(x, y, z float64) (float64, float64, float64) {
	x, y, z = x-v.origin[0], v.flip*(y-v.origin[1]), v.flip*(z-v.origin[2])
	r := &v.rotation
	return r[0]*x + r[1]*y + r[2]*z + v.shift[0],
		r[3]*x + r[4]*y + r[5]*z + v.shift[1],
		r[6]*x + r[7]*y + r[8]*z + v.shift[2]
}

func (v *view) clear() {
	for i := range v.depth {
		v.depth[i] = float32(math.Inf(1))
	}
}

// draw draws every point of c as a disc.
func (v *view) draw(c pointcloud.Points, spacing float64, sensor *[3]float64) {
	var sx, sy, sz float64
	if sensor != nil {
		sx, sy, sz = v.turn(sensor[0], sensor[1], sensor[2])
	}
	for i := 0; i < len(c.XYZ); i += 3 {
		x, y, z := v.turn(float64(c.XYZ[i]), float64(c.XYZ[i+1]), float64(c.XYZ[i+2]))
		if z < v.near {
			continue
		}
		// Seen from behind: viewer and sensor are on opposite sides of the point.
		if sensor != nil && x*x+y*y+z*z < x*sx+y*sy+z*sz {
			continue
		}
		scale := v.focal / z
		px, py := x*scale+v.middle[0], y*scale+v.middle[1]
		radius := min(max(spacing*spread*scale/2, 0.5), maxDisc/2)
		// A small disc fills its square.
		limit := radius * radius
		if radius < 1.5 {
			limit = math.Inf(1)
		}
		v.disc(px, py, radius, limit, float32(z), [3]uint8{c.RGB[i], c.RGB[i+1], c.RGB[i+2]})
	}
}

// disc draws the part of a square around (x, y) whose squared distance from it is at most limit.
func (v *view) disc(x, y, radius, limit float64, depth float32, rgb [3]uint8) {
	x0, x1 := max(int(math.Ceil(x-radius-0.5)), 0), min(int(math.Floor(x+radius-0.5)), v.width-1)
	y0, y1 := max(int(math.Ceil(y-radius-0.5)), 0), min(int(math.Floor(y+radius-0.5)), v.height-1)
	for row := y0; row <= y1; row++ {
		dy := float64(row) + 0.5 - y
		for col := x0; col <= x1; col++ {
			dx := float64(col) + 0.5 - x
			if at := row*v.width + col; depth < v.depth[at] && dx*dx+dy*dy <= limit {
				v.depth[at], v.colour[at] = depth, rgb
			}
		}
	}
}

// close fills gaps between discs: a sample whose neighbors are mostly nearer, and at similar depth,
// takes their value.
func (v *view) close() {
	depth, colour := slices.Clone(v.depth), slices.Clone(v.colour)
	around := [8]int{-v.width - 1, -v.width, -v.width + 1, -1, 1, v.width - 1, v.width, v.width + 1}
	for y := 1; y < v.height-1; y++ {
		for x := 1; x < v.width-1; x++ {
			at := y*v.width + x
			nearest := depth[at]
			for _, step := range around {
				nearest = min(nearest, depth[at+step])
			}
			limit := nearest * gapStep
			if depth[at] <= limit {
				continue
			}
			n, sum := 0, [3]int{}
			for _, step := range around {
				if depth[at+step] <= limit {
					n++
					for k := range 3 {
						sum[k] += int(colour[at+step][k])
					}
				}
			}
			if n < 5 {
				continue
			}
			v.depth[at] = nearest
			for k := range 3 {
				v.colour[at][k] = uint8(sum[k] / n)
			}
		}
	}
}

// light darkens samples behind their surroundings.
func (v *view) light() {
	logs := make([]float32, len(v.depth))
	for i, d := range v.depth {
		logs[i] = float32(math.Inf(1))
		if !math.IsInf(float64(d), 1) {
			logs[i] = float32(math.Log2(float64(d)))
		}
	}
	for y := range v.height {
		for x := range v.width {
			at := y*v.width + x
			if math.IsInf(float64(logs[at]), 1) {
				continue
			}
			var sum float32
			for _, reach := range [2]int{3, 9} { // samples: edges, and shape
				if x < reach || x >= v.width-reach || y < reach || y >= v.height-reach {
					continue
				}
				for _, to := range [4]int{at - reach, at + reach, at - reach*v.width, at + reach*v.width} {
					if behind := logs[at] - logs[to]; behind > 0 {
						sum += min(behind, maxStep)
					}
				}
			}
			f := max(math.Exp(-shade*float64(sum)), 0.15)
			for k := range 3 {
				v.colour[at][k] = uint8(float64(v.colour[at][k]) * f)
			}
		}
	}
}

// copyTo averages the samples of each pixel and blends them over img.
func (v *view) copyTo(img *image.RGBA, left, top int) {
	for y := range v.height / Supersample {
		for x := range v.width / Supersample {
			back := img.RGBAAt(left+x, top+y)
			var sum [3]int
			for s := range Supersample * Supersample {
				at := (y*Supersample+s/Supersample)*v.width + x*Supersample + s%Supersample
				rgb := [3]uint8{back.R, back.G, back.B}
				if !math.IsInf(float64(v.depth[at]), 1) {
					rgb = v.colour[at]
				}
				for k := range 3 {
					sum[k] += int(rgb[k])
				}
			}
			const n = Supersample * Supersample
			img.SetRGBA(left+x, top+y, color.RGBA{uint8(sum[0] / n), uint8(sum[1] / n), uint8(sum[2] / n), 255})
		}
	}
}
