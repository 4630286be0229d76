package frametest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/draw"
	"image/jpeg"
	"math"
	"os"
	"path/filepath"
	"sort"

	"golang.org/x/image/tiff"

	"holocast/internal/pointcloud"
)

// Frame is one real frame in both geometries an Azure Kinect session streams.
type Frame struct {
	Name  string           // "virtualdevice0/1"
	Depth pointcloud.Grid  // 640×576, NFOV unbinned, colour mapped from 720p
	Color *pointcloud.Grid // 1920×1080, depth warped into the colour camera
	// XYZ holds the points of Depth, camera coordinates.
	XYZ, ColorXYZ []int16
}

// Load reads the LiveScan3D test data below dataDir (HOLOCAST_DATA): every
// camera's NFOV frames. limit bounds the frames per camera, 0 for all.
func Load(dataDir string, limit int) ([]Frame, error) {
	pattern := filepath.Join(dataDir, "livescan_testdata", "*", "depth_NFOV_UNBINNED", "Depth_*.tiff")
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no frames match %s: %w", pattern, os.ErrNotExist)
	}
	sort.Strings(files)
	var frames []Frame
	perCamera := map[string]int{}
	for _, file := range files {
		device := filepath.Dir(filepath.Dir(file))
		if perCamera[device]++; limit > 0 && perCamera[device] > limit {
			continue
		}
		var index int
		if _, err := fmt.Sscanf(filepath.Base(file), "Depth_%d.tiff", &index); err != nil {
			return nil, fmt.Errorf("%s: unexpected name: %w", file, err)
		}
		f, err := load(device, file, index)
		if err != nil {
			return nil, err
		}
		frames = append(frames, f)
	}
	return frames, nil
}

func load(device, depthFile string, index int) (Frame, error) {
	f := Frame{Name: fmt.Sprintf("%s/%d", filepath.Base(device), index)}
	cal, err := readCalibration(filepath.Join(device, "Intrinsics.json"))
	if err != nil {
		return f, err
	}
	depth, err := readDepth(depthFile)
	if err != nil {
		return f, err
	}
	color720, err := readColor(filepath.Join(device, "color_720p", fmt.Sprintf("Color_%d.jpg", index)))
	if err != nil {
		return f, err
	}
	color1080, err := readColor(filepath.Join(device, "color_1080p", fmt.Sprintf("Color_%d.jpg", index)))
	if err != nil {
		return f, err
	}
	rays := cal.depthRays(depth.Rect.Dx(), depth.Rect.Dy())
	f.Depth, f.XYZ = cal.mapColor(depth, rays, color720)
	warped, xyz := cal.warpDepth(depth, rays, color1080)
	f.Color, f.ColorXYZ = &warped, xyz
	return f, nil
}

func readDepth(name string) (*image.Gray16, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	img, err := tiff.Decode(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	gray, ok := img.(*image.Gray16)
	if !ok {
		return nil, fmt.Errorf("%s: %T, want 16-bit grey", name, img)
	}
	return gray, nil
}

func readColor(name string) (*image.RGBA, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	img, err := jpeg.Decode(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	rgba := image.NewRGBA(img.Bounds())
	draw.Draw(rgba, rgba.Rect, img, img.Bounds().Min, draw.Src)
	return rgba, nil
}

// lens is Brown–Conrady with six radial and two tangential coefficients,
// normalised to the sensor's size.
type lens struct {
	cx, cy, fx, fy, k1, k2, k3, k4, k5, k6, p1, p2, maxRadius float64
}

type calibration struct {
	depth, color lens
	r            [9]float64
	t            [3]float64 // metres
}

func readCalibration(name string) (calibration, error) {
	var doc struct {
		CalibrationInformation struct {
			Cameras []struct {
				Purpose      string
				MetricRadius float64
				Intrinsics   struct{ ModelParameters []float64 }
				Rt           struct{ Rotation, Translation []float64 }
			}
		}
	}
	var c calibration
	b, err := os.ReadFile(name)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(bytes.TrimRight(b, "\x00"), &doc); err != nil {
		return c, fmt.Errorf("%s: %w", name, err)
	}
	for _, cam := range doc.CalibrationInformation.Cameras {
		p := cam.Intrinsics.ModelParameters
		if len(p) != 14 {
			return c, fmt.Errorf("%s: %d lens parameters, want 14", name, len(p))
		}
		l := lens{cx: p[0], cy: p[1], fx: p[2], fy: p[3], k1: p[4], k2: p[5], k3: p[6], k4: p[7], k5: p[8], k6: p[9],
			p1: p[13], p2: p[12], maxRadius: cam.MetricRadius}
		if cam.Purpose == "CALIBRATION_CameraPurposeDepth" {
			c.depth = l
			continue
		}
		if len(cam.Rt.Rotation) != 9 || len(cam.Rt.Translation) != 3 {
			return c, fmt.Errorf("%s: %s has no extrinsics", name, cam.Purpose)
		}
		c.color = l
		copy(c.r[:], cam.Rt.Rotation)
		copy(c.t[:], cam.Rt.Translation)
	}
	return c, nil
}

func (l lens) project(x, y float64) (u, v float64) {
	r2 := x*x + y*y
	d := (1 + r2*(l.k1+r2*(l.k2+r2*l.k3))) / (1 + r2*(l.k4+r2*(l.k5+r2*l.k6)))
	return x*d + 2*l.p1*x*y + l.p2*(r2+2*x*x), y*d + 2*l.p2*x*y + l.p1*(r2+2*y*y)
}

// depthRays gives x/z and y/z of every pixel of the cropped 1024×1024 sensor;
// NaN where the lens model has no ray.
func (c calibration) depthRays(width, height int) [][2]float64 {
	l := c.depth
	rays := make([][2]float64, width*height)
	for i := range rays {
		u := ((float64(i%width)+192+0.5)/1024 - l.cx) / l.fx
		v := ((float64(i/width)+180+0.5)/1024 - l.cy) / l.fy
		x, y := u, v
		for range 40 {
			pu, pv := l.project(x, y)
			x, y = x+u-pu, y+v-pv
		}
		if pu, pv := l.project(x, y); math.Hypot(pu-u, pv-v) > 1e-5 || math.Hypot(x, y) > l.maxRadius {
			x, y = math.NaN(), math.NaN()
		}
		rays[i] = [2]float64{x, y}
	}
	return rays
}

// toColor projects a depth pixel into the colour image, a 4096×3072 sensor
// scaled to width and cropped to 16:9. z is in millimetres.
func (c calibration) toColor(ray [2]float64, depth float64, width, height int) (u, v, z float64) {
	x, y, w := ray[0]*depth, ray[1]*depth, depth
	cx := c.r[0]*x + c.r[1]*y + c.r[2]*w + 1000*c.t[0]
	cy := c.r[3]*x + c.r[4]*y + c.r[5]*w + 1000*c.t[1]
	cz := c.r[6]*x + c.r[7]*y + c.r[8]*w + 1000*c.t[2]
	pu, pv := c.color.project(cx/cz, cy/cz)
	full := float64(width) * 3 / 4
	return (pu*c.color.fx+c.color.cx)*float64(width) - 0.5,
		(pv*c.color.fy+c.color.cy)*full - (full-float64(height))/2 - 0.5, cz
}

// mapColor keeps the depth pixels that fall inside the colour image.
func (c calibration) mapColor(depth *image.Gray16, rays [][2]float64, color *image.RGBA) (pointcloud.Grid, []int16) {
	w, h := depth.Rect.Dx(), depth.Rect.Dy()
	g := pointcloud.Grid{Width: w, Height: h, Depth: make([]uint16, w*h), Color: make([]byte, 3*w*h)}
	var xyz []int16
	for i, ray := range rays {
		d := depth.Gray16At(i%w, i/w).Y
		if d == 0 || math.IsNaN(ray[0]) {
			continue
		}
		u, v, _ := c.toColor(ray, float64(d), color.Rect.Dx(), color.Rect.Dy())
		if u < 0 || v < 0 || u > float64(color.Rect.Dx()-1) || v > float64(color.Rect.Dy()-1) {
			continue
		}
		g.Depth[i] = d
		bilinear(g.Color[3*i:3*i+3], color, u, v)
		xyz = append(xyz, int16(math.Round(ray[0]*float64(d))), int16(math.Round(ray[1]*float64(d))), int16(d))
	}
	return g, xyz
}

func bilinear(dst []byte, img *image.RGBA, u, v float64) {
	x, y := min(int(u), img.Rect.Dx()-2), min(int(v), img.Rect.Dy()-2)
	fx, fy := u-float64(x), v-float64(y)
	p, q := img.Pix[y*img.Stride+4*x:], img.Pix[(y+1)*img.Stride+4*x:]
	for k := range dst {
		top := float64(p[k])*(1-fx) + float64(p[4+k])*fx
		bottom := float64(q[k])*(1-fx) + float64(q[4+k])*fx
		dst[k] = byte(top*(1-fy) + bottom*fy + 0.5)
	}
}

// warpDepth draws every quad of neighbouring depth pixels as two triangles into
// the colour camera, nearest surface first, as the sensor's SDK does. Quads over
// a depth step stay open.
func (c calibration) warpDepth(depth *image.Gray16, rays [][2]float64, color *image.RGBA) (pointcloud.Grid, []int16) {
	w, h := color.Rect.Dx(), color.Rect.Dy()
	g := pointcloud.Grid{Width: w, Height: h, Depth: make([]uint16, w*h), Color: make([]byte, 3*w*h)}
	dw, dh := depth.Rect.Dx(), depth.Rect.Dy()
	type vertex struct{ u, v, z float64 }
	vertices := make([]vertex, dw*dh)
	for i, ray := range rays {
		if d := depth.Gray16At(i%dw, i/dw).Y; d != 0 && !math.IsNaN(ray[0]) {
			u, v, z := c.toColor(ray, float64(d), w, h)
			vertices[i] = vertex{u, v, z}
		}
	}
	triangle := func(a, b, c vertex) {
		area := (b.u-a.u)*(c.v-a.v) - (b.v-a.v)*(c.u-a.u)
		if area == 0 {
			return
		}
		x0, x1 := max(0, int(math.Ceil(min(a.u, b.u, c.u)))), min(w-1, int(max(a.u, b.u, c.u)))
		y0, y1 := max(0, int(math.Ceil(min(a.v, b.v, c.v)))), min(h-1, int(max(a.v, b.v, c.v)))
		for y := y0; y <= y1; y++ {
			for x := x0; x <= x1; x++ {
				p := vertex{u: float64(x), v: float64(y)}
				wb := ((p.u-a.u)*(c.v-a.v) - (p.v-a.v)*(c.u-a.u)) / area
				wc := ((b.u-a.u)*(p.v-a.v) - (b.v-a.v)*(p.u-a.u)) / area
				if wb < 0 || wc < 0 || wb+wc > 1 {
					continue
				}
				z := uint16(a.z + wb*(b.z-a.z) + wc*(c.z-a.z) + 0.5)
				if old := g.Depth[y*w+x]; old == 0 || z < old {
					g.Depth[y*w+x] = z
				}
			}
		}
	}
	for y := range dh - 1 {
		for x := range dw - 1 {
			i := y*dw + x
			a, b, c, d := vertices[i], vertices[i+1], vertices[i+dw], vertices[i+dw+1]
			near, far := min(a.z, b.z, c.z, d.z), max(a.z, b.z, c.z, d.z)
			if near <= 0 || far-near > 0.05*near {
				continue
			}
			triangle(a, b, c)
			triangle(b, d, c)
		}
	}
	// The colour lens is nearly free of distortion: its pinhole ray is enough
	// for a cloud that is only compressed.
	full := float64(w) * 3 / 4
	var xyz []int16
	for i, d := range g.Depth {
		if d == 0 {
			continue
		}
		p := color.Pix[(i/w)*color.Stride+4*(i%w):]
		copy(g.Color[3*i:3*i+3], p[:3])
		x := ((float64(i%w)+0.5)/float64(w) - c.color.cx) / c.color.fx
		y := ((float64(i/w)+(full-float64(h))/2+0.5)/full - c.color.cy) / c.color.fy
		xyz = append(xyz, int16(math.Round(x*float64(d))), int16(math.Round(y*float64(d))), int16(d))
	}
	return g, xyz
}
