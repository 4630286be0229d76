package origin

import (
	"sync"
	"sync/atomic"
	"time"
)

// Memory bounds what several tracks keep in all. It may have parts, with bounds of their
// own, such as what comes from one publisher. Where tracks exceed a bound, the largest part
// below it gives up its largest track's oldest groups, and at last the newest, too: who keeps
// much makes room for those who keep little. A nil Memory has no bound.
type Memory struct {
	limit  atomic.Int64 // 0 = none
	used   atomic.Int64
	parent *Memory
	tree   *sync.Mutex // guards what follows, of all parts of a whole

	tracks map[*Track]struct{} // of no part
	parts  map[*Memory]struct{}
	closed bool
}

// NewMemory returns a bound of limit bytes.
func NewMemory(limit int64) *Memory {
	m := newMemory(limit)
	m.tree = &sync.Mutex{}
	return m
}

func newMemory(limit int64) *Memory {
	m := &Memory{tracks: map[*Track]struct{}{}, parts: map[*Memory]struct{}{}}
	m.limit.Store(limit)
	return m
}

// Part returns a part of m with a bound of limit bytes; 0 is none but m's.
func (m *Memory) Part(limit int64) *Memory {
	if m == nil {
		return nil
	}
	part := newMemory(limit)
	part.parent, part.tree = m, m.tree
	m.tree.Lock()
	defer m.tree.Unlock()
	m.parts[part] = struct{}{}
	return part
}

// Close lets go of a part as soon as none of its tracks is left.
func (m *Memory) Close() {
	if m == nil {
		return
	}
	m.tree.Lock()
	defer m.tree.Unlock()
	m.closed = true
	m.prune()
}

// prune removes closed parts that are empty, from m upwards. m.tree is held.
func (m *Memory) prune() {
	for ; m.closed && m.parent != nil && len(m.tracks)+len(m.parts) == 0; m = m.parent {
		delete(m.parent.parts, m)
	}
}

// SetLimit changes the bound; it applies from the next object on.
func (m *Memory) SetLimit(limit int64) { m.limit.Store(limit) }

// Used is the number of bytes that the tracks keep.
func (m *Memory) Used() int64 { return m.used.Load() }

func (m *Memory) use(n int64) {
	for ; m != nil; m = m.parent {
		m.used.Add(n)
	}
}

// add counts a new track towards m.
func (m *Memory) add(t *Track) {
	if m != nil {
		m.tree.Lock()
		m.tracks[t] = struct{}{}
		m.tree.Unlock()
		m.use(int64(cap(t.props)))
	}
}

func (m *Memory) exceeded() bool {
	limit := m.limit.Load()
	return limit > 0 && m.used.Load() > limit
}

// relieve makes room where a bound is exceeded. No lock of a track is held.
func (m *Memory) reclaim() {
	for ; m != nil; m = m.parent {
		if m.exceeded() && m.tree.TryLock() { // else somebody is at it
			m.makeRoom()
			m.tree.Unlock()
		}
	}
}

// makeRoom evicts until the bound is kept, as far as that is possible. m.tree is held.
func (m *Memory) makeRoom() {
	v := victims{}
	for m.exceeded() {
		t, all := v.next(m)
		if t == nil {
			return // each has only its newest
		}
		limit := m.limit.Load()
		if !t.free(m.used.Load()-limit+limit/16, all) {
			v[t] = true
		}
	}
}

// victims choose who gives up something; they hold the tracks that have only their newest
// group left, and the parts that have nothing.
type victims map[any]bool

// next is the largest track of the largest part, and so on; nil when there is none. It gives
// up all where its part has only newest groups left, so that smaller parts keep what they
// have. m.tree is held.
func (v victims) next(m *Memory) (t *Track, all bool) {
	for {
		var largest *Memory
		var most int64
		others := false // keep something
		for p := range m.parts {
			if n := p.used.Load(); n > 0 && !v[p] {
				others = others || largest != nil
				if n > most {
					largest, most = p, n
				}
			}
		}
		t = nil
		for track := range m.tracks {
			n := track.bytes.Load()
			others = others || n > 0
			if n > most && !v[track] {
				t, largest, most = track, nil, n
			}
		}
		if largest == nil {
			return t, false
		}
		if t, all = v.next(largest); t == nil && others {
			t, all = largest.largest(), true
		}
		if t != nil {
			return t, all
		}
		v[largest] = true
	}
}

// largest is the largest track of m and its parts that keeps anything. m.tree is held.
func (m *Memory) largest() (t *Track) {
	var most int64
	consider := func(track *Track) {
		if n := track.bytes.Load(); n > most {
			t, most = track, n
		}
	}
	for track := range m.tracks {
		consider(track)
	}
	for p := range m.parts {
		if track := p.largest(); track != nil {
			consider(track)
		}
	}
	return t
}

// give frees about n bytes, at most half of what the track keeps unless all of it may go. It
// reports whether there was anything to free.
func (t *Track) free(n int64, all bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.bytes.Load()
	if all {
		for len(t.groups) > 0 {
			t.evictOldest()
		}
	} else {
		t.reduce(before-min(n, before/2), time.Now())
	}
	return t.bytes.Load() < before
}

// SetMemory has what the track keeps count towards m, which is of the same whole as
// Limits.Memory: another part, say.
func (t *Track) SetMemory(m *Memory) {
	if m == nil || t.memory.Load() == m {
		return
	}
	m.tree.Lock()
	defer m.tree.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.discarded {
		return
	}
	old := t.memory.Swap(m)
	old.remove(t)
	m.tracks[t] = struct{}{}
	kept := t.bytes.Load() + int64(cap(t.props))
	old.use(-kept)
	m.use(kept)
}

// remove lets go of a track. m.tree is held.
func (m *Memory) remove(t *Track) {
	delete(m.tracks, t)
	m.prune()
}

// Discard frees the cache and disables it.
func (t *Track) Discard() {
	if m := t.memory.Load(); m != nil {
		m.tree.Lock()
		defer m.tree.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.discarded {
		return
	}
	t.discarded = true
	for len(t.groups) > 0 {
		t.evictOldest()
	}
	if m := t.memory.Load(); m != nil {
		m.use(-int64(cap(t.props)))
		m.remove(t)
	}
}
