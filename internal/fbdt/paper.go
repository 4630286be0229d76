package fbdt

import (
	"cmp"
	"slices"
	"time"
)

// paper is the published protocol: one window at a time.
type paper struct {
	book
	number  uint64
	regions []*tree // parts of the window, each between a forward and a backward path
}

// NewPaper returns the protocol as published (§3), for comparison. The paper leaves it open how more than
// two paths work together; here each pair of paths gets a part of the window in proportion to its rates.
func NewPaper(o Options) Scheduler {
	if o.Window <= 0 {
		o.Window = 1e6
	}
	return &paper{book: newBook(o)}
}

func (o *paper) Next(id int, now time.Duration) (Segment, bool) {
	t := o.path(id)
	if t == nil || t.Down {
		return Segment{}, false
	}
	if o.remaining() == 0 {
		switch p, wait := o.redundant(t, now); {
		case p != nil:
			f := o.fly(t, p)
			f.window = o.number
			return f.segment(), true
		case wait:
			return Segment{}, false
		}
		o.load()
	}
	return o.fromWindow(t)
}

func (o *paper) remaining() (n int64) {
	for _, r := range o.regions {
		n += r.bytes()
	}
	return n
}

// busy reports whether a path has unacknowledged segments of the window, other than copies.
func (o *paper) busy(t *path) bool {
	for f := t.tail; f != nil && f.window == o.number; f = f.prev {
		if !f.copy {
			return true
		}
	}
	return false
}

// wait returns how long a finished path waits for the others: the largest RTT of the busy ones.
func (o *paper) wait(t *path) (rtt time.Duration) {
	for _, u := range o.paths {
		if u != t && o.busy(u) {
			rtt = max(rtt, u.RTT)
		}
	}
	return rtt
}

// redundant handles a window whose pointers have met. A path with unacknowledged segments waits for them; a
// finished path waits one RTT of the others and sends their unacknowledged segments once more. The next window may
// begin when none are left or all have been sent twice.
func (o *paper) redundant(t *path, now time.Duration) (p *piece, wait bool) {
	for _, u := range o.paths {
		for f := u.tail; f != nil && f.window == o.number && !u.Down; f = f.prev {
			for _, q := range f.pieces {
				if len(q.flights) > 1 || f.copy {
					continue
				}
				wait = true
				if u != t && (p == nil || q.place().compare(p.place()) < 0) {
					p = q
				}
			}
		}
	}
	if !wait {
		return nil, false
	}
	if o.busy(t) {
		return nil, true
	}
	if !t.waiting {
		t.waiting, t.done = true, now
	}
	if now < t.done+o.wait(t) {
		return nil, true
	}
	return p, true
}

// load fills the window and places the pointers. Paths are paired by ascending RTT; the first of each
// pair works forward.
func (o *paper) load() {
	o.regions = o.regions[:0]
	if o.out >= o.Unacked || o.ready.bytes() == 0 {
		return
	}
	o.number++
	var up []*path
	var sum float64
	for _, t := range o.paths {
		t.waiting = false
		t.region = -1
		if !t.Down {
			up = append(up, t)
			sum += t.Rate
		}
	}
	slices.SortStableFunc(up, func(a, b *path) int { return cmp.Or(cmp.Compare(a.RTT, b.RTT), cmp.Compare(a.id, b.id)) })
	left := min(o.Window, o.ready.bytes())
	window := float64(left)
	for i := 0; i < len(up); i += 2 {
		pair := up[i:min(i+2, len(up))]
		var rate float64
		for j, t := range pair {
			rate += t.Rate
			t.region, t.backward = i/2, j == 1
		}
		n := left
		if i+2 < len(up) {
			share := float64(len(pair)) / float64(len(up))
			if sum > 0 {
				share = rate / sum
			}
			n = min(left, int64(window*share))
		}
		o.regions = append(o.regions, o.part(n))
		left -= n
	}
}

// part moves the first n ready bytes to a part of the window.
func (o *paper) part(n int64) *tree {
	r := &tree{}
	for n > 0 {
		p, _ := o.ready.at(0)
		if p.length() > n {
			o.cut(p, p.start+n)
		}
		n -= p.length()
		o.ready.remove(p)
		r.insert(p)
	}
	return r
}

// fromWindow takes the path's next segment. Once its own part is empty, the path continues at the end of the
// fullest part.
func (o *paper) fromWindow(t *path) (Segment, bool) {
	var r *tree
	backward := t.backward
	if t.region >= 0 && t.region < len(o.regions) {
		r = o.regions[t.region]
	}
	if r == nil || r.bytes() == 0 {
		backward = true
		for _, other := range o.regions {
			if r == nil || other.bytes() > r.bytes() {
				r = other
			}
		}
	}
	if r == nil || r.bytes() == 0 {
		return Segment{}, false
	}
	var f *flight
	if size := o.size(t.Rate); backward {
		p, _ := r.at(r.bytes() - 1)
		f = o.take(t, p, max(p.start, p.end-size), p.end)
	} else {
		p, _ := r.at(0)
		f = o.take(t, p, p.start, min(p.end, p.start+size))
	}
	f.window = o.number
	return f.segment(), true
}

func (o *paper) Wake(id int, now time.Duration) (time.Duration, bool) {
	t := o.path(id)
	if t == nil || t.Down || !t.waiting {
		return 0, false
	}
	if at := t.done + o.wait(t); at > now {
		return at, true
	}
	return 0, false
}
