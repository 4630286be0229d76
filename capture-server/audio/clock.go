package audio

import (
	"math"
	"time"
)

// sampleClock maps a device's sample count to local time. Samples cannot arrive before they are
// captured, so the smallest difference between their arrival and their count is the clocks' offset plus
// the device's minimum delay, which the host cannot measure. A line through these minima gives the
// drift of the clocks.
type sampleClock struct {
	buckets []minimum // one per bucketTime, oldest first
	current minimum
	begun   float64 // device time at which current begins
	started bool
	strays  int // buckets in succession that contradict the line

	offset, drift float64 // arrival = device time·(1 + drift) + offset, at the earliest
}

// minimum is the smallest offset within a bucket, in seconds. at is the device time.
type minimum struct{ at, offset float64 }

const (
	bucketTime = 0.5 // s
	maxBuckets = 60
	// minBuckets is the number of buckets needed to estimate the drift; with fewer, it is assumed
	// to be 0.
	minBuckets = 10
	// maxDrift bounds the drift. A poor quartz drifts by 100 ppm.
	maxDrift = 1e-3
	// maxStray bounds the deviation of a bucket from the line, in seconds. Two larger deviations in
	// a row mean lost samples; a single one may come from a busy machine that delayed a whole
	// bucket.
	maxStray = 0.02
)

// observe adds samples that ended at device time device and arrived at local time arrived, both
// since the device started. It reports whether samples were lost on the way.
func (c *sampleClock) observe(device, arrived time.Duration) (lost bool) {
	m := minimum{device.Seconds(), (arrived - device).Seconds()}
	if !c.started {
		*c = sampleClock{current: m, begun: m.at, started: true, offset: m.offset}
		return false
	}
	if m.at-c.begun < bucketTime {
		if m.offset < c.current.offset {
			c.current = m
		}
		if len(c.buckets) < minBuckets {
			c.offset = min(c.offset, m.offset)
		}
		return false
	}
	if math.Abs(c.current.offset-c.at(c.current.at)) > maxStray {
		if c.strays++; c.strays > 1 {
			c.started = false
			c.observe(device, arrived)
			return true
		}
	} else {
		c.strays = 0
		c.buckets = append(c.buckets[max(0, len(c.buckets)-maxBuckets+1):], c.current)
		c.fit()
	}
	c.current, c.begun = m, m.at
	return false
}

// fit fits a line to the buckets' minima, then shifts it down until none lies below it.
func (c *sampleClock) fit() {
	if len(c.buckets) < minBuckets {
		return
	}
	var t, o float64
	for _, b := range c.buckets {
		t += b.at
		o += b.offset
	}
	t, o = t/float64(len(c.buckets)), o/float64(len(c.buckets))
	var tt, to float64
	for _, b := range c.buckets {
		tt += (b.at - t) * (b.at - t)
		to += (b.at - t) * (b.offset - o)
	}
	c.drift = min(max(to/tt, -maxDrift), maxDrift)
	c.offset = math.Inf(1)
	for _, b := range c.buckets {
		c.offset = min(c.offset, b.offset-c.drift*b.at)
	}
}

// at returns the offset at a device time.
func (c *sampleClock) at(device float64) float64 { return c.offset + c.drift*device }

// local converts a device time to local time.
func (c *sampleClock) local(device time.Duration) time.Duration {
	return device + time.Duration(c.at(device.Seconds())*float64(time.Second))
}
