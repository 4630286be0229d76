// Package source is the seam between sensors and the rest of the capture
// server: a live camera, a recording, a directory of frames and the synthetic
// performer all look alike behind Source.
package source

import (
	"context"
	"time"

	"holocast/internal/camera"
	"holocast/internal/pointcloud"
)

// Frame is one synchronized capture of one camera. Its slices are read-only and may alias
// the source's memory; they are valid until Release.
type Frame struct {
	Depth  []uint16 // Calibration().Depth.Width×Height, millimetres, 0 = no reading
	Color  []byte   // encoded or raw as Format says; nil where the camera dropped it
	Format camera.ColorFormat

	DeviceTime  time.Duration // the device's own clock; its origin is arbitrary
	CaptureTime time.Time     // this machine's clock at the middle of the exposure

	// Free, if set, returns the slices' memory to the source. It may be called on any
	// goroutine, once, before the source is closed.
	Free func()
}

// Release frees the slices. Every frame must be released before its source is closed.
func (f *Frame) Release() {
	if free := f.Free; free != nil {
		f.Free = nil
		free()
	}
	f.Depth, f.Color = nil, nil
}

// Source is one camera. Next blocks until the next frame is due (a file source
// paces itself by its recorded time stamps) and fills f; it returns io.EOF at the
// end of a source that does not loop, ctx's error when ctx ends first, and a
// *DamageError where the next call may succeed. Any other error is final.
// Next and Close are called from one goroutine, the others from any.
type Source interface {
	Name() string // short, unique among a server's cameras: "kinect-0", "000841194412"
	Calibration() camera.Calibration
	FPS() float64 // nominal frames per second; 0 where not known
	// Dropped counts the captures that were not delivered: those without depth, and
	// those that passed before Next was called.
	Dropped() int64
	Next(ctx context.Context, f *Frame) error
	Close() error
}

// DamageError says that a source lost captures to damage in what it reads. The next
// call of Next continues after the damaged part.
type DamageError struct{ Err error }

func (e *DamageError) Error() string { return e.Err.Error() }

func (e *DamageError) Unwrap() error { return e.Err }

// Cloud is the points of one moment in the space of the studio. Its slices belong to
// the caller of Next, which overwrites them.
type Cloud struct {
	pointcloud.Points

	DeviceTime  time.Duration // as that of a Frame
	CaptureTime time.Time
}

// Clouds is a source that delivers points instead of images: the recording of another
// system, or its live stream. Its methods are as those of [Source].
type Clouds interface {
	Name() string
	FPS() float64
	MaxPoints() int // of any cloud so far and the next; it may grow with a call of Next
	Next(ctx context.Context, c *Cloud) error
	Close() error
}
