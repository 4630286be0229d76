package looks

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"slices"

	"holocast/capture-server/calibrate"
	"holocast/capture-server/depthmap"
	"holocast/capture-server/source"
	"holocast/capture-server/source/livescanfiles"
	"holocast/capture-server/source/synthetic"
	"holocast/internal/camera"
	"holocast/internal/mjpeg"
	"holocast/internal/pointcloud"
	"holocast/internal/render"
	"holocast/internal/vec3"
)

// view is one camera's capture.
type view struct {
	name string
	cal  camera.Calibration
	pose camera.Transform // depth camera to studio
	gain depthmap.Gain
	grid pointcloud.Grid
	rays camera.RayTable

	picture       []byte // R G B of the color camera
	width, height int
}

// surface returns the capture for rendering. gain matches its colors to the other cameras'.
func (v *view) surface(gain *depthmap.Gain) render.Surface {
	s := render.Surface{Grid: &v.grid, Rays: &v.rays, Pose: v.pose}
	if gain != nil {
		matched := v.grid
		matched.Color = slices.Clone(v.grid.Color)
		depthmap.Gain{v.gain[0] / gain[0], v.gain[1] / gain[1], v.gain[2] / gain[2]}.Apply(matched.Depth, matched.Color)
		s.Grid = &matched
	}
	return s
}

// recorded returns the first capture of a recorded studio's cameras, or none if the recording is missing.
func recorded(ctx context.Context, data string) ([]*view, error) {
	dir := filepath.Join(data, "livescan_testdata")
	cameras, err := livescanfiles.Open(dir, livescanfiles.Options{
		Depth: camera.NFOVUnbinned, Color: camera.Color720P, Frames: 1,
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	solved, err := calibrate.Livescan(ctx, dir, "")
	if err != nil {
		return nil, err
	}
	var views []*view
	for _, c := range cameras {
		v := &view{name: c.Name(), cal: c.Calibration(), pose: solved.Poses[c.Name()], gain: solved.Gains[c.Name()]}
		if err := v.capture(ctx, c); err != nil {
			return nil, err
		}
		views = append(views, v)
	}
	return views, nil
}

func (v *view) capture(ctx context.Context, from source.Source) (err error) {
	defer func() { err = errors.Join(err, from.Close()) }()
	var f source.Frame
	if err := from.Next(ctx, &f); err != nil {
		return err
	}
	defer f.Release()
	mapper, err := depthmap.New(v.cal, depthmap.Config{
		Grazing: depthmap.DefaultGrazing, ColorInset: depthmap.DefaultColorInset,
	})
	if err != nil {
		return err
	}
	defer mapper.Close()
	if err := mapper.Map(&f, &v.grid); err != nil {
		return err
	}
	v.rays = v.cal.Depth.RayTable()
	decoder, err := mjpeg.NewDecoder()
	if err != nil {
		return err
	}
	defer decoder.Close()
	v.picture, v.width, v.height, err = decoder.DecodeRGB(nil, f.Color)
	return err
}

// eye maps the studio to the color camera.
func (v *view) eye() camera.Transform { return v.cal.DepthToColor.Compose(v.pose.Inverse()) }

// lens is the color camera's without distortion, at half its size.
func (v *view) lens() render.Lens {
	c := v.cal.Color
	return render.Lens{Focal: c.Fx / 2, X: (c.Cx + 0.5) / 2, Y: (c.Cy + 0.5) / 2}
}

// truth returns the color camera's picture as lens sees it, and which pixels it covers.
func (v *view) truth() (rgb []byte, covered []bool) {
	w, h, l := v.width/2, v.height/2, v.lens()
	rgb, covered = make([]byte, 3*w*h), make([]bool, w*h)
	for y := range h {
		for x := range w {
			// Average four samples, one per pixel of the camera.
			var sum [3]float64
			n := 0
			for _, s := range [4][2]float64{{0.25, 0.25}, {0.75, 0.25}, {0.25, 0.75}, {0.75, 0.75}} {
				px, py := (float64(x)+s[0]-l.X)/l.Focal, (float64(y)+s[1]-l.Y)/l.Focal
				u, t, ok := v.cal.Color.Project([3]float64{px, py, 1})
				if c, in := v.sample(u, t); ok && in {
					n++
					for k := range 3 {
						sum[k] += c[k]
					}
				}
			}
			if n == 4 {
				covered[y*w+x] = true
				for k := range 3 {
					rgb[3*(y*w+x)+k] = uint8(sum[k]/4 + 0.5)
				}
			}
		}
	}
	return rgb, covered
}

func (v *view) sample(u, t float64) (c [3]float64, ok bool) {
	x, y := int(math.Floor(u)), int(math.Floor(t))
	if x < 0 || y < 0 || x+1 >= v.width || y+1 >= v.height {
		return c, false
	}
	fx, fy := u-float64(x), t-float64(y)
	for k := range 3 {
		at := func(x, y int) float64 { return float64(v.picture[3*(y*v.width+x)+k]) }
		c[k] = (1-fy)*((1-fx)*at(x, y)+fx*at(x+1, y)) + fy*((1-fx)*at(x, y+1)+fx*at(x+1, y+1))
	}
	return c, true
}

// sees reports whether the depth camera measured the surface with the given normal at a point of the
// studio, away from its edges.
func (v *view) sees(p, normal [3]float64) bool {
	q := v.pose.Inverse().Apply(p)
	u, t, ok := v.cal.Depth.Project(q)
	x, y := int(math.Round(u)), int(math.Round(t))
	if !ok || !v.inside(x, y, within) || math.Abs(v.depth(x, y)-q[2]) > near+nearer*q[2] {
		return false
	}
	for _, d := range [4][2]int{{-within, 0}, {within, 0}, {0, -within}, {0, within}} {
		if math.Abs(v.depth(x+d[0], y+d[1])-q[2]) > edge*q[2] {
			return false
		}
	}
	n, ok := v.normal(x, y)
	return ok && vec3.Dot(n, normal) >= sameSurface
}

const (
	near, nearer = 15, 0.01 // largest distance of a surface from a point, mm and per mm of depth
	edge         = 0.05     // change of depth at an edge, per mm of depth
	within       = 8        // pixels to the edge of a surface
	span         = 3        // pixels between the readings that give a normal
	sameSurface  = 0.7      // least cosine between two cameras' normals of one surface
)

func (v *view) depth(x, y int) float64 { return float64(v.grid.Depth[y*v.grid.Width+x]) }

func (v *view) inside(x, y, by int) bool {
	return x >= by && y >= by && x < v.grid.Width-by && y < v.grid.Height-by
}

// point returns the point of a pixel in the studio.
func (v *view) point(x, y int) (p [3]float64, ok bool) {
	at := y*v.grid.Width + x
	z, rx := float64(v.grid.Depth[at]), float64(v.rays.X[at])
	return v.pose.Apply([3]float64{rx * z, float64(v.rays.Y[at]) * z, z}), z > 0 && !math.IsNaN(rx)
}

// normal returns the normal of the surface around a pixel, in the studio. ok is false at edges.
func (v *view) normal(x, y int) (n [3]float64, ok bool) {
	if !v.inside(x, y, span) {
		return n, false
	}
	var p [4][3]float64
	z := v.depth(x, y)
	for i, d := range [4][2]int{{-span, 0}, {span, 0}, {0, -span}, {0, span}} {
		far := v.depth(x+d[0], y+d[1])
		if p[i], ok = v.point(x+d[0], y+d[1]); !ok || math.Abs(far-z) > edge*z {
			return n, false
		}
	}
	n = vec3.Cross(vec3.Sub(p[3], p[2]), vec3.Sub(p[1], p[0]))
	return vec3.Unit(n), vec3.Length(n) > 0
}

// performer captures a frame of the synthetic performer in a room. Every second camera is held out.
func performer(ctx context.Context) ([]*view, error) {
	studio, err := synthetic.Open(ctx, synthetic.Options{Cameras: 2 * cameras, Cut: 1, Room: true})
	if err != nil {
		return nil, err
	}
	var views []*view
	for _, c := range studio.Cameras {
		v := &view{name: c.Name(), cal: c.Calibration(), pose: studio.Poses[c.Name()], gain: depthmap.Gain{1, 1, 1}}
		if err := v.capture(ctx, c); err != nil {
			return nil, err
		}
		views = append(views, v)
	}
	return views, nil
}
