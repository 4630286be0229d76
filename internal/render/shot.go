package render

import (
	"fmt"
	"image"
	"slices"

	"holocast/internal/camera"
	"holocast/internal/mesh"
	"holocast/internal/pointcloud"
)

// Look is how frames are drawn.
type Look string

// Looks.
const (
	Surfaced Look = "surface" // cameras on a grid as surfaces, others as points
	Dotted   Look = "points"
)

// ParseLook parses a setting's value.
func ParseLook(s string) (Look, error) {
	if l := Look(s); l == Surfaced || l == Dotted {
		return l, nil
	}
	return "", fmt.Errorf("look %q is unknown; use %s or %s", s, Surfaced, Dotted)
}

// Camera is one camera's frame, in any layout.
type Camera struct {
	Number int
	Frame  *pointcloud.Frame
	Rays   *camera.RayTable // of layouts on a grid
	Pose   camera.Transform
}

// Cloud returns the frame's points in studio coordinates.
func (c Camera) Cloud() pointcloud.Points {
	if c.Frame.Layout.OnGrid() {
		return c.Frame.Grid.Transform(c.Rays, c.Pose)
	}
	return c.Frame.Points.Transform(c.Pose)
}

// Shot holds the cameras' frames of one time.
type Shot []Camera

// Clone returns a copy that shares no frame.
func (s Shot) Clone() Shot {
	s = slices.Clone(s)
	for i, c := range s {
		f := *c.Frame
		f.Grid.Depth, f.Grid.Color = slices.Clone(f.Grid.Depth), slices.Clone(f.Grid.Color)
		f.Points.XYZ, f.Points.RGB = slices.Clone(f.Points.XYZ), slices.Clone(f.Points.RGB)
		s[i].Frame = &f
	}
	return s
}

// YUp reports whether the studio's y axis points up. It assumes upright cameras, whose own y axes
// point down.
func (s Shot) YUp() bool {
	var y float64
	for _, c := range s {
		y += c.Pose.R[4] // y component of the camera's y axis in the studio
	}
	return y < 0
}

// Clouds returns the frames' points in studio coordinates, and the cameras' positions.
func (s Shot) Clouds() (clouds []pointcloud.Points, sensors [][3]float64) {
	for _, c := range s {
		if p := c.Cloud(); len(p.XYZ) > 0 {
			clouds, sensors = append(clouds, p), append(sensors, c.Pose.T)
		}
	}
	return clouds, sensors
}

// Draw draws the shot. Unless all cameras are on a grid, it draws all as points. YUp and Sensors of the options
// are set.
func (s Shot) Draw(o Options, look Look) (*image.RGBA, error) {
	o.YUp = s.YUp()
	if look == Dotted || s.offGrid() >= 0 {
		var clouds []pointcloud.Points
		clouds, o.Sensors = s.Clouds()
		return Image(o, clouds...)
	}
	var surfaces []Surface
	for _, c := range s {
		surfaces = append(surfaces, c.surface())
	}
	return Surfaces(o, surfaces...)
}

func (c Camera) surface() Surface { return Surface{Grid: &c.Frame.Grid, Rays: c.Rays, Pose: c.Pose} }

// offGrid returns the index of the first camera that is not on a grid, or −1.
func (s Shot) offGrid() int {
	return slices.IndexFunc(s, func(c Camera) bool { return !c.Frame.Layout.OnGrid() })
}

// Meshes returns each camera's mesh in studio coordinates. It fails if a camera is not on a grid.
func (s Shot) Meshes() ([]*mesh.Mesh, error) {
	var list []*mesh.Mesh
	if i := s.offGrid(); i >= 0 {
		return nil, NoGrid(s[i].Number, s[i].Frame.Layout)
	}
	for _, c := range s {
		m, err := c.surface().Mesh()
		if err != nil {
			return nil, fmt.Errorf("camera %d: %w", c.Number, err)
		}
		m.Name = fmt.Sprintf("camera-%d", c.Number)
		list = append(list, m)
	}
	return list, nil
}

// NoGrid returns the error for a camera without a surface.
func NoGrid(number int, l pointcloud.Layout) error {
	return fmt.Errorf("camera %d has layout %s: only layouts A and W have surfaces; a PLY file without faces holds any layout",
		number, l)
}
