package bridge

import (
	"context"
	"sync"
	"time"

	"holocast/internal/livescan"
	"holocast/internal/pointcloud"
)

// Frames assembles a session's frames and keeps the newest.
type Frames struct {
	clouds func() []pointcloud.Points // newest cloud of every camera
	budget int                        // maximum points per frame

	mu       sync.Mutex
	number   uint64               // number of the newest frame
	captured time.Time            // latest capture time of its clouds
	changed  chan struct{}        // closed when a newer frame exists
	has      map[uint16]bool      // cameras with a cloud for the next frame
	seen     map[uint16]time.Time // time of a camera's last cloud
	latest   map[uint16]time.Time // capture time of a camera's last cloud

	encoding sync.Mutex // held during encoding
	current  *encoded
	count    uint64
	merged   pointcloud.Points
}

// encoded is an immutable frame as sent to viewers.
type encoded struct {
	number   uint64
	captured time.Time
	points   int
	answer   []byte
}

// NewFrames returns Frames for the newest clouds of a session's cameras, with at most budget points
// per frame. clouds must return fresh copies.
func NewFrames(clouds func() []pointcloud.Points, budget int) *Frames {
	return &Frames{
		clouds: clouds, budget: min(budget, livescan.MaxPoints), changed: make(chan struct{}),
		has: map[uint16]bool{}, seen: map[uint16]time.Time{}, latest: map[uint16]time.Time{},
	}
}

const (
	// away is the time without clouds after which a camera is ignored.
	away = time.Second
	// together bounds the spread of capture times within a frame. It is more than half a frame
	// interval and less than a full one.
	together = 25 * time.Millisecond
)

// Shown records a camera's newer cloud. A frame is complete when every camera has a newer cloud
// than in the previous frame. It ends early when a camera's next cloud arrives, or a cloud captured
// more than together after another one in the frame.
func (f *Frames) Shown(camera uint16, captured, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.has[camera]
	for c := range f.has {
		next = next || captured.Sub(f.latest[c]) > together
	}
	if next {
		f.finish()
	}
	f.has[camera], f.seen[camera], f.latest[camera] = true, at, captured
	for c, seen := range f.seen {
		if at.Sub(seen) > away {
			delete(f.seen, c)
		} else if !f.has[c] {
			return
		}
	}
	f.finish()
}

// finish makes the collected clouds the newest frame. The caller holds f.mu.
func (f *Frames) finish() {
	f.number++
	for c := range f.has {
		if t := f.latest[c]; t.After(f.captured) {
			f.captured = t
		}
	}
	clear(f.has)
	close(f.changed)
	f.changed = make(chan struct{})
}

// state returns the newest frame's number and capture time, and a channel that is closed when a
// newer frame exists.
func (f *Frames) state() (uint64, time.Time, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.number, f.captured, f.changed
}

// newest returns the newest frame. If the viewer already has it, newest waits up to maxWait for the
// next one.
func (f *Frames) newest(ctx context.Context, has uint64, maxWait time.Duration) (*encoded, error) {
	number, _, changed := f.state()
	if number == has {
		timer := time.NewTimer(maxWait)
		defer timer.Stop()
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f.encoding.Lock()
	defer f.encoding.Unlock()
	number, captured, _ := f.state()
	if f.current == nil || f.current.number != number {
		f.current = f.encode(number, captured)
	}
	return f.current, nil
}

// encode merges the newest clouds. The caller holds f.encoding.
func (f *Frames) encode(number uint64, captured time.Time) *encoded {
	f.merged.XYZ, f.merged.RGB = f.merged.XYZ[:0], f.merged.RGB[:0]
	if number > 0 {
		f.count++
		clouds := f.clouds()
		total := 0
		for _, c := range clouds {
			total += len(c.XYZ) / 3
		}
		for _, c := range clouds {
			thin(&f.merged, &c, total, f.budget)
		}
	}
	return &encoded{
		number: number, captured: captured, points: len(f.merged.XYZ) / 3, answer: livescan.AppendAnswer(nil, &f.merged),
	}
}

// thin appends c to p. If total exceeds budget, it keeps only a fraction budget/total of the
// points, evenly spaced.
func thin(p, c *pointcloud.Points, total, budget int) {
	if total <= budget {
		p.XYZ, p.RGB = append(p.XYZ, c.XYZ...), append(p.RGB, c.RGB...)
		return
	}
	rest := 0
	for i := range len(c.XYZ) / 3 {
		if rest += budget; rest >= total {
			rest -= total
			p.XYZ, p.RGB = append(p.XYZ, c.XYZ[3*i:3*i+3]...), append(p.RGB, c.RGB[3*i:3*i+3]...)
		}
	}
}

func (f *Frames) encodedCount() uint64 {
	f.encoding.Lock()
	defer f.encoding.Unlock()
	return f.count
}
