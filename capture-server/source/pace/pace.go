// Package pace times the frames of sources without a sensor. Frame k of every camera of a studio is
// due at the same absolute time, so cameras stay synchronized and do not drift.
package pace

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Clock is the common trigger of a studio's cameras. It starts at the first call of Start or Wait.
type Clock struct {
	fps   float64
	once  sync.Once
	start time.Time
}

// NewClock returns a clock with a rate of fps frames per second, from 0.1 to 1000.
func NewClock(fps float64) (*Clock, error) {
	if !(fps >= 0.1 && fps <= 1000) {
		return nil, fmt.Errorf("frame rate is %g, want 0.1 to 1000 frames per second", fps)
	}
	return &Clock{fps: fps}, nil
}

// Start returns the local time of frame 0.
func (c *Clock) Start() time.Time {
	c.once.Do(func() { c.start = time.Now() })
	return c.start
}

// FPS returns the clock's rate in frames per second.
func (c *Clock) FPS() float64 { return c.fps }

// Offset returns the time from frame 0 to frame k.
func (c *Clock) Offset(k int64) time.Duration {
	return time.Duration(math.Round(float64(k) * float64(time.Second) / c.fps))
}

// Camera is one camera's position in a clock's sequence of frames. A Camera with only Clock set is
// at frame 0. All calls of Wait must come from one goroutine.
type Camera struct {
	Clock *Clock
	// Recorded, if set, overrides the clock's rate with recorded times.
	Recorded *Recording
	next     int64
	dropped  atomic.Int64
}

// Dropped counts frames overdue when Wait was called. It may be called from any goroutine.
func (c *Camera) Dropped() int64 { return c.dropped.Load() }

// Recording holds the capture times of a camera's recorded frames, which play in a loop.
type Recording struct {
	Frames []time.Duration // since the clock's start, ascending
	Period time.Duration   // length of the loop; greater than the last of Frames
}

// Offset returns the time from the clock's start to frame k.
func (c *Camera) Offset(k int64) time.Duration {
	if c.Recorded == nil {
		return c.Clock.Offset(k)
	}
	n := int64(len(c.Recorded.Frames))
	return time.Duration(k/n)*c.Recorded.Period + c.Recorded.Frames[k%n]
}

// newest returns the newest frame that is due when elapsed has passed since the clock's start.
func (c *Camera) newest(elapsed time.Duration) int64 {
	if c.Recorded == nil {
		k := int64(elapsed.Seconds() * c.Clock.fps)
		for c.Clock.Offset(k) > elapsed {
			k--
		}
		for c.Clock.Offset(k+1) <= elapsed {
			k++
		}
		return k
	}
	loops := elapsed / c.Recorded.Period
	i, _ := slices.BinarySearch(c.Recorded.Frames, elapsed%c.Recorded.Period+1)
	return int64(loops)*int64(len(c.Recorded.Frames)) + int64(i) - 1
}

// Wait blocks until the camera's next frame is due. It returns the frame's number and due time. If
// the caller is more than a frame late, it returns the newest due frame and drops the frames before
// it.
func (c *Camera) Wait(ctx context.Context) (frame int64, due time.Time, err error) {
	c.Clock.Start()
	if err := ctx.Err(); err != nil {
		return 0, time.Time{}, err
	}
	if elapsed := time.Since(c.Clock.start); elapsed > c.Offset(c.next+1) {
		newest := c.newest(elapsed)
		c.dropped.Add(newest - c.next)
		c.next = newest
	}
	frame = c.next
	due = c.Clock.start.Add(c.Offset(frame))
	if err := until(ctx, due, nil); err != nil {
		return 0, time.Time{}, err
	}
	c.next++
	return frame, due, nil
}

// timerSlack is the maximum delay with which a timer fires.
const timerSlack = 1200 * time.Microsecond

// until blocks until due, or until sooner is closed. It returns ctx.Err() as soon as ctx is done.
func until(ctx context.Context, due time.Time, sooner <-chan struct{}) error {
	// A Go timer fires up to a millisecond late, which would distort every delay measurement, so
	// the thread itself sleeps for the last part.
	for _, slack := range []time.Duration{timerSlack, 0} {
		timer := time.NewTimer(time.Until(due) - slack)
		defer timer.Stop()
		select {
		case <-timer.C:
			sleep(min(time.Until(due), slack))
		case <-sooner:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
