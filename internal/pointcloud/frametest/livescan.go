package frametest

import (
	"fmt"
	"image"
	"image/draw"
	"image/jpeg"
	"math"
	"os"
	"path/filepath"

	"golang.org/x/image/tiff"

	"holocast/internal/camera"
	"holocast/internal/pointcloud"
)

// Load reads all cameras' NFOV frames in LiveScan3D's test data below dataDir (HOLOCAST_DATA).
// limit bounds the frames per camera; 0 means all.
func Load(dataDir string, limit int) ([]Frame, error) {
	pattern := filepath.Join(dataDir, "livescan_testdata", "*", "depth_NFOV_UNBINNED", "Depth_*.tiff")
	files, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no frames match %s: %w", pattern, os.ErrNotExist)
	}
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
	calibration := filepath.Join(device, "Intrinsics.json")
	doc, err := os.ReadFile(calibration)
	if err != nil {
		return f, err
	}
	cal720, err := camera.Parse(doc, camera.NFOVUnbinned, camera.Color720P)
	if err != nil {
		return f, fmt.Errorf("%s: %w", calibration, err)
	}
	cal1080, err := camera.Parse(doc, camera.NFOVUnbinned, camera.Color1080P)
	if err != nil {
		return f, fmt.Errorf("%s: %w", calibration, err)
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
	if size := depth.Rect.Size(); size != image.Pt(cal720.Depth.Width, cal720.Depth.Height) {
		return f, fmt.Errorf("%s: %v pixels, want %d×%d", depthFile, size, cal720.Depth.Width, cal720.Depth.Height)
	}
	for _, c := range []struct {
		img  *image.RGBA
		lens camera.Intrinsics
	}{{color720, cal720.Color}, {color1080, cal1080.Color}} {
		if size := c.img.Rect.Size(); size != image.Pt(c.lens.Width, c.lens.Height) {
			return f, fmt.Errorf("%s frame %d: colour of %v pixels, want %d×%d", device, index, size, c.lens.Width,
				c.lens.Height)
		}
	}
	rays := cal720.Depth.RayTable()
	f.Rays = rays
	f.NFOV = mapColor(depth, &rays, &cal720, color720)
	f.FHD = warpDepth(depth, &rays, &cal1080, color1080)
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

// toColor returns the colour pixel of a depth pixel's point and its depth there. ok is false if the
// depth pixel has no point or the colour lens does not see it.
func toColor(rays *camera.RayTable, i int, depth uint16, cal *camera.Calibration) (u, v, z float64, ok bool) {
	if depth == 0 || math.IsNaN(float64(rays.X[i])) {
		return 0, 0, 0, false
	}
	d := float64(depth)
	p := cal.DepthToColor.Apply([3]float64{float64(rays.X[i]) * d, float64(rays.Y[i]) * d, d})
	u, v, ok = cal.Color.Project(p)
	return u, v, p[2], ok
}

// mapColor returns the depth pixels that lie inside the colour image, with their colours.
func mapColor(depth *image.Gray16, rays *camera.RayTable, cal *camera.Calibration, color *image.RGBA) Cloud {
	w, h := rays.Width, rays.Height
	c := newCloud(w, h)
	for i := range w * h {
		d := depth.Gray16At(i%w, i/w).Y
		u, v, _, ok := toColor(rays, i, d, cal)
		if !ok || u < 0 || v < 0 || u > float64(cal.Color.Width-1) || v > float64(cal.Color.Height-1) {
			continue
		}
		c.Grid.Depth[i] = d
		bilinear(c.Grid.Color[3*i:3*i+3], color, u, v)
		c.add(i, float64(rays.X[i]), float64(rays.Y[i]))
	}
	return c
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

// vertex is a depth pixel seen by the colour camera, in pixels and millimetres.
type vertex struct{ u, v, z float64 }

// warpDepth renders every quad of neighbouring depth pixels as two triangles into the colour
// camera, nearest surface first. It skips quads across a depth step.
func warpDepth(depth *image.Gray16, rays *camera.RayTable, cal *camera.Calibration, color *image.RGBA) Cloud {
	vertices := make([]vertex, rays.Width*rays.Height)
	for i := range vertices {
		if u, v, z, ok := toColor(rays, i, depth.Gray16At(i%rays.Width, i/rays.Width).Y, cal); ok {
			vertices[i] = vertex{u, v, z}
		}
	}
	c := newCloud(cal.Color.Width, cal.Color.Height)
	for y := range rays.Height - 1 {
		for x := range rays.Width - 1 {
			i := y*rays.Width + x
			a, b, below, diagonal := vertices[i], vertices[i+1], vertices[i+rays.Width], vertices[i+rays.Width+1]
			near, far := min(a.z, b.z, below.z, diagonal.z), max(a.z, b.z, below.z, diagonal.z)
			if near <= 0 || far-near > 0.05*near {
				continue
			}
			drawTriangle(&c.Grid, a, b, below)
			drawTriangle(&c.Grid, b, diagonal, below)
		}
	}
	lens := cal.Color.RayTable()
	for i, d := range c.Grid.Depth {
		if d == 0 || math.IsNaN(float64(lens.X[i])) {
			c.Grid.Depth[i] = 0
			continue
		}
		copy(c.Grid.Color[3*i:3*i+3], color.Pix[(i/lens.Width)*color.Stride+4*(i%lens.Width):])
		c.add(i, float64(lens.X[i]), float64(lens.Y[i]))
	}
	return c
}

// drawTriangle writes the depth of a triangle where it is nearest.
func drawTriangle(g *pointcloud.Grid, a, b, c vertex) {
	area := (b.u-a.u)*(c.v-a.v) - (b.v-a.v)*(c.u-a.u)
	if area == 0 {
		return
	}
	x0, x1 := max(0, int(math.Ceil(min(a.u, b.u, c.u)))), min(g.Width-1, int(max(a.u, b.u, c.u)))
	y0, y1 := max(0, int(math.Ceil(min(a.v, b.v, c.v)))), min(g.Height-1, int(max(a.v, b.v, c.v)))
	for y := y0; y <= y1; y++ {
		for x := x0; x <= x1; x++ {
			u, v := float64(x)-a.u, float64(y)-a.v
			wb := (u*(c.v-a.v) - v*(c.u-a.u)) / area
			wc := ((b.u-a.u)*v - (b.v-a.v)*u) / area
			if wb < 0 || wc < 0 || wb+wc > 1 {
				continue
			}
			z := uint16(a.z + wb*(b.z-a.z) + wc*(c.z-a.z) + 0.5)
			if old := g.Depth[y*g.Width+x]; old == 0 || z < old {
				g.Depth[y*g.Width+x] = z
			}
		}
	}
}
