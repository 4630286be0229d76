package k4a

import "time"

// deviceClock estimates when, on this machine's monotonic clock, the device's clock
// showed a time. An image never arrives before it was exposed: the smallest difference
// between arrival and device time is the clocks' offset plus the camera's minimum delay,
// which the host cannot measure. Clocks drift apart by up to 0.1 ms a second, so the minimum is taken over the last
// one to two windows.
type deviceClock struct {
	window            time.Duration
	current, previous time.Duration // least offset in this window and the one before
	begun             time.Duration // arrival that began this window
	started           bool
}

// at returns the monotonic time at which the device's clock showed device, given that
// an image of that time arrived at arrival.
func (c *deviceClock) at(device, arrival time.Duration) time.Duration {
	offset := arrival - device
	switch {
	case !c.started || (offset-min(c.current, c.previous)).Abs() > time.Second:
		// The first image, or the device's clock was reset.
		*c = deviceClock{window: c.window, current: offset, previous: offset, begun: arrival, started: true}
	case arrival-c.begun > c.window:
		c.previous, c.current, c.begun = c.current, offset, arrival
	default:
		c.current = min(c.current, offset)
	}
	return device + min(c.current, c.previous)
}
