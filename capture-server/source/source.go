// Package source defines the interfaces between sensors and the rest of the capture server. Live
// cameras, recordings, directories of frames and the synthetic performer all implement Source.
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
	Depth  []uint16 // width×height of Calibration().Depth, in millimetres; 0 = no reading
	Color  []byte   // encoded or raw, see Format; nil if the camera dropped it
	Format camera.ColorFormat
	// IR is the active brightness of Depth's pixels; nil if unknown. It substitutes for missing
	// colour.
	IR []uint16

	DeviceTime  time.Duration // device clock, with an arbitrary origin
	CaptureTime time.Time     // local clock, middle of the exposure

	// Free, if set, returns the memory to the source. It may be called once, on any goroutine,
	// before the source is closed.
	Free func()
}

// Release frees the slices. Release every frame before closing its source.
func (f *Frame) Release() {
	if free := f.Free; free != nil {
		f.Free = nil
		free()
	}
	f.Depth, f.Color, f.IR = nil, nil, nil
}

// Source is one camera. Next blocks until a frame is due (recordings pace themselves by their
// timestamps) and fills f. It returns io.EOF at the end of a source that does not loop, ctx.Err()
// if ctx is done first, and a *DamageError if the next call may succeed; any other error is final.
// Call Next and Close from one goroutine, and the other methods from any.
type Source interface {
	Name() string // short and unique in a session, such as "kinect-0" or "000841194412"
	Calibration() camera.Calibration
	FPS() float64 // nominal frames per second, 0 if unknown
	// Dropped counts captures that were not delivered, because they had no depth or were overdue
	// when Next was called.
	Dropped() int64
	Next(ctx context.Context, f *Frame) error
	Close() error
}

// DamageError reports captures lost to damaged input. The next call of Next continues after the
// damage.
type DamageError struct{ Err error }

func (e *DamageError) Error() string { return e.Err.Error() }

func (e *DamageError) Unwrap() error { return e.Err }

// Cloud is one point cloud in studio space. The next call of Next overwrites its slices.
type Cloud struct {
	pointcloud.Points

	DeviceTime  time.Duration // as in Frame
	CaptureTime time.Time
}

// Clouds is a source of point clouds, recorded by another system or streamed live. Methods without
// a comment behave as in [Source].
type Clouds interface {
	Name() string
	FPS() float64
	MaxPoints() int // maximum points of all clouds up to the next one; Next may raise it
	Next(ctx context.Context, c *Cloud) error
	Close() error
}
