package fbdt

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"holocast/internal/fbdt"
)

// meter wraps a scheduler and counts the bytes delivered, sent twice, and delivered behind a gap.
type meter struct {
	fbdt.Scheduler

	mu    sync.Mutex
	order []*metered // streams from the oldest unfinished one on
	of    map[uint64]*metered
	under map[uint64]fbdt.Segment
	// delivered counts acknowledged bytes, each once; repeated counts bytes sent again.
	delivered, repeated int64
	buffered            int64 // delivered bytes behind a gap: the peer's buffer for in-order delivery
	peak                int64
}

// metered is a stream.
type metered struct {
	id                uint64
	delivered, prefix int64           // bytes in all, and without a gap
	behind            map[int64]int64 // length by offset, behind a gap
	end               int64           // -1 = open
}

func newMeter(s fbdt.Scheduler) *meter {
	return &meter{Scheduler: s, of: map[uint64]*metered{}, under: map[uint64]fbdt.Segment{}}
}

// Add registers new streams. It ignores the bundle's control messages, whose urgency is negative.
func (m *meter) Add(stream uint64, p fbdt.Priority, n int64) {
	m.Scheduler.Add(stream, p, n)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of[stream] == nil && p.Urgency >= 0 {
		s := &metered{id: stream, behind: map[int64]int64{}, end: -1}
		m.of[stream] = s
		at, _ := slices.BinarySearchFunc(m.order, s, func(a, b *metered) int { return cmp.Compare(a.id, b.id) })
		if at == 0 && len(m.order) > 0 {
			m.buffered += m.order[0].prefix
		}
		m.order = slices.Insert(m.order, at, s)
	}
}

// Truncate records the length of a stream.
func (m *meter) Truncate(stream uint64, offset int64) []uint64 {
	m.mu.Lock()
	if s := m.of[stream]; s != nil && s.end < 0 {
		s.end = offset
		m.advance()
	}
	m.mu.Unlock()
	return m.Scheduler.Truncate(stream, offset)
}

// Next records each segment sent.
func (m *meter) Next(path int, now time.Duration) (fbdt.Segment, bool) {
	g, ok := m.Scheduler.Next(path, now)
	if ok {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.under[g.Number] = g
		if g.Copy {
			m.repeated += g.Length
		}
	}
	return g, ok
}

// Acked counts delivered bytes.
func (m *meter) Acked(segment uint64, now time.Duration) []uint64 {
	m.mu.Lock()
	if g, ok := m.under[segment]; ok {
		delete(m.under, segment)
		m.deliver(g)
	}
	m.mu.Unlock()
	stale := m.Scheduler.Acked(segment, now)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range stale {
		delete(m.under, n)
	}
	return stale
}

// deliver counts the bytes of a segment that no other segment has delivered.
func (m *meter) deliver(g fbdt.Segment) {
	s := m.of[g.Stream]
	if s == nil || g.Offset < s.prefix || s.behind[g.Offset] >= g.Length {
		return
	}
	n := g.Length - s.behind[g.Offset]
	s.behind[g.Offset] = g.Length
	s.delivered += n
	m.delivered += n
	m.buffered += n
	for length, ok := s.behind[s.prefix]; ok; length, ok = s.behind[s.prefix] {
		delete(s.behind, s.prefix)
		s.prefix += length
		if s == m.order[0] {
			m.buffered -= length
		}
	}
	m.advance()
	m.peak = max(m.peak, m.buffered)
}

// advance skips complete streams, up to the last stream.
func (m *meter) advance() {
	for len(m.order) > 1 && m.order[0].end >= 0 && m.order[0].prefix >= m.order[0].end {
		m.order = m.order[1:]
		m.buffered -= m.order[0].prefix
	}
}

// figures are a meter's counts.
type figures struct{ delivered, repeated, peak int64 }

// mark returns the counts and resets the peak.
func (m *meter) mark() figures {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := figures{m.delivered, m.repeated, m.peak}
	m.peak = m.buffered
	return f
}
