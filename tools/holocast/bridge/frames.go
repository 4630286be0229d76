package bridge

import (
	"context"
	"sync"
	"time"

	"holocast/internal/livescan"
	"holocast/internal/pointcloud"
)

// Frames are the frames of a session, of which the newest is kept.
type Frames struct {
	clouds func() []pointcloud.Points // the newest of every camera
	budget int                        // most points of a frame

	mu       sync.Mutex
	number   uint64               // of the newest frame
	captured time.Time            // its cameras' latest
	changed  chan struct{}        // closed when there is a newer one
	has      map[uint16]bool      // cameras that the frame under way has
	seen     map[uint16]time.Time // when a camera last had a frame
	latest   map[uint16]time.Time // its capture

	encoding sync.Mutex // held while a frame is encoded
	current  *encoded
	count    uint64
	merged   pointcloud.Points
}

// encoded is a frame as viewers get it; it does not change.
type encoded struct {
	number   uint64
	captured time.Time
	points   int
	answer   []byte
}

// NewFrames makes frames of the newest clouds of a session's cameras, of which clouds
// returns fresh copies, with at most budget points in all.
func NewFrames(clouds func() []pointcloud.Points, budget int) *Frames {
	return &Frames{
		clouds: clouds, budget: min(budget, livescan.MaxPoints), changed: make(chan struct{}),
		has: map[uint16]bool{}, seen: map[uint16]time.Time{}, latest: map[uint16]time.Time{},
	}
}

const (
	// away is how long after its last frame a camera is not waited for.
	away = time.Second
	// together is how far apart the captures of a frame may be: less than a frame's time, so
	// that a frame does not hold a camera's next capture, and more than half of it.
	together = 25 * time.Millisecond
)

// Shown takes note that a camera has a newer cloud. A frame is whole when all cameras have
// one that is newer than in the frame before, or when one of them has its next.
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

// finish makes what there is the newest frame. f.mu is held.
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

// state is the newest frame's number and capture time, and what is closed when there is a
// newer one.
func (f *Frames) state() (uint64, time.Time, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.number, f.captured, f.changed
}

// newest returns the newest frame. Where that is the one that the viewer has, it waits for
// another, but no longer than patience.
func (f *Frames) newest(ctx context.Context, has uint64, patience time.Duration) (*encoded, error) {
	number, _, changed := f.state()
	if number == has {
		timer := time.NewTimer(patience)
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

// encode merges the newest clouds. f.encoding is held.
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

// thin appends c to p, or as large a part of it, evenly chosen, as budget is of total.
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
