// Package k4amkv reads and writes Azure Kinect recordings: the Matroska files that
// k4arecorder and libk4arecord make ("Azure Kinect recording file format",
// Azure Kinect DK documentation).
//
// A recording has up to four tracks: COLOR (MJPG, NV12, YUY2 or BGRA), DEPTH and IR
// (16-bit grey, big-endian in the file, native here), IMU (40-byte samples); tags such
// as K4A_DEPTH_MODE; and the camera's factory calibration as the attachment
// calibration.json.
//
// Reading walks the file's elements by itself, because ebml-go unmarshals a whole
// recording into memory and allocates what a damaged length field says; writing
// uses ebml-go.
package k4amkv

import (
	"fmt"
	"time"

	"holocast/internal/camera"
)

// Config is what a recording says of the camera that made it.
type Config struct {
	DepthMode   camera.DepthMode   // "" where there is neither depth nor IR
	ColorMode   camera.ColorMode   // ColorOff where there is no colour
	ColorFormat camera.ColorFormat // "" where there is no colour
	FPS         int                // 5, 15 or 30; captures may come more slowly

	// The tracks a recording has besides COLOR.
	Depth, IR, IMU bool

	// StartOffset is the device time of the recording's time zero. The Writer takes
	// it from the first image.
	StartOffset time.Duration
	// DepthDelay is how much later than colour the camera took depth.
	DepthDelay time.Duration
	Serial     string
	// Calibration is the factory document, for camera.Parse; nil where the recording
	// has none.
	Calibration []byte
}

// period is the time between two frames.
func (c *Config) period() time.Duration { return time.Second / time.Duration(c.FPS) }

// Capture is what the camera took at one moment. An image that the recording lacks
// is nil. Times are device times, of the middle of the exposure.
type Capture struct {
	Color     []byte // as Config.ColorFormat says
	ColorTime time.Duration
	Depth     []uint16 // width×height of the depth mode, millimetres, 0 = no reading
	DepthTime time.Duration
	IR        []uint16 // width×height of the depth mode, active brightness
	IRTime    time.Duration
	// IMU holds the samples recorded since the previous capture.
	IMU []IMUSample
}

// Time returns the device time of the capture's earliest image.
func (c *Capture) Time() time.Duration {
	t, found := time.Duration(0), false
	for _, image := range []struct {
		present bool
		time    time.Duration
	}{{c.Color != nil, c.ColorTime}, {c.Depth != nil, c.DepthTime}, {c.IR != nil, c.IRTime}} {
		if image.present && (!found || image.time < t) {
			t, found = image.time, true
		}
	}
	return t
}

// IMUSample is one reading of the accelerometer and of the gyroscope.
type IMUSample struct {
	AccelTime time.Duration // device time
	Accel     [3]float32    // m/s²
	GyroTime  time.Duration // device time
	Gyro      [3]float32    // rad/s
}

// DamageError says where a recording is damaged.
type DamageError struct {
	Offset  int64  // of the element, in bytes from the file's beginning
	Element string // Matroska's name of it
	Err     error
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("recording is damaged at byte %d (%s): %v", e.Offset, e.Element, e.Err)
}

func (e *DamageError) Unwrap() error { return e.Err }
