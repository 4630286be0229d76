// Package camera describes the geometry of a depth-and-colour sensor: its lens model, the ray of
// every depth pixel, the transform between its two lenses and its pose in the studio. It parses one
// file format, the Azure Kinect's factory calibration (calibration.json, or LiveScan3D's
// Intrinsics.json with the same contents).
//
// The lens model is Brown–Conrady with six radial and two tangential coefficients, as defined by
// the Azure Kinect Sensor SDK 1.4.
package camera

import (
	"errors"
	"fmt"
	"math"
)

// Calibration is a sensor's factory calibration for one depth mode and one colour resolution.
// Catalogs carry its JSON form, from which a client can compute a bit-identical ray table
// (Intrinsics.Unproject).
type Calibration struct {
	Serial       string     `json:"serial,omitempty"`
	Depth        Intrinsics `json:"depth"`
	Color        Intrinsics `json:"color"` // zero if the sensor records no colour
	DepthToColor Transform  `json:"depthToColor"`
	// Raw is the original factory document, which recordings include.
	Raw []byte `json:"-"`
}

// Validate returns an error that names the first invalid field. Call it on every calibration from
// outside, such as one from a catalog, before use.
func (c Calibration) Validate() error {
	if err := c.Depth.Validate(); err != nil {
		return fmt.Errorf("depth: %w", err)
	}
	if c.Color != (Intrinsics{}) {
		if err := c.Color.Validate(); err != nil {
			return fmt.Errorf("color: %w", err)
		}
	}
	if err := c.DepthToColor.Validate(); err != nil {
		return fmt.Errorf("depthToColor: %w", err)
	}
	return nil
}

// maxSide bounds an image's width and height. It is twice the larger side of the largest existing
// sensor.
const maxSide = 8192

// Validate returns an error that describes the first invalid field.
func (in *Intrinsics) Validate() error {
	if in.Width <= 0 || in.Width > maxSide || in.Height <= 0 || in.Height > maxSide {
		return fmt.Errorf("image size %d×%d is outside 1..%d", in.Width, in.Height, maxSide)
	}
	if !(in.Fx > 0) || !(in.Fy > 0) {
		return fmt.Errorf("focal length fx %g, fy %g must be positive", in.Fx, in.Fy)
	}
	if !finite(in.Fx, in.Fy, in.Cx, in.Cy, in.MaxRadius) || !finite(in.K[:]...) || !finite(in.P[:]...) {
		return errors.New("a lens parameter is not finite")
	}
	if in.MaxRadius < 0 {
		return fmt.Errorf("maxRadius %g is negative", in.MaxRadius)
	}
	return nil
}

func finite(v ...float64) bool {
	for _, x := range v {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return false
		}
	}
	return true
}
