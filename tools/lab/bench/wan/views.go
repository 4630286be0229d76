package wan

import (
	"image"
	"math"

	"holocast/internal/camera"
	"holocast/internal/pointcloud"
	"holocast/internal/render"
)

// viewWidth and viewHeight are the size of a rendered view in pixels.
const viewWidth, viewHeight = 640, 480

// walk returns the viewer's position after part t of a walk, in degrees from the first camera: to
// either side, rising and falling.
func walk(t float64) (azimuth, elevation float64) {
	return 40 * math.Sin(2*math.Pi*t), 12 + 10*math.Sin(4*math.Pi*t)
}

// shot is what all cameras captured at one time.
type shot struct{ grids []pointcloud.Grid }

// clouds returns the shot's points in the studio, and the positions of its cameras.
func (s shot) clouds(from []*sequence) (points []pointcloud.Points, at [][3]float64) {
	for i := range s.grids {
		points = append(points, s.grids[i].Transform(&from[i].rays, from[i].pose))
		at = append(at, from[i].pose.T)
	}
	return points, at
}

// view renders the shot from a point of the walk. The view frames fit, so pictures of different
// codecs match.
func (s shot) view(from []*sequence, fit []pointcloud.Points, t float64) (*image.RGBA, error) {
	points, at := s.clouds(from)
	o := render.Options{Width: viewWidth, Height: viewHeight, Sensors: at, Fit: fit}
	o.Azimuth, o.Elevation = walk(t)
	if from[0].pose != camera.Identity { // the studio's first camera looks along −z, and y points up
		o.YUp = true
	}
	return render.Image(o, points...)
}

// closeUp renders the performer from nearby, or else the whole shot.
func (s shot) closeUp(from []*sequence, fit []pointcloud.Points) (*image.RGBA, error) {
	if from[0].pose == camera.Identity || len(from) == 1 {
		return s.view(from, fit, 0.05)
	}
	points, at := s.clouds(from)
	pose := eye(25, 1500, 2700)
	return render.Image(render.Options{Width: viewWidth, Height: viewHeight, Sensors: at, Eye: &pose}, points...)
}

// pictureError returns the mean squared error of two pictures' colours.
func pictureError(a, b *image.RGBA) float64 {
	sum := 0.0
	for i := range a.Pix {
		if i%4 != 3 {
			d := float64(a.Pix[i]) - float64(b.Pix[i])
			sum += d * d
		}
	}
	return sum / float64(len(a.Pix)/4*3)
}
