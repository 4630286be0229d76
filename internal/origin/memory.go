package origin

import (
	"sync"
	"sync/atomic"
	"time"
)

// Memory bounds what several tracks keep in all. When they exceed it, the largest
// gives up its oldest groups. A nil Memory has no bound.
type Memory struct {
	limit int64
	used  atomic.Int64

	mu     sync.Mutex
	tracks map[*Track]struct{}
}

// NewMemory returns a bound of limit bytes.
func NewMemory(limit int64) *Memory {
	return &Memory{limit: limit, tracks: map[*Track]struct{}{}}
}

// Used is the number of bytes that the tracks keep.
func (m *Memory) Used() int64 { return m.used.Load() }

func (m *Memory) use(n int64) {
	if m != nil {
		m.used.Add(n)
	}
}

func (m *Memory) add(t *Track) {
	if m != nil {
		m.mu.Lock()
		m.tracks[t] = struct{}{}
		m.mu.Unlock()
	}
}

func (m *Memory) remove(t *Track) {
	if m != nil {
		m.mu.Lock()
		delete(m.tracks, t)
		m.mu.Unlock()
	}
}

// relieve makes room when the bound is exceeded. No lock of a track is held.
func (m *Memory) relieve() {
	if m == nil || m.used.Load() <= m.limit || !m.mu.TryLock() { // else somebody is at it
		return
	}
	defer m.mu.Unlock()
	spent := map[*Track]bool{} // have nothing left to evict
	for m.used.Load() > m.limit {
		var largest *Track
		var most int64
		for t := range m.tracks {
			if n := t.bytes.Load(); n > most && !spent[t] {
				largest, most = t, n
			}
		}
		if largest == nil {
			return // each has only its newest
		}
		if !largest.give(m.used.Load() - m.limit + m.limit/16) {
			spent[largest] = true
		}
	}
}

// give frees about n bytes, at most half of what the track keeps, and reports
// whether there was anything to free.
func (t *Track) give(n int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.bytes.Load()
	t.reduce(before-min(n, before/2), time.Now())
	return t.bytes.Load() < before
}
