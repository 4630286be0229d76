package looks

import (
	"context"
	"image"
	"math"
	"slices"

	"holocast/capture-server/depthmap"
	"holocast/capture-server/source/synthetic"
	"holocast/internal/pointcloud"
	"holocast/internal/qoe"
	"holocast/internal/render"
	"holocast/internal/vec3"
	"holocast/tools/lab/bench/internal/quantile"
)

// look draws surfaces.
type look func(render.Options, ...render.Surface) (*image.RGBA, error)

// Shape compares the shape in pictures with the exact one.
type Shape struct {
	Silhouette float64 `json:"silhouette"` // intersection over union of the performer's pixels
	DepthP50   float64 `json:"depth_p50"`  // distance along the view, mm
	NormalP50  float64 `json:"normal_p50"` // angle, degrees
	NormalP95  float64 `json:"normal_p95"`
}

// Shapes holds the means over the views of the synthetic performer without a room.
type Shapes struct {
	Points  Shape `json:"points"`
	Surface Shape `json:"surface"`
}

// shapes draws the performer as depth cameras that are left out see it.
func shapes(ctx context.Context) (*Shapes, error) {
	exact := map[int][]float32{}
	studio, err := synthetic.Open(ctx, synthetic.Options{
		Cameras: 2 * cameras, Cut: 1,
		Exact: func(camera, _ int, depth []float32, _ []byte) { exact[camera] = slices.Clone(depth) },
	})
	if err != nil {
		return nil, err
	}
	var views []*view
	var surfaces []render.Surface
	for i, c := range studio.Cameras {
		v := &view{name: c.Name(), cal: c.Calibration(), pose: studio.Poses[c.Name()], gain: depthmap.Gain{1, 1, 1}}
		if err := v.capture(ctx, c); err != nil {
			return nil, err
		}
		views = append(views, v)
		if i%2 == 0 {
			surfaces = append(surfaces, v.surface(nil))
		}
	}
	var s Shapes
	for i, v := range views {
		if i%2 == 0 {
			continue
		}
		truth := make([]uint16, len(exact[i]))
		for k, z := range exact[i] {
			truth[k] = uint16(1000*z + 0.5)
		}
		v.grid = pointcloud.Grid{Width: v.cal.Depth.Width, Height: v.cal.Depth.Height, Depth: truth}
		for look, draw := range map[*Shape]look{&s.Points: render.Squares, &s.Surface: render.Surfaces} {
			got, err := v.shape(draw, surfaces)
			if err != nil {
				return nil, err
			}
			look.Silhouette += got.Silhouette / cameras
			look.DepthP50 += got.DepthP50 / cameras
			look.NormalP50 += got.NormalP50 / cameras
			look.NormalP95 += got.NormalP95 / cameras
		}
	}
	for _, look := range []*Shape{&s.Points, &s.Surface} {
		*look = Shape{
			Silhouette: qoe.Round(look.Silhouette, 4), DepthP50: qoe.Round(look.DepthP50, 2),
			NormalP50: qoe.Round(look.NormalP50, 1), NormalP95: qoe.Round(look.NormalP95, 1),
		}
	}
	return &s, nil
}

// shape compares the drawn depth with v's grid, which is exact.
func (v *view) shape(draw look, from []render.Surface) (Shape, error) {
	var depth []float32
	eye, lens := v.pose.Inverse(), v.cal.Depth
	opts := render.Options{
		Width: lens.Width, Height: lens.Height, Eye: &eye, Depth: &depth,
		Lens: &render.Lens{Focal: lens.Fx, X: lens.Cx + 0.5, Y: lens.Cy + 0.5},
	}
	if _, err := draw(opts, from...); err != nil {
		return Shape{}, err
	}
	// The drawn picture as a grid of the camera, which sees through a lens with distortion.
	drawn := view{cal: v.cal, pose: v.pose, rays: v.rays, grid: v.grid}
	drawn.grid.Depth = make([]uint16, len(v.grid.Depth))
	var both, either float64
	var off, angles []float64
	for at, z := range v.grid.Depth {
		rx, ry := float64(v.rays.X[at]), float64(v.rays.Y[at])
		const per = render.Supersample
		x, y := int(per*(rx*opts.Lens.Focal+opts.Lens.X)), int(per*(ry*opts.Lens.Focal+opts.Lens.Y))
		if math.IsNaN(rx) || x < 0 || y < 0 || x >= per*lens.Width || y >= per*lens.Height {
			continue
		}
		got := depth[y*per*lens.Width+x]
		if !math.IsInf(float64(got), 1) && got < math.MaxUint16 {
			drawn.grid.Depth[at] = uint16(got + 0.5)
		}
		hit := drawn.grid.Depth[at] != 0
		if hit || z != 0 {
			either++
		}
		if hit && z != 0 {
			both++
			off = append(off, math.Abs(float64(got)-float64(z)))
		}
	}
	for y := range v.grid.Height {
		for x := range v.grid.Width {
			want, smooth := v.normal(x, y)
			got, ok := drawn.normal(x, y)
			if smooth && ok {
				angles = append(angles, math.Acos(max(-1, min(1, vec3.Dot(want, got))))*180/math.Pi)
			}
		}
	}
	return Shape{both / either, quantile.Of(off, 0.5), quantile.Of(angles, 0.5), quantile.Of(angles, 0.95)}, nil
}
