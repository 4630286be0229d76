package fbdt

import (
	"slices"
	"time"
)

// maxOffset is the largest offset of a stream (RFC 9000 §4.5).
const maxOffset = 1<<62 - 1

type stream struct {
	id, age    uint64
	p          Priority
	end, limit int64  // bytes added; offset of Truncate
	pieces     *piece // list of all bytes not acknowledged
	tail       *piece // may have the last byte
}

// piece is a run of a stream's unacknowledged bytes that are in the same flights. It is ready (in a tree) or
// under way.
type piece struct {
	s           *stream
	start, end  int64
	flights     []*flight // segments under way with these bytes
	prev, next  *piece    // of the stream, in no order
	in          *tree
	left, right *piece
	sum         int64
	weight      uint32
}

func (p *piece) place() place  { return place{p.s, p.start} }
func (p *piece) length() int64 { return p.end - p.start }

// flight is a segment under way.
type flight struct {
	number     uint64
	path       *path
	pieces     []*piece // its unacknowledged bytes
	length     int64
	window     uint64
	due        time.Duration // predicted acknowledgement
	plain      time.Duration // due without the correction for earlier errors
	sent       bool
	left       time.Duration // when its last byte left, or it was assigned
	first      bool          // sent while nothing else was under way on its path
	copied     bool          // all its pieces have copies
	copy       bool
	prev, next *flight // of the path, by number
}

type path struct {
	Estimate
	id                int
	head, tail        *flight
	underway, unsent  int64
	train             train
	carried           float64       // bytes/s, measured; 0 = unknown
	measured          time.Duration // when
	filled            bool          // the measured bytes filled the path
	fresh             *flight       // oldest flight after the last acknowledged one
	uncopied          *flight       // no flight before it needs a copy
	bias, dev         float64       // lateness in seconds: mean, mean deviation
	learned           time.Duration // when they changed
	backlog           float64       // bytes queued at its bottleneck at time since
	since             time.Duration
	pointer           place // exclusive end of the next backward segment
	window            uint64
	region            int // NewPaper: its part of the window
	backward, waiting bool
	done              time.Duration // NewPaper: since when it waits
}

// book keeps streams, pieces, flights and paths for both schedulers.
type book struct {
	Options
	streams map[uint64]*stream
	flights map[uint64]*flight
	paths   []*path
	ready   tree
	out     int64 // bytes under way, copies counted once
	ages    uint64
	numbers uint64
	sees    bool // the transport calls Sent
	stale   []uint64
	now     time.Duration
	// over, if set, is called when a flight ends: it was acknowledged, or all its bytes arrived
	// with other flights (overtaken).
	over func(f *flight, overtaken bool)

	freePieces  []*piece
	freeFlights []*flight
}

func newBook(o Options) book {
	return book{Options: o.withDefaults(), streams: map[uint64]*stream{}, flights: map[uint64]*flight{}}
}

func (b *book) path(id int) *path {
	for _, p := range b.paths {
		if p.id == id {
			return p
		}
	}
	return nil
}

func (b *book) newPiece(s *stream, start, end int64) *piece {
	var p *piece
	if n := len(b.freePieces); n > 0 {
		p, b.freePieces = b.freePieces[n-1], b.freePieces[:n-1]
	} else {
		p = &piece{}
	}
	p.s, p.start, p.end = s, start, end
	p.prev, p.next = nil, s.pieces
	if s.pieces != nil {
		s.pieces.prev = p
	}
	s.pieces = p
	return p
}

// forget drops a piece that is no longer in any flight.
func (b *book) forget(p *piece) {
	if p.in != nil {
		p.in.remove(p)
	} else {
		b.out -= p.length()
	}
	s := p.s
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		s.pieces = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	}
	if s.tail == p {
		s.tail = nil
	}
	*p = piece{flights: p.flights[:0]}
	b.freePieces = append(b.freePieces, p)
	b.release(s)
}

func (b *book) release(s *stream) {
	if s.pieces == nil && s.end >= s.limit {
		delete(b.streams, s.id)
	}
}

func (b *book) Add(id uint64, p Priority, n int64) {
	s := b.streams[id]
	if s == nil {
		s = &stream{id: id, age: b.ages, p: p, limit: maxOffset}
		b.ages++
		b.streams[id] = s
	}
	n = min(n, s.limit-s.end)
	if n <= 0 {
		return
	}
	start := s.end
	s.end += n
	if t := s.tail; t != nil && t.in == &b.ready && t.end == start && len(t.flights) == 0 {
		b.ready.setEnd(t, s.end)
		return
	}
	s.tail = b.newPiece(s, start, s.end)
	b.ready.insert(s.tail)
}

func (b *book) Reprioritize(id uint64, p Priority) {
	s := b.streams[id]
	if s == nil || s.p == p {
		return
	}
	type ready struct {
		*piece
		in *tree
	}
	var moved []ready
	for q := s.pieces; q != nil; q = q.next {
		if q.in != nil {
			moved = append(moved, ready{q, q.in})
			q.in.remove(q)
		}
	}
	s.p = p
	for _, m := range moved {
		m.in.insert(m.piece)
	}
}

func (b *book) Truncate(id uint64, offset int64) []uint64 {
	b.stale = b.stale[:0]
	s := b.streams[id]
	if s == nil {
		return nil
	}
	offset = max(offset, 0)
	s.limit = min(s.limit, offset)
	for p := s.pieces; p != nil; {
		next := p.next
		switch {
		case p.start >= offset:
			b.finish(p, nil)
		case p.end > offset && p.in != nil:
			p.in.setEnd(p, offset)
		case p.end > offset:
			b.out -= p.end - offset
			p.end = offset
		}
		p = next
	}
	b.release(s)
	slices.Sort(b.stale)
	return b.stale
}

// finish forgets a piece that arrived with flight f, or that is no longer wanted if f is nil. Other flights
// become stale if no unacknowledged piece is left in them.
func (b *book) finish(p *piece, f *flight) {
	for _, g := range p.flights {
		if g == f {
			continue
		}
		g.pieces = remove(g.pieces, p)
		if len(g.pieces) == 0 {
			b.stale = append(b.stale, g.number)
			if f != nil && b.over != nil {
				b.over(g, true)
			}
			b.drop(g)
		}
	}
	p.flights = p.flights[:0]
	b.forget(p)
}

func remove[T comparable](s []T, v T) []T {
	if i := slices.Index(s, v); i >= 0 {
		s[i] = s[len(s)-1]
		return s[:len(s)-1]
	}
	return s
}

// cut splits a piece at offset and returns the second part.
func (b *book) cut(p *piece, offset int64) *piece {
	q := b.newPiece(p.s, offset, p.end)
	for _, f := range p.flights {
		q.flights = append(q.flights, f)
		f.pieces = append(f.pieces, q)
	}
	if p.s.tail == p {
		p.s.tail = q
	}
	if p.in == nil {
		p.end = offset
		return q
	}
	p.in.setEnd(p, offset)
	p.in.insert(q)
	return q
}

// take assigns the bytes from start to end of a ready piece to a new flight on t.
func (b *book) take(t *path, p *piece, start, end int64) *flight {
	if start > p.start {
		p = b.cut(p, start)
	}
	if end < p.end {
		b.cut(p, end)
	}
	p.in.remove(p)
	b.out += p.length()
	return b.fly(t, p)
}

func (b *book) fly(t *path, p *piece) *flight {
	var f *flight
	if n := len(b.freeFlights); n > 0 {
		f, b.freeFlights = b.freeFlights[n-1], b.freeFlights[:n-1]
	} else {
		f = &flight{}
	}
	*f = flight{
		number: b.numbers, path: t, pieces: append(f.pieces[:0], p), length: p.length(), prev: t.tail,
		first: t.head == nil,
	}
	b.numbers++
	f.copy = len(p.flights) > 0
	p.flights = append(p.flights, f)
	b.flights[f.number] = f
	if t.tail != nil {
		t.tail.next = f
	} else {
		t.head = f
	}
	t.tail = f
	if t.fresh == nil {
		t.fresh = f
	}
	if t.uncopied == nil {
		t.uncopied = f
	}
	t.underway += f.length
	t.unsent += f.length
	return f
}

func (f *flight) segment() Segment {
	p := f.pieces[0]
	return Segment{f.number, p.s.id, p.start, p.length(), f.copy, f.window}
}

// drop removes a flight; its pieces must no longer list it.
func (b *book) drop(f *flight) {
	t := f.path
	if f.prev != nil {
		f.prev.next = f.next
	} else {
		t.head = f.next
	}
	if f.next != nil {
		f.next.prev = f.prev
	} else {
		t.tail = f.prev
	}
	if t.fresh == f {
		t.fresh = f.next
	}
	if t.uncopied == f {
		t.uncopied = f.next
	}
	t.underway -= f.length
	if !f.sent {
		t.unsent -= f.length
	}
	delete(b.flights, f.number)
	f.path = nil
	b.freeFlights = append(b.freeFlights, f)
}

func (b *book) SetPath(id int, e Estimate) {
	t := b.path(id)
	if t == nil {
		t = &path{id: id, Estimate: Estimate{Down: true}}
		b.paths = append(b.paths, t)
	}
	changed := t.Down != e.Down
	t.Estimate = e
	if changed {
		// Segments from before the change say nothing about new ones.
		t.fresh, t.bias, t.dev, t.carried, t.filled = nil, 0, 0, 0, false
		b.settle()
	}
}

func (b *book) RemovePath(id int) {
	t := b.path(id)
	if t == nil {
		return
	}
	for t.head != nil {
		b.lose(t.head)
	}
	b.paths = remove(b.paths, t)
	b.settle()
}

// settle makes the segments of down paths ready again if another path is up. When a path comes back, QUIC
// retransmits its lost packets, so its segments count as under way again.
func (b *book) settle() {
	up := slices.ContainsFunc(b.paths, func(t *path) bool { return !t.Down })
	for _, t := range b.paths {
		for f := t.head; f != nil; f = f.next {
			for _, p := range f.pieces {
				switch {
				case t.Down && up:
					b.makeReady(p)
				case !t.Down && p.in != nil:
					p.in.remove(p)
					b.out += p.length()
				}
			}
		}
	}
}

// makeReady puts a piece back into the ready tree unless a live path is sending it.
func (b *book) makeReady(p *piece) {
	if p.in != nil || slices.ContainsFunc(p.flights, func(f *flight) bool { return !f.path.Down }) {
		return
	}
	b.out -= p.length()
	if len(p.flights) > 0 {
		b.ready.insert(p)
		return
	}
	// Merge a piece that has no flights with neighbours that have none.
	pos := b.ready.rank(p.place())
	if next, _ := b.ready.at(pos); next != nil && next.s == p.s && next.start == p.end && len(next.flights) == 0 {
		end := next.end
		if p.s.tail == next {
			p.s.tail = p
		}
		b.forget(next)
		p.end = end
	}
	if pos > 0 {
		prev, _ := b.ready.at(pos - 1)
		if prev.s == p.s && prev.end == p.start && len(prev.flights) == 0 {
			tail, end := p.s.tail == p, p.end
			p.end = p.start // already off the book
			b.forget(p)
			b.ready.setEnd(prev, end)
			if tail {
				prev.s.tail = prev
			}
			return
		}
	}
	b.ready.insert(p)
}

func (b *book) Sent(number uint64, now time.Duration) {
	b.sees = true
	if f := b.flights[number]; f != nil && !f.sent {
		f.sent, f.left = true, now
		f.path.unsent -= f.length
	}
}

func (b *book) Acked(number uint64, now time.Duration) []uint64 {
	b.stale = b.stale[:0]
	f := b.flights[number]
	if f == nil {
		return nil
	}
	b.now = now
	if b.over != nil {
		b.over(f, false)
	}
	if t := f.path; t.fresh != nil && f.number >= t.fresh.number {
		t.fresh = f.next
	}
	for _, p := range f.pieces {
		b.finish(p, f)
	}
	b.drop(f)
	return b.stale
}

func (b *book) Lost(number uint64) {
	if f := b.flights[number]; f != nil {
		b.lose(f)
	}
}

func (b *book) lose(f *flight) {
	for _, p := range f.pieces {
		p.flights = remove(p.flights, f)
		for _, g := range p.flights { // the other one may need a copy again
			g.copied, g.path.uncopied = false, g.path.head
		}
		b.makeReady(p)
	}
	f.pieces = f.pieces[:0]
	b.drop(f)
}

// size returns the segment length in bytes for a path of the given rate: about 4 ms of data.
func (b *book) size(rate float64) int64 {
	return min(max(int64(rate*0.004), b.MinSegment), b.MaxSegment)
}
