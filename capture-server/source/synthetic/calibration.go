package synthetic

import (
	_ "embed"
	"fmt"
	"math"
	"strings"

	"holocast/internal/camera"
)

// factoryDocument is an invented factory calibration with the structure and magnitudes of an Azure
// Kinect's. %SERIAL% stands for the serial number.
//
//go:embed calibration.json
var factoryDocument string

// Calibration returns the calibration of camera index of a studio, for one depth and one colour
// mode. Its Raw is a complete factory document, so that recordings of the performer open like a
// real camera's.
func Calibration(index int, depth camera.DepthMode, color camera.ColorMode) (camera.Calibration, error) {
	doc := strings.ReplaceAll(factoryDocument, "%SERIAL%", fmt.Sprintf("000000%06d", index))
	return camera.Parse([]byte(doc), depth, color)
}

// around returns the pose of depth camera i of n. The cameras are spaced evenly on a circle around
// the performer and aimed at a point on its axis. radius and height describe the circle, and target
// is the point's height, all in mm. Camera 0 is in front of the performer; the next is to his left.
func around(i, n int, radius, height, target float64) camera.Transform {
	sin, cos := math.Sincos(2 * math.Pi * float64(i) / float64(n))
	tilt := math.Atan2(height-target, radius)
	ts, tc := math.Sincos(tilt)
	// The columns are the camera's axes (right, down, forward) in studio space.
	right := [3]float64{cos, 0, -sin}
	forward := [3]float64{-sin * tc, -ts, -cos * tc}
	down := [3]float64{ // forward × right
		forward[1]*right[2] - forward[2]*right[1],
		forward[2]*right[0] - forward[0]*right[2],
		forward[0]*right[1] - forward[1]*right[0],
	}
	return camera.Transform{
		R: [9]float64{
			right[0], down[0], forward[0],
			right[1], down[1], forward[1],
			right[2], down[2], forward[2],
		},
		T: [3]float64{radius * sin, height, radius * cos},
	}
}
