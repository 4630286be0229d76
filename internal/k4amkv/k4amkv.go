// Package k4amkv reads and writes Azure Kinect recordings: the Matroska files of k4arecorder and
// libk4arecord ("Azure Kinect recording file format", Azure Kinect DK documentation).
//
// A recording has up to four tracks: COLOR (MJPG, NV12, YUY2 or BGRA), DEPTH and IR (16-bit grey,
// big-endian in the file, native here), IMU (40-byte samples); tags such as K4A_DEPTH_MODE; and the
// camera's factory calibration as the attachment calibration.json.
//
// The writer uses ebml-go. The reader does not, as ebml-go loads entire recordings and trusts
// damaged length fields when it allocates.
package k4amkv

import (
	"fmt"
	"time"

	"holocast/internal/camera"
)

// Config describes a recording and its camera.
type Config struct {
	DepthMode   camera.DepthMode   // "" without depth and IR
	ColorMode   camera.ColorMode   // ColorOff without colour
	ColorFormat camera.ColorFormat // "" without colour
	FPS         int                // 5, 15 or 30 when writing, 1 to 1000 when reading; captures may be less frequent

	// Tracks other than COLOR.
	Depth, IR, IMU bool

	// StartOffset is the device time of the recording's time zero. The Writer uses the first
	// image's time.
	StartOffset time.Duration
	// DepthDelay is the time by which depth is captured after colour.
	DepthDelay time.Duration
	Serial     string
	// Calibration is the factory document, for camera.Parse. It is nil if missing.
	Calibration []byte
}

// period returns the frame interval.
func (c *Config) period() time.Duration { return time.Second / time.Duration(c.FPS) }

// Capture holds the images of one moment; missing images are nil. Times are device times of the
// middle of the exposure.
type Capture struct {
	Color     []byte // in Config.ColorFormat
	ColorTime time.Duration
	Depth     []uint16 // width×height of the depth mode, millimetres, 0 = no reading
	DepthTime time.Duration
	IR        []uint16 // width×height of the depth mode, active infrared brightness
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

// DamageError reports where a recording is damaged.
type DamageError struct {
	Offset  int64  // offset of the element in the file, in bytes
	Element string // name in Matroska
	Err     error
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("recording is damaged at byte %d (%s): %v", e.Offset, e.Element, e.Err)
}

func (e *DamageError) Unwrap() error { return e.Err }
