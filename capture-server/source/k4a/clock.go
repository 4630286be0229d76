package k4a

import (
	"log/slog"
	"time"
)

// deviceClock maps times of the device's clock to this machine's monotonic clock. An image cannot
// arrive before it is exposed, so the smallest difference between arrival and device time is the
// clocks' offset plus the camera's minimum delay, which the host cannot measure. Clocks drift apart
// by up to 0.1 ms per second, so the minimum covers only the last one to two windows. A clock that
// keeps jumping, stands still or runs slow is ignored; its images count as exposed on arrival.
type deviceClock struct {
	log               *slog.Logger
	window            time.Duration
	current, previous time.Duration // smallest offset in this window and the previous one
	begun             time.Duration // arrival at the start of this window
	last              time.Duration // newest device time
	started           bool
	jumps             int           // in succession, without a calm period between two of them
	jumped            time.Duration // arrival time at the last jump
	unusable          bool
}

const (
	// maxOffset bounds the change of the offset; a larger change means that the device's clock
	// jumped.
	maxOffset = time.Second
	// maxDrift is the maximum growth of the smallest offset in a window, far beyond the drift of
	// any quartz.
	maxDrift = 100 * time.Millisecond
	// A clock is unusable after more than maxJumps jumps, each within calm of the previous one.
	maxJumps = 3
	calm     = time.Minute
)

// at converts the device time of an image to monotonic time. arrival is when the image arrived.
func (c *deviceClock) at(device, arrival time.Duration) time.Duration {
	if c.unusable {
		return arrival
	}
	offset, over := arrival-device, arrival-c.begun > c.window
	switch {
	case !c.started:
		c.restart(offset, arrival)
	case device <= c.last, (offset - min(c.current, c.previous)).Abs() > maxOffset,
		over && c.current-c.previous > maxDrift:
		if arrival-c.jumped > calm {
			c.jumps = 0
		}
		if c.jumps++; c.jumps > maxJumps {
			c.unusable = true
			c.log.Warn("the camera's clock is unusable; using frame arrival times", "from", c.last, "to", device)
			return arrival
		}
		c.log.Warn("the camera's clock jumped; mapping it again from frame arrivals", "from", c.last, "to", device)
		c.restart(offset, arrival)
		c.jumped = arrival
	case over:
		c.previous, c.current, c.begun = c.current, offset, arrival
	default:
		c.current = min(c.current, offset)
	}
	c.last = device
	return device + min(c.current, c.previous)
}

func (c *deviceClock) restart(offset, arrival time.Duration) {
	c.current, c.previous, c.begun, c.started = offset, offset, arrival, true
}
