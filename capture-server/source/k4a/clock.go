package k4a

import "time"

// deviceClock maps times of the device's clock to this machine's monotonic clock. An image cannot
// arrive before it is exposed, so the smallest difference between arrival and device time is the
// clocks' offset plus the camera's minimum delay, which the host cannot measure. Clocks drift apart
// by up to 0.1 ms a second, so the minimum covers only the last one to two windows.
type deviceClock struct {
	window            time.Duration
	current, previous time.Duration // smallest offset in this window and the previous one
	begun             time.Duration // arrival at the start of this window
	started           bool
}

// at returns the monotonic time of a device time. The image of that time arrived at arrival.
func (c *deviceClock) at(device, arrival time.Duration) time.Duration {
	offset := arrival - device
	switch {
	case !c.started || (offset-min(c.current, c.previous)).Abs() > time.Second:
		// The first image, or a reset of the device's clock.
		*c = deviceClock{window: c.window, current: offset, previous: offset, begun: arrival, started: true}
	case arrival-c.begun > c.window:
		c.previous, c.current, c.begun = c.current, offset, arrival
	default:
		c.current = min(c.current, offset)
	}
	return device + min(c.current, c.previous)
}
