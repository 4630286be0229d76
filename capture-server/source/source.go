// Package source is the seam between sensors and the rest of the capture
// server: a live camera, a recording, a directory of frames and the synthetic
// performer all look alike behind Source.
package source

import (
	"context"
	"time"

	"holocast/internal/camera"
)

// ColorFormat says how a colour image's bytes are laid out; the names are the
// FOURCCs a k4a recording uses.
type ColorFormat string

// Colour formats an Azure Kinect delivers.
const (
	MJPG ColorFormat = "MJPG"
	NV12 ColorFormat = "NV12"
	YUY2 ColorFormat = "YUY2"
	BGRA ColorFormat = "BGRA"
)

// Frame is one synchronised capture of one camera. Its slices belong to the
// source and are valid until the next call of Next.
type Frame struct {
	Depth  []uint16 // Calibration().Depth.Width×Height, millimetres, 0 = no reading
	Color  []byte   // encoded or raw as Format says; nil where the camera dropped it
	Format ColorFormat

	DeviceTime  time.Duration // the device's own clock; its origin is arbitrary
	CaptureTime time.Time     // this machine's clock at the middle of the exposure
}

// Source is one camera. Next blocks until the next frame is due (a file source
// paces itself by its recorded time stamps) and fills f; it returns io.EOF at the
// end of a source that does not loop, and ctx's error when ctx ends first.
// Methods are called from one goroutine.
type Source interface {
	Name() string // short, unique among a server's cameras: "kinect-0", "000841194412"
	Calibration() camera.Calibration
	Next(ctx context.Context, f *Frame) error
	Close() error
}
