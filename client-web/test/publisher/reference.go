package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"holocast/internal/camera"
	"holocast/internal/pointcloud"
	"holocast/internal/pointcloud/frametest"
	"holocast/internal/pointvideo"
	"holocast/internal/render"
)

// drawReference renders the scene as a surface, or its points as squares with a depth buffer. The matrix maps
// camera coordinates in millimetres to clip space.
func drawReference(w io.Writer, o options) error {
	m, width, height, err := o.view()
	if err != nil {
		return err
	}
	var picture []byte // RGBA, alpha 0 = background
	switch o.look {
	case "surface":
		if picture, err = drawSurface(o, m, width, height); err != nil {
			return err
		}
	case "points":
		picture = drawSquares(o, m, width, height)
	default:
		return fmt.Errorf("--look is %q, want surface or points", o.look)
	}
	_, err = w.Write(picture)
	return err
}

func (o options) view() (m [16]float64, width, height int, err error) {
	fields := strings.Split(o.matrix, ",")
	if len(fields) != len(m) {
		return m, 0, 0, fmt.Errorf("--reference: %d numbers, want %d", len(fields), len(m))
	}
	for i, f := range fields {
		if m[i], err = strconv.ParseFloat(f, 64); err != nil {
			return m, 0, 0, err
		}
	}
	if _, err := fmt.Sscanf(o.viewport, "%dx%d", &width, &height); err != nil {
		return m, 0, 0, fmt.Errorf("viewport %q: %w", o.viewport, err)
	}
	return m, width, height, nil
}

// drawSurface renders the scene with internal/render, whose eye and lens follow from the matrix.
func drawSurface(o options, m [16]float64, width, height int) ([]byte, error) {
	row := func(i int, sign float64) (unit [3]float64, shift, length float64) {
		length = math.Hypot(m[i], math.Hypot(m[4+i], m[8+i]))
		f := sign / length
		return [3]float64{f * m[i], f * m[4+i], f * m[8+i]}, f * m[12+i], length
	}
	right, x, across := row(0, 1)
	down, y, _ := row(1, -1)
	forward, z, along := row(3, 1)
	eye := camera.Transform{R: [9]float64(slices.Concat(right[:], down[:], forward[:])), T: [3]float64{x, y, z}}
	lens := render.Lens{Focal: float64(width) / 2 * across / along, X: float64(width) / 2, Y: float64(height) / 2}
	scene, sensor := o.scene(), o.lens()
	rays := sensor.RayTable()
	var depth []float32
	img, err := render.Surfaces(render.Options{Width: width, Height: height, Eye: &eye, Lens: &lens, Depth: &depth},
		render.Surface{Grid: &scene.Grid, Rays: &rays, Pose: camera.Identity})
	if err != nil {
		return nil, err
	}
	samples := width * render.Supersample
	for at := range width * height {
		first := (at/width*samples + at%width) * render.Supersample
		if math.IsInf(float64(depth[first]), 1) {
			img.Pix[4*at+3] = 0
		}
	}
	return img.Pix, nil
}

func drawSquares(o options, m [16]float64, width, height int) []byte {
	picture := make([]byte, 4*width*height) // alpha 0 = background
	depth := make([]float64, width*height)
	for i := range depth {
		depth[i] = math.Inf(1)
	}
	scene, lens := o.scene(), o.lens()
	for i, d := range scene.Grid.Depth {
		if d == 0 {
			continue
		}
		z := float64(d)
		x, y := (float64(i%o.width)-lens.Cx)/lens.Fx*z, (float64(i/o.width)-lens.Cy)/lens.Fy*z
		var clip [4]float64
		for r := range clip {
			clip[r] = m[r]*x + m[4+r]*y + m[8+r]*z + m[12+r]
		}
		if clip[3] <= 0 {
			continue
		}
		px, py := (clip[0]/clip[3]+1)/2*float64(width), (1-clip[1]/clip[3])/2*float64(height)
		// Distance to the neighbouring point in pixels.
		edge := math.Hypot(m[0], math.Hypot(m[1], m[2])) * z / lens.Fx / clip[3] * float64(width) / 2
		half := max(1, 1.4*edge) / 2
		for v := max(0, int(math.Round(py-half))); v < min(height, int(math.Round(py+half))); v++ {
			for u := max(0, int(math.Round(px-half))); u < min(width, int(math.Round(px+half))); u++ {
				if at := v*width + u; clip[3] < depth[at] {
					depth[at] = clip[3]
					copy(picture[4*at:], scene.Grid.Color[3*i:3*i+3])
					picture[4*at+3] = 255
				}
			}
		}
	}
	return picture
}

// dumpFrames writes frames for benchmarks to dir, named by size and layout. If data has a recording, it
// includes an Azure Kinect frame, and a group of layout W.
func dumpFrames(dir, data string) error {
	enc, err := pointcloud.NewEncoder(pointcloud.EncoderOptions{})
	if err != nil {
		return err
	}
	defer enc.Close()
	clouds := map[string]frametest.Cloud{}
	for _, s := range []struct {
		name          string
		width, height int
	}{{"50k", 296, 266}, {"240k", 640, 576}, {"1M", 1344, 1210}} {
		clouds[s.name] = frametest.SyntheticCloud(s.width, s.height, 1)
	}
	if real, err := frametest.Load(data, 2); err != nil {
		fmt.Fprintf(os.Stderr, "no recording in HOLOCAST_DATA: %v; writing synthetic frames only\n", err)
	} else {
		clouds["kinect-nfov"] = real[0].NFOV
		if err := dumpVideo(filepath.Join(dir, "kinect-nfov-w"), real[:2]); err != nil {
			return err
		}
	}
	for name, c := range clouds {
		for _, l := range pointcloud.Layouts() {
			b, err := enc.Encode(nil, pointcloud.Header{}, c.Frame(l), 0)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name+"-"+strings.ToLower(l.String())+".hcpf"), b, 0o644)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// groupLen is the number of frames in a group of layout W.
const groupLen = 30

// dumpVideo writes a group of layout W, in which a camera's frames alternate, to prefix-00.hcpf and so on.
func dumpVideo(prefix string, frames []frametest.Frame) error {
	g := &frames[0].NFOV.Grid
	enc, err := pointvideo.NewEncoder(pointvideo.Config{Width: g.Width, Height: g.Height})
	if err != nil {
		return err
	}
	defer enc.Close()
	for i := range groupLen {
		grid := &frames[i%len(frames)].NFOV.Grid
		b, err := enc.Encode(nil, pointcloud.Header{Sequence: uint32(i)}, grid, i == 0)
		if err == nil {
			err = os.WriteFile(fmt.Sprintf("%s-%02d.hcpf", prefix, i), b, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
