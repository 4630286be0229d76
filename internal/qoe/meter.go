// Package qoe measures a viewer's quality of experience: frame rate, frame delay, jitter, lost and
// late frames, points and bit rate. It also defines the receipts that report them to the publisher.
//
// Terms follow Qian et al., "Enabling eBPF-based packet duplication for robust volumetric video
// streaming": frame delay is the time from capture until a frame is decoded and passed to the
// renderer, on the session's clock; FPS counts distinct frames shown.
package qoe

import (
	"math"
	"slices"
	"sync"
	"time"
)

const (
	rateWindow  = time.Second     // for live frame and bit rates
	delayWindow = 5 * time.Second // for live percentiles
	maxRecent   = 1 << 14         // maximum frames kept for Live
	history     = 1024            // range of sequence numbers in which late frames are recognized
	maxRate     = 1000            // frames per second, above any camera's rate
	byteBucket  = 50 * time.Millisecond
)

// Frame is a displayed frame; all its received descriptions count as one.
type Frame struct {
	Camera   uint16
	Sequence uint32        // from the frame header, incremented per capture
	Shown    time.Time     // local clock
	Delay    time.Duration // shown − captured, on the session's clock
	Points   int
}

// Meter measures one session. The zero value is ready to use, by any number of goroutines. Its
// memory is bounded by about 2 MB and 250 bytes per camera.
type Meter struct {
	mu         sync.Mutex
	cameras    map[uint16]*cameraState
	delays     distribution
	frames     uint64
	points     uint64
	recent     []Frame // within delayWindow, oldest first
	bytes      uint64
	firstBytes time.Time
	received   []byteCount // within rateWindow, oldest first
}

type byteCount struct {
	from  time.Time
	bytes int
}

// cameraState tracks one camera's sequence numbers. A restarted publisher begins a new epoch; only
// numbers of one epoch are compared.
type cameraState struct {
	firstShown      time.Time
	frames          uint64
	lost, late, dup uint64
	restarts        uint64

	first, highest uint32    // in this epoch
	captured       time.Time // capture time of highest
	seen           [history / 64]uint64

	previousDelay time.Duration
	jitter        float64 // seconds
	jumped        bool    // the next frame has no predecessor
}

// Received counts received media bytes.
func (m *Meter) Received(n int, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bytes == 0 {
		m.firstBytes = at
	}
	m.bytes += uint64(n)
	if k := len(m.received); k > 0 && at.Sub(m.received[k-1].from) < byteBucket {
		m.received[k-1].bytes += n
		return
	}
	drop := 0
	for drop < len(m.received) && at.Sub(m.received[drop].from) > rateWindow+byteBucket {
		drop++
	}
	m.received = append(slices.Delete(m.received, 0, drop), byteCount{at, n})
}

// Jump declares a seek in a recording: the frames skipped by each camera are neither lost nor late.
func (m *Meter) Jump() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.cameras {
		c.jumped = true
	}
}

// Shown counts a displayed frame, unless it was shown before.
func (m *Meter) Shown(f Frame) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, known := m.cameras[f.Camera]
	if !known {
		if m.cameras == nil {
			m.cameras = make(map[uint16]*cameraState)
		}
		c = &cameraState{firstShown: f.Shown, previousDelay: f.Delay}
		c.begin(f)
		m.cameras[f.Camera] = c
	} else if !c.follow(f) {
		return
	}
	c.frames++
	// RFC 3550 §6.4.1, A.8: the difference of transit times equals that of frame delays.
	c.jitter += ((f.Delay - c.previousDelay).Abs().Seconds() - c.jitter) / 16
	c.previousDelay = f.Delay

	m.frames++
	m.points += uint64(max(f.Points, 0))
	m.delays.add(f.Delay)
	drop := 0
	for drop < len(m.recent) && (f.Shown.Sub(m.recent[drop].Shown) > delayWindow || len(m.recent)-drop >= maxRecent) {
		drop++
	}
	m.recent = append(slices.Delete(m.recent, 0, drop), f)
}

func (c *cameraState) begin(f Frame) {
	c.first, c.highest, c.captured = f.Sequence, f.Sequence, f.Shown.Add(-f.Delay)
	c.seen = [history / 64]uint64{}
	c.mark(f.Sequence)
}

func (c *cameraState) mark(s uint32)        { c.seen[s%history/64] |= 1 << (s % 64) }
func (c *cameraState) unmark(s uint32)      { c.seen[s%history/64] &^= 1 << (s % 64) }
func (c *cameraState) marked(s uint32) bool { return c.seen[s%history/64]>>(s%64)&1 == 1 }

// follow places f in its camera's sequence and reports whether it is new.
func (c *cameraState) follow(f Frame) bool {
	if c.jumped {
		c.jumped = false
		c.begin(f)
		return true
	}
	captured := f.Shown.Add(-f.Delay)
	later := captured.Sub(c.captured)
	switch d := int64(int32(f.Sequence - c.highest)); {
	case d == 0 || d < 0 && d > -history && c.marked(f.Sequence):
		// The same number means the same frame, unless it was captured much later.
		if later > history*time.Second/maxRate {
			c.restart(f)
			return true
		}
		c.dup++
		return false
	case d < 0 && (d <= -history || later > 0):
		// Lower number, later capture: the publisher restarted.
		c.restart(f)
	case d < 0:
		c.mark(f.Sequence)
		c.late++
		if int32(f.Sequence-c.first) > 0 {
			c.lost-- // was counted as lost when a later frame overtook it
		}
	case d > 1+history && float64(d) > maxRate*later.Seconds():
		// A jump beyond any camera's frame rate means a restart.
		c.restart(f)
	default:
		c.lost += uint64(d - 1)
		for i := max(1, d-history); i < d; i++ {
			c.unmark(c.highest + uint32(i))
		}
		c.mark(f.Sequence)
		c.highest, c.captured = f.Sequence, captured
	}
	return true
}

func (c *cameraState) restart(f Frame) {
	c.restarts++
	c.begin(f)
}

// Percentiles holds frame delays in milliseconds, by nearest rank.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// CameraSnapshot is one camera's part of a Snapshot.
type CameraSnapshot struct {
	Camera     uint16  `json:"camera"`
	FPS        float64 `json:"fps"`
	Frames     uint64  `json:"frames"`
	FramesLost uint64  `json:"frames_lost"`
	JitterMS   float64 `json:"jitter_ms"`
}

// Snapshot summarizes a Meter; its JSON form is the last line of the programs' --json output.
type Snapshot struct {
	// FPS is the mean of the cameras' rates: distinct frames after the first, per second since the
	// first. Startup does not count; a final stall does.
	FPS            float64     `json:"fps"`
	FrameDelayMS   Percentiles `json:"frame_delay_ms"`
	Frames         uint64      `json:"frames"`      // distinct displayed frames, all cameras
	FramesLost     uint64      `json:"frames_lost"` // gaps in the sequence numbers
	PointsPerFrame float64     `json:"points_per_frame"`
	MbitPerS       float64     `json:"mbit_per_s"`
	Cameras        int         `json:"cameras"` // with a displayed frame

	FramesLate        uint64           `json:"frames_late"`      // displayed after a later frame of the camera
	FramesDuplicate   uint64           `json:"frames_duplicate"` // not counted in Frames
	PublisherRestarts uint64           `json:"publisher_restarts"`
	JitterMS          float64          `json:"jitter_ms"` // RFC 3550 §6.4.1, mean of the cameras
	PerCamera         []CameraSnapshot `json:"per_camera"`
}

// Snapshot summarizes the run so far. Percentiles are exact to 10 µs below two seconds and to 1 ms
// above.
func (m *Meter) Snapshot(now time.Time) Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.counts(func(c *cameraState, _ uint16) float64 {
		return perSecond(float64(c.frames-1), now.Sub(c.firstShown))
	})
	s.FrameDelayMS = Percentiles{m.delays.percentile(50), m.delays.percentile(95), m.delays.percentile(99)}
	if m.frames > 0 {
		s.PointsPerFrame = Round(float64(m.points)/float64(m.frames), 1)
	}
	if m.bytes > 0 {
		s.MbitPerS = Round(perSecond(float64(m.bytes)*8/1e6, now.Sub(m.firstBytes)), 2)
	}
	return s
}

// Live summarizes the present: frame and bit rate over the last second, percentiles and points over
// the last five seconds. Counts cover the whole run.
func (m *Meter) Live(now time.Time) Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	shown := make(map[uint16]int)
	var delays []time.Duration
	var points int
	for _, f := range m.recent {
		switch age := now.Sub(f.Shown); {
		case age > delayWindow:
			continue
		case age <= rateWindow:
			shown[f.Camera]++
		}
		delays = append(delays, f.Delay)
		points += max(f.Points, 0)
	}
	s := m.counts(func(_ *cameraState, camera uint16) float64 { return float64(shown[camera]) / rateWindow.Seconds() })
	if len(delays) > 0 {
		slices.Sort(delays)
		s.FrameDelayMS = Percentiles{nearestRank(delays, 50), nearestRank(delays, 95), nearestRank(delays, 99)}
		s.PointsPerFrame = Round(float64(points)/float64(len(delays)), 1)
	}
	var bytes int
	for _, r := range m.received {
		if now.Sub(r.from) <= rateWindow {
			bytes += r.bytes
		}
	}
	s.MbitPerS = Round(float64(bytes)*8/1e6/rateWindow.Seconds(), 2)
	return s
}

// counts fills in the common fields of Snapshot and Live, given each camera's rate.
func (m *Meter) counts(rate func(c *cameraState, camera uint16) float64) Snapshot {
	s := Snapshot{Frames: m.frames, Cameras: len(m.cameras), PerCamera: []CameraSnapshot{}}
	var fps, jitter float64
	for camera, c := range m.cameras {
		r := rate(c, camera)
		fps += r
		jitter += c.jitter
		s.FramesLost += c.lost
		s.FramesLate += c.late
		s.FramesDuplicate += c.dup
		s.PublisherRestarts += c.restarts
		s.PerCamera = append(s.PerCamera, CameraSnapshot{
			Camera: camera, FPS: Round(r, 2), Frames: c.frames, FramesLost: c.lost, JitterMS: Round(c.jitter*1e3, 3),
		})
	}
	slices.SortFunc(s.PerCamera, func(a, b CameraSnapshot) int { return int(a.Camera) - int(b.Camera) })
	if n := float64(len(m.cameras)); n > 0 {
		s.FPS, s.JitterMS = Round(fps/n, 2), Round(jitter/n*1e3, 3)
	}
	return s
}

func perSecond(n float64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return n / d.Seconds()
}

// Round rounds v to a number of decimal places, for reports.
func Round(v float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(v*p) / p
}
