// Package camera owns the geometry of one depth-and-colour sensor: its lens
// model, the ray of every depth pixel, the transform between its two lenses and
// its place in the studio. It knows no file formats but the two calibration
// documents an Azure Kinect is known by (calibration.json and LiveScan3D's
// Intrinsics.json, which have the same contents).
//
// The lens model is Brown–Conrady with six radial and two tangential
// coefficients, as the Azure Kinect Sensor SDK documents it.
package camera

// Intrinsics describe one lens at one image size.
type Intrinsics struct {
	Width  int `json:"width"`  // pixels
	Height int `json:"height"` // pixels

	// Focal lengths and principal point, pixels; (0,0) is the centre of the
	// top-left pixel.
	Fx float64 `json:"fx"`
	Fy float64 `json:"fy"`
	Cx float64 `json:"cx"`
	Cy float64 `json:"cy"`

	// Radial coefficients: (1+k1r²+k2r⁴+k3r⁶)/(1+k4r²+k5r⁴+k6r⁶).
	K [6]float64 `json:"k"`
	// Tangential coefficients p1, p2.
	P [2]float64 `json:"p"`

	// MaxRadius is the largest normalised radius at which the model is known to
	// hold; beyond it a pixel has no ray. 0 means no limit.
	MaxRadius float64 `json:"maxRadius,omitempty"`
}

// Transform is a rigid motion p' = R·p + T.
type Transform struct {
	R [9]float64 `json:"r"` // row-major rotation
	T [3]float64 `json:"t"` // millimetres
}

// Identity is the motion that moves nothing.
var Identity = Transform{R: [9]float64{1, 0, 0, 0, 1, 0, 0, 0, 1}}

// Calibration is what a sensor's factory calibration says for one depth mode and
// one colour resolution.
type Calibration struct {
	Serial       string     `json:"serial,omitempty"`
	Depth        Intrinsics `json:"depth"`
	Color        Intrinsics `json:"color"`
	DepthToColor Transform  `json:"depthToColor"`
	// Raw is the factory document the calibration was read from, kept so that a
	// recording can carry it on.
	Raw []byte `json:"-"`
}
