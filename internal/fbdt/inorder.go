package fbdt

import (
	"cmp"
	"slices"
	"time"
)

// New returns Holocast's scheduler.
func New(o Options) Scheduler { return newInOrder(o) }

// NewPaper returns the printed protocol.
func NewPaper(o Options) Scheduler { return newInOrder(o) }

// inOrder sends everything in order over the path that asks first.
type inOrder struct {
	Options
	streams map[uint64]*simpleStream
	ages    uint64
	ready   []*simpleRange
	sent    map[uint64]simpleSegment
	bytes   int64
	next    uint64
	paths   map[int]Estimate
}

type simpleStream struct {
	id, age    uint64
	p          Priority
	end, limit int64
	ended      bool
}

type simpleRange struct {
	s          *simpleStream
	start, end int64
}

type simpleSegment struct {
	*simpleRange
	path int
}

func newInOrder(o Options) *inOrder {
	return &inOrder{
		Options: o.withDefaults(), streams: map[uint64]*simpleStream{},
		sent: map[uint64]simpleSegment{}, paths: map[int]Estimate{},
	}
}

func (q *inOrder) sort() {
	slices.SortFunc(q.ready, func(a, b *simpleRange) int {
		return cmp.Or(cmp.Compare(a.s.p.Urgency, b.s.p.Urgency), cmp.Compare(a.s.p.Order, b.s.p.Order),
			cmp.Compare(a.s.age, b.s.age), cmp.Compare(a.start, b.start))
	})
}

func (q *inOrder) Add(stream uint64, p Priority, n int64) {
	s := q.streams[stream]
	if s == nil {
		s = &simpleStream{id: stream, age: q.ages, p: p}
		q.ages++
		q.streams[stream] = s
	}
	if n <= 0 || s.ended {
		return
	}
	q.ready = append(q.ready, &simpleRange{s, s.end, s.end + n})
	s.end += n
	q.sort()
}

func (q *inOrder) Reprioritize(stream uint64, p Priority) {
	if s := q.streams[stream]; s != nil {
		s.p = p
		q.sort()
	}
}

func (q *inOrder) Truncate(stream uint64, offset int64) (stale []uint64) {
	s := q.streams[stream]
	if s == nil {
		return nil
	}
	s.ended = true
	q.ready = slices.DeleteFunc(q.ready, func(r *simpleRange) bool {
		if r.s != s {
			return false
		}
		r.end = min(r.end, max(offset, r.start))
		return r.start >= offset
	})
	for number, seg := range q.sent {
		if seg.s == s && seg.start >= offset {
			stale = append(stale, number)
			q.drop(number)
		}
	}
	slices.Sort(stale)
	return stale
}

func (q *inOrder) SetPath(path int, e Estimate) {
	q.paths[path] = e
	if e.Down {
		q.giveBack(path)
	}
}

func (q *inOrder) RemovePath(path int) {
	delete(q.paths, path)
	q.giveBack(path)
}

func (q *inOrder) giveBack(path int) {
	for number, seg := range q.sent {
		if seg.path == path {
			q.ready = append(q.ready, q.drop(number))
		}
	}
	q.sort()
}

func (q *inOrder) drop(number uint64) *simpleRange {
	seg := q.sent[number]
	q.bytes -= seg.end - seg.start
	delete(q.sent, number)
	return seg.simpleRange
}

func (q *inOrder) Next(path int, _ time.Duration) (Segment, bool) {
	if e, ok := q.paths[path]; !ok || e.Down || len(q.ready) == 0 || q.bytes >= q.Unacked {
		return Segment{}, false
	}
	r := q.ready[0]
	n := min(r.end-r.start, q.MaxSegment)
	taken := &simpleRange{r.s, r.start, r.start + n}
	if r.start += n; r.start == r.end {
		q.ready = q.ready[1:]
	}
	number := q.next
	q.next++
	q.sent[number] = simpleSegment{taken, path}
	q.bytes += n
	return Segment{Number: number, Stream: r.s.id, Offset: taken.start, Length: n}, true
}

func (q *inOrder) Sent(uint64, time.Duration) {}

func (q *inOrder) Acked(segment uint64, _ time.Duration) []uint64 {
	if _, ok := q.sent[segment]; ok {
		q.drop(segment)
	}
	return nil
}

func (q *inOrder) Lost(segment uint64) {
	if _, ok := q.sent[segment]; ok {
		q.ready = append(q.ready, q.drop(segment))
		q.sort()
	}
}

func (q *inOrder) Wake(int, time.Duration) (time.Duration, bool) { return 0, false }
