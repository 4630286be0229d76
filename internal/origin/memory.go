package origin

import (
	"sync"
	"sync/atomic"
	"time"
)

// Memory bounds the memory of several tracks together. It may have parts with their own limits,
// such as one per publisher. Above a limit, the largest part evicts the oldest groups of its
// largest track, and finally the newest group too, so that heavy users make room for light users. A
// nil Memory has no limit.
type Memory struct {
	limit  atomic.Int64 // bytes; 0 = none
	used   atomic.Int64
	parent *Memory
	tree   *sync.Mutex // shared by all parts; guards the fields below

	tracks map[*Track]struct{} // tracks directly in this Memory, not in a part
	parts  map[*Memory]struct{}
	closed bool
}

// NewMemory returns a Memory of limit bytes.
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

// Part returns a part of m with its own limit in bytes; 0 means that only m's limit applies.
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

// Close removes a part once its last track is gone.
func (m *Memory) Close() {
	if m == nil {
		return
	}
	m.tree.Lock()
	defer m.tree.Unlock()
	m.closed = true
	m.prune()
}

// prune removes closed, empty parts from m upwards. m.tree is held.
func (m *Memory) prune() {
	for ; m.closed && m.parent != nil && len(m.tracks)+len(m.parts) == 0; m = m.parent {
		delete(m.parent.parts, m)
	}
}

// SetLimit changes the limit from the next object on.
func (m *Memory) SetLimit(limit int64) { m.limit.Store(limit) }

// Used returns the bytes used by all tracks.
func (m *Memory) Used() int64 { return m.used.Load() }

func (m *Memory) use(n int64) {
	for ; m != nil; m = m.parent {
		m.used.Add(n)
	}
}

// add counts a new track in m.
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

// reclaim evicts groups wherever a limit is exceeded. The caller holds no track's lock.
func (m *Memory) reclaim() {
	for ; m != nil; m = m.parent {
		if m.exceeded() && m.tree.TryLock() { // otherwise another goroutine is evicting
			m.makeRoom()
			m.tree.Unlock()
		}
	}
}

// makeRoom evicts until m is within its limit, if possible. m.tree is held.
func (m *Memory) makeRoom() {
	v := victims{}
	for m.exceeded() {
		t, all := v.next(m)
		if t == nil {
			return // every track is down to its newest group
		}
		limit := m.limit.Load()
		if !t.free(m.used.Load()-limit+limit/16, all) {
			v[t] = true
		}
	}
}

// victims chooses the next track to evict from. It holds the exhausted candidates: tracks down to
// their newest group, and parts with nothing to evict.
type victims map[any]bool

// next returns the largest track of the largest part, recursively, or nil if nothing is left to
// evict. all is set when the largest part is down to newest groups. Its largest track is then
// evicted entirely, which spares the smaller parts. m.tree is held.
func (v victims) next(m *Memory) (t *Track, all bool) {
	for {
		var largest *Memory
		var most int64
		others := false // other tracks or parts use memory
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

// largest returns the largest non-empty track of m and its parts. m.tree is held.
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

// free evicts about n bytes, but at most half of the track, or the whole track if all is set. It
// reports whether it freed anything.
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

// SetMemory moves the track's usage to m, which must belong to the same root Memory as
// Limits.Memory.
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

// remove removes a track from m. m.tree is held.
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
