// Package schedulers implements FBDT's competitors, the schedulers of multipath TCP, for a bundle of QUIC
// connections. Each sends the bytes in order and decides only which path takes the next ones. A scheduler in the
// kernel chooses among the paths with room in their congestion windows. Here a path with room asks for bytes, and
// counts as having room until it gets some.
package schedulers

import (
	"cmp"
	"slices"
	"time"

	"holocast/internal/fbdt"
)

// Names lists the schedulers.
func Names() []string { return []string{"minrtt", "roundrobin", "blest", "ecf", "musher"} }

// Duplicate names the scheduler that sends all bytes over all paths, as packet duplication does.
const Duplicate = "duplicate"

// New returns the scheduler with the given name, or nil if the name is unknown.
func New(name string, o fbdt.Options) fbdt.Scheduler {
	var r rule
	switch name {
	case "minrtt":
		r = minRTT{}
	case "roundrobin":
		r = &roundRobin{}
	case "blest":
		r = blest{}
	case "ecf":
		r = &ecf{}
	case "musher":
		r = &ratio{}
	case Duplicate:
	default:
		return nil
	}
	set := func(v *int64, fallback int64) { *v = cmp.Or(max(*v, 0), fallback) }
	set(&o.MinSegment, 4<<10)
	set(&o.MaxSegment, 64<<10)
	set(&o.Unacked, 32<<20)
	s := &inOrder{
		options: o, rule: r, streams: map[uint64]*stream{}, paths: map[int]*path{}, sent: map[uint64]copyOf{},
	}
	if r == nil {
		return &duplicate{inOrder: s}
	}
	return s
}

// rule decides whether a path takes the next bytes.
type rule interface {
	// takes reports whether p takes the next bytes. It is called when there are bytes to send and p has room.
	takes(s *inOrder, p *path, now time.Duration) bool
	// took is called after p was given n bytes.
	took(s *inOrder, p *path, n int64)
	// acked is called after n bytes were newly acknowledged over p.
	acked(s *inOrder, p *path, n int64, now time.Duration)
}

// inOrder is a scheduler that sends in order over the path that its rule chooses.
type inOrder struct {
	options fbdt.Options
	rule    rule
	streams map[uint64]*stream
	order   []*stream // with unassigned bytes, the next one first
	again   []*piece  // to be sent once more
	sent    map[uint64]copyOf
	paths   map[int]*path
	number  uint64
	age     uint64
	ready   int64 // unassigned bytes
	unacked int64 // assigned bytes that no path has delivered
}

type stream struct {
	id, age   uint64
	priority  fbdt.Priority
	next, end int64 // unassigned bytes
	unacked   int64
	last      bool // complete
}

// piece is a byte range in flight or to be sent again.
type piece struct {
	stream         *stream
	offset, length int64
	segments       []uint64 // under way
	queued         bool     // in again
}

type copyOf struct {
	*piece
	path *path
}

type path struct {
	index    int
	estimate fbdt.Estimate
	waits    bool  // has room and got nothing
	refused  bool  // by the rule
	underway int64 // bytes
}

// window estimates the path's congestion window in bytes: its bandwidth-delay product.
func (p *path) window() float64 { return max(p.estimate.Rate*p.estimate.RTT.Seconds(), initialWindow) }

// initialWindow is a path's initial congestion window in bytes (RFC 9002, section 7.2).
const initialWindow = 14720

// usable reports whether data may be sent over the path.
func (p *path) usable() bool { return !p.estimate.Down }

// each returns the usable paths in order of their index.
func (s *inOrder) each() []*path {
	list := make([]*path, 0, len(s.paths))
	for _, p := range s.paths {
		if p.usable() {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *path) int { return cmp.Compare(a.index, b.index) })
	return list
}

// fastest returns the usable path with the lowest round-trip time.
func (s *inOrder) fastest() *path {
	return slices.MinFunc(s.each(), func(a, b *path) int { return cmp.Compare(a.estimate.RTT, b.estimate.RTT) })
}

func (s *inOrder) Add(id uint64, p fbdt.Priority, n int64) {
	st := s.streams[id]
	if st == nil {
		st = &stream{id: id, age: s.age, priority: p}
		s.age++
		s.streams[id] = st
	}
	if st.last || n <= 0 {
		return
	}
	empty := st.next == st.end
	st.end += n
	s.ready += n
	if empty {
		s.insert(st)
	}
}

func (s *inOrder) insert(st *stream) {
	at, _ := slices.BinarySearchFunc(s.order, st, func(a, b *stream) int {
		return cmp.Or(cmp.Compare(a.priority.Urgency, b.priority.Urgency), cmp.Compare(a.priority.Order, b.priority.Order),
			cmp.Compare(a.age, b.age))
	})
	s.order = slices.Insert(s.order, at, st)
}

func (s *inOrder) remove(st *stream) {
	if i := slices.Index(s.order, st); i >= 0 {
		s.order = slices.Delete(s.order, i, i+1)
	}
}

func (s *inOrder) Reprioritize(id uint64, p fbdt.Priority) {
	st := s.streams[id]
	if st == nil {
		return
	}
	s.remove(st)
	st.priority = p
	if st.next < st.end {
		s.insert(st)
	}
}

func (s *inOrder) Truncate(id uint64, offset int64) (stale []uint64) {
	st := s.streams[id]
	if st == nil {
		return nil
	}
	st.last = true
	if end := max(offset, st.next); end < st.end {
		s.ready -= st.end - end
		st.end = end
		if st.next == st.end {
			s.remove(st)
		}
	}
	done := map[*piece]bool{}
	for _, c := range s.sent {
		if c.stream == st && c.offset >= offset && !done[c.piece] {
			done[c.piece] = true
		}
	}
	for _, p := range s.again {
		if p.stream == st && p.offset >= offset {
			done[p] = true
		}
	}
	for p := range done {
		stale = append(stale, s.finish(p)...)
	}
	s.forget(st)
	slices.Sort(stale)
	return stale
}

// forget removes an ended stream once nothing of it is left to send or acknowledge.
func (s *inOrder) forget(st *stream) {
	if st.last && st.next == st.end && st.unacked == 0 {
		delete(s.streams, st.id)
	}
}

// finish ends the transmission of a piece and returns its segments in flight.
func (s *inOrder) finish(p *piece) (stale []uint64) {
	for _, n := range p.segments {
		s.sent[n].path.underway -= p.length
		delete(s.sent, n)
	}
	if p.queued {
		s.again = slices.DeleteFunc(s.again, func(q *piece) bool { return q == p })
	}
	stale, p.segments, p.queued = p.segments, nil, false
	s.unacked -= p.length
	p.stream.unacked -= p.length
	return stale
}

func (s *inOrder) SetPath(index int, e fbdt.Estimate) {
	p := s.paths[index]
	if p == nil {
		p = &path{index: index}
		s.paths[index] = p
	}
	failed := e.Down && !p.estimate.Down
	p.estimate = e
	if failed {
		p.waits = false
		s.resend(p, false)
	}
}

func (s *inOrder) RemovePath(index int) {
	if p := s.paths[index]; p != nil {
		s.resend(p, true)
		delete(s.paths, index)
	}
}

// resend queues the pieces in flight over p alone, oldest first. If gone is set, it also drops the segments of p.
func (s *inOrder) resend(p *path, gone bool) {
	var numbers []uint64
	for n, c := range s.sent {
		if c.path == p {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		c := s.sent[n]
		if gone {
			s.drop(n, c)
		}
		elsewhere := slices.ContainsFunc(c.segments, func(m uint64) bool { return s.sent[m].path.usable() })
		if !c.queued && !elsewhere {
			c.queued = true
			s.again = append(s.again, c.piece)
		}
	}
}

// drop forgets a segment in flight.
func (s *inOrder) drop(n uint64, c copyOf) {
	c.path.underway -= c.length
	delete(s.sent, n)
	c.segments = slices.DeleteFunc(c.segments, func(m uint64) bool { return m == n })
}

func (s *inOrder) Next(index int, now time.Duration) (fbdt.Segment, bool) {
	p := s.paths[index]
	if p == nil || !p.usable() {
		return fbdt.Segment{}, false
	}
	p.waits, p.refused = true, false
	full := s.unacked >= s.options.Unacked
	if len(s.again) == 0 && (len(s.order) == 0 || full) {
		return fbdt.Segment{}, false
	}
	if !s.rule.takes(s, p, now) {
		p.refused = true
		return fbdt.Segment{}, false
	}
	p.waits = false
	var next *piece
	if len(s.again) > 0 {
		next, s.again = s.again[0], s.again[1:]
		next.queued = false
	} else {
		next = s.cut(p)
	}
	s.rule.took(s, p, next.length)
	return s.send(p, next), true
}

// send returns a segment that carries a piece over p.
func (s *inOrder) send(p *path, next *piece) fbdt.Segment {
	n := s.number
	s.number++
	segment := fbdt.Segment{
		Number: n, Stream: next.stream.id, Offset: next.offset, Length: next.length, Copy: len(next.segments) > 0,
	}
	next.segments = append(next.segments, n)
	s.sent[n] = copyOf{next, p}
	p.underway += next.length
	return segment
}

// segmentTime is the time that a path should take to send a segment.
const segmentTime = 4 * time.Millisecond

// cut takes the next unassigned bytes for a path.
func (s *inOrder) cut(p *path) *piece {
	st := s.order[0]
	size := int64(p.estimate.Rate * segmentTime.Seconds())
	size = min(max(size, s.options.MinSegment), s.options.MaxSegment, st.end-st.next)
	c := &piece{stream: st, offset: st.next, length: size}
	st.next += size
	if st.next == st.end {
		s.order = s.order[1:]
	}
	s.ready -= size
	s.unacked += size
	st.unacked += size
	return c
}

func (s *inOrder) Sent(uint64, time.Duration) {}

func (s *inOrder) Acked(n uint64, now time.Duration) (stale []uint64) {
	c, ok := s.sent[n]
	if !ok {
		return nil
	}
	s.drop(n, c)
	stale = s.finish(c.piece)
	if s.rule != nil {
		s.rule.acked(s, c.path, c.length, now)
	}
	s.forget(c.stream)
	return stale
}

func (s *inOrder) Lost(n uint64) {
	c, ok := s.sent[n]
	if !ok {
		return
	}
	s.drop(n, c)
	if len(c.segments) == 0 && !c.queued {
		c.queued = true
		s.again = append(s.again, c.piece)
	}
}

// askAgain is the time after which a refused path asks again, since other paths may gain or lose room without an
// event.
const askAgain = time.Millisecond

func (s *inOrder) Wake(index int, now time.Duration) (time.Duration, bool) {
	p := s.paths[index]
	return now + askAgain, p != nil && p.refused
}
