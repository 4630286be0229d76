package fbdt

import (
	"math"
	"time"
)

const (
	defaultRate = 125e3 // bytes/s of a path with an unknown rate: cautious
	defaultRTT  = 100 * time.Millisecond
	waste       = 0.01      // useless copies, as a share of the acknowledged bytes
	leastTrain  = 0.005     // minimum duration of a train in seconds
	leastBytes  = 2 << 10   // minimum bytes of a train
	spareAtOnce = 256 << 10 // maximum budget for copies, bytes
	plenty      = 4 << 20   // so many ready bytes are probably followed by more: a transport accepts a limited number
)

// ours predicts when each path would deliver, and lets paths work from both ends of a window.
type ours struct {
	book
	windows uint64
	spare   float64 // bytes that copies may still take
}

// New returns Holocast's scheduler; the package comment describes it.
func New(o Options) Scheduler {
	s := &ours{book: newBook(o), spare: spareAtOnce / 4}
	s.over = s.learn
	return s
}

// learn updates a path's prediction errors and the budget for copies when a flight ends.
func (o *ours) learn(f *flight, overtaken bool) {
	t := f.path
	if !overtaken {
		t.measure(f, o.now)
	}
	late := t.overdue(f, o.now) > 0
	switch {
	case !overtaken:
		o.spare += waste * float64(f.length)
	case late: // the copy was worth it
		o.spare += float64(f.length)
	default:
		return // it might have been punctual
	}
	o.spare = min(o.spare, spareAtOnce)
	miss := (o.now - f.plain).Seconds()
	t.learned = o.now
	t.dev += (math.Abs(miss-t.bias) - t.dev) / 4
	t.bias += (miss - t.bias) / 8
}

// forget halves prediction errors that were not updated recently, and stops treating a path as full if it was not
// measured recently. Otherwise a path left unused because of these values would never be measured again.
func (o *ours) forget(now time.Duration) {
	for _, t := range o.paths {
		t.filled = t.filled && now-t.measured < 2*time.Second
		if now-t.learned > time.Second+2*t.RTT {
			t.bias, t.dev, t.learned = t.bias/2, t.dev/2, now
		}
	}
}

// train is a run of segments that left a path without a pause.
type train struct {
	left, acked         time.Duration // of the segment before
	lastLeft, lastAcked time.Duration
	bytes               int64
}

// measure learns the rate of a path from an acknowledgement. Bytes that arrive more slowly than they left have filled
// the path; otherwise it might carry more.
func (t *path) measure(f *flight, now time.Duration) {
	g := &t.train
	switch {
	case f.first:
		t.learnRate(leastTrain / 2)
		*g = train{f.left, now, f.left, now, 0}
		return
	case now > g.lastAcked && t.learnRate(leastTrain):
		*g = train{g.lastLeft, g.lastAcked, g.lastLeft, g.lastAcked, 0}
	}
	switch {
	case f.left < g.left: // repeated after a loss
	case now == g.acked: // one acknowledgement of several segments
		g.left = f.left
	default:
		g.bytes += f.length
	}
	g.lastLeft, g.lastAcked = max(g.lastLeft, f.left), now
}

// learnRate updates a path's rate from its train. It returns false if the train is too short.
func (t *path) learnRate(least float64) bool {
	g := &t.train
	left, acked := (g.lastLeft - g.left).Seconds(), (g.lastAcked - g.acked).Seconds()
	if g.bytes < leastBytes || max(left, acked) < least {
		return false
	}
	rate := float64(g.bytes) / max(left, acked)
	full := acked > 1.1*left
	switch {
	case t.carried == 0 || full && !t.filled:
		t.carried = rate
	case full || rate > t.carried:
		t.carried += (rate - t.carried) / 4
	}
	t.filled = t.filled && rate < 1.5*t.carried || full
	t.measured = g.lastAcked
	return true
}

func (t *path) rate() float64 {
	switch {
	case t.Rate <= 0:
		return defaultRate
	case t.Guess && t.carried > 0:
		return t.carried
	case t.Guess || t.Limited:
		return max(t.Rate, t.carried)
	}
	return t.Rate
}

func (t *path) rtt() float64 {
	if t.RTT > 0 {
		return t.RTT.Seconds()
	}
	return defaultRTT.Seconds()
}

// tolerance is the delay, in seconds, after which a segment counts as overdue.
func (t *path) tolerance() float64 {
	return 0.001 + t.rtt()/4 + 2*t.Var.Seconds() + 4*t.dev
}

// overdue returns the seconds since a flight should have been acknowledged; 0 within the tolerance.
func (t *path) overdue(f *flight, now time.Duration) float64 {
	if f == nil {
		return 0
	}
	if late := (now - f.due).Seconds(); late > t.tolerance() {
		return late
	}
	return 0
}

// queue returns the seconds until a path could begin to transmit more. It models the queue at the bottleneck,
// within the limits that acknowledgements and Sent imply.
func (o *ours) queue(t *path, now time.Duration) float64 {
	under := float64(t.underway) / t.rate()
	q := max(min(t.backlog/t.rate()-(now-t.since).Seconds(), under), under-t.rtt(), 0)
	if o.sees {
		q = max(q, float64(t.unsent)/t.rate())
	}
	return q
}

// delay returns the seconds until the first byte of another segment over a path would arrive.
func (o *ours) delay(t *path, now time.Duration) float64 {
	return t.rtt()/2 + o.queue(t, now) + t.correction(now)
}

// correction returns the seconds to add to the predicted delay: the mean lateness of past segments plus the time by
// which the next acknowledgement is overdue. A negative mean is ignored: early segments mean that the rate was
// underestimated, not that the delay is shorter.
func (t *path) correction(now time.Duration) float64 {
	return max(t.bias, 0) + t.overdue(t.fresh, now)
}

func (o *ours) window() float64 {
	if o.Window > 0 {
		return float64(o.Window)
	}
	var w, least float64
	for _, t := range o.paths {
		if !t.Down {
			w += t.rate() * 0.025
			least += 2 * float64(o.size(t.rate()))
		}
	}
	return min(max(w, least), 1<<20)
}

func (o *ours) Next(id int, now time.Duration) (Segment, bool) {
	t := o.path(id)
	if t == nil || t.Down {
		return Segment{}, false
	}
	o.forget(now)
	total := o.ready.bytes()
	delay := o.delay(t, now)
	size := o.size(t.rate())
	others, first := o.others(t, delay+float64(size)/t.rate(), now)
	if float64(total-size) < others {
		size = o.share(t, size, delay, now)
		others, first = o.others(t, delay+float64(size)/t.rate(), now)
	}
	if p := o.overdueCopy(t, delay, now); p != nil {
		return o.send(t, o.fly(t, p), delay, now), true
	}
	if total > 0 && o.out < o.Unacked {
		switch {
		case t.Rate <= 0 && len(o.paths) > 1:
			if t.underway < 2*o.MinSegment {
				return o.send(t, o.backward(t, size, others), delay, now), true
			}
			return Segment{}, false
		case first || others < 1:
			return o.send(t, o.forward(t, size), delay, now), true
		case others < float64(total) || total >= plenty && others < float64(o.Unacked):
			return o.send(t, o.backward(t, size, others), delay, now), true
		}
	}
	if p := o.lateCopy(t, delay, now); p != nil {
		return o.send(t, o.fly(t, p), delay, now), true
	}
	return Segment{}, false
}

// others returns the bytes that the other paths deliver within a number of seconds, and whether none of them would
// deliver its next segment earlier.
func (o *ours) others(t *path, arrival float64, now time.Duration) (n float64, first bool) {
	first = true
	for _, u := range o.paths {
		if u == t || u.Down {
			continue
		}
		d := o.delay(u, now)
		n += u.rate() * max(0, arrival+t.dev-d)
		first = first && arrival <= d+float64(o.size(u.rate()))/u.rate()
	}
	return n, first
}

// share returns how many of the last ready bytes, at most size, a path should send so that the others deliver the
// rest in the same time.
func (o *ours) share(t *path, size int64, delay float64, now time.Duration) int64 {
	least, most := o.MinSegment, size
	for most-least > o.MinSegment/4 {
		n := (least + most) / 2
		if x, _ := o.others(t, delay+float64(n)/t.rate(), now); x+float64(n) < float64(o.ready.bytes()) {
			least = n
		} else {
			most = n
		}
	}
	return least
}

// send records a flight as sent, predicts its acknowledgement and returns its segment.
func (o *ours) send(t *path, f *flight, delay float64, now time.Duration) Segment {
	if f.copy {
		o.spare -= float64(f.length)
	}
	t.backlog = max(0, t.backlog-t.rate()*(now-t.since).Seconds()) + float64(f.length)
	t.since = now
	f.window, f.left = t.window, now
	f.due = now + seconds(delay+float64(f.length)/t.rate()+o.back())
	f.plain = f.due - seconds(t.correction(now))
	return f.segment()
}

// back returns the seconds that an acknowledgement takes. The peer sends it over all paths, so the
// fastest one counts.
func (o *ours) back() float64 {
	least := math.Inf(1)
	for _, t := range o.paths {
		if !t.Down {
			least = min(least, t.rtt()/2)
		}
	}
	return least
}

func seconds(s float64) time.Duration {
	return time.Duration(min(s, 1e6) * float64(time.Second))
}

// forward takes the first ready bytes.
func (o *ours) forward(t *path, size int64) *flight {
	p, _ := o.ready.at(0)
	return o.take(t, p, p.start, p.start+o.whole(size, p.length()))
}

// whole returns size, or available if that is less. It also returns available if that exceeds size by at most a
// quarter but not MaxSegment, to avoid leaving a small remainder.
func (o *ours) whole(size, available int64) int64 {
	if available <= min(size+size/4, o.MaxSegment) {
		return available
	}
	return min(size, available)
}

// backward takes the bytes before the path's pointer. The other paths deliver the first others bytes before this path
// could. Once the pointer reaches those, it moves to the end of the next window.
func (o *ours) backward(t *path, size int64, others float64) *flight {
	x, w := int64(math.Min(others, float64(o.ready.bytes()-1))), max(int64(o.window()), 1)
	pos := int64(0)
	if t.pointer.s != nil {
		pos = o.ready.rank(t.pointer)
	}
	if pos <= x || pos > x+2*w {
		pos = min(x+w, o.ready.bytes())
		o.windows++
		t.window = o.windows
	}
	p, before := o.ready.at(pos - 1)
	end := p.start + pos - before
	if p.end-end < o.MinSegment {
		end = p.end
	}
	start := end - o.whole(size, end-p.start)
	t.pointer = place{p.s, start}
	return o.take(t, p, start, end)
}

// overdueCopy returns bytes of a segment on another path that come before all ready ones, if the segment is
// overdue by more than this path would take to deliver them.
func (o *ours) overdueCopy(t *path, delay float64, now time.Duration) *piece {
	front, _ := o.ready.at(0)
	for _, u := range o.paths {
		if u == t || u.Down {
			continue
		}
		for u.uncopied != nil && u.uncopied.copied {
			u.uncopied = u.uncopied.next
		}
		f := u.uncopied
		if late := u.overdue(f, now); late > 0 {
			if p := o.copyable(t, f, delay, late); p != nil &&
				(front == nil || p.place().compare(front.place()) < 0) {
				return o.mark(f, p)
			}
		}
	}
	return nil
}

// lateCopy returns bytes that another path will deliver later than this one could.
func (o *ours) lateCopy(t *path, delay float64, now time.Duration) *piece {
	var best *piece
	var from *flight
	var gain float64
	for _, u := range o.paths {
		if u == t || u.Down {
			continue
		}
		f := u.tail
		for range 8 { // the newest arrive last
			if f == nil {
				break
			}
			left := max((f.due-now).Seconds()-o.back()+u.overdue(u.fresh, now), u.overdue(f, now))
			if p := o.copyable(t, f, delay, left); p != nil && left > gain {
				best, from, gain = p, f, left
			}
			f = f.prev
		}
	}
	if best == nil {
		return nil
	}
	return o.mark(from, best)
}

// copyable returns bytes of a flight to send again over t, if they would clearly arrive sooner than in
// left seconds.
func (o *ours) copyable(t *path, f *flight, delay, left float64) *piece {
	if f.copied {
		return nil
	}
	for _, p := range f.pieces {
		n := float64(p.length())
		if len(p.flights) == 1 && p.in == nil && n <= o.spare && (delay+n/t.rate())*1.1+0.001 < left {
			return p
		}
	}
	return nil
}

// mark records that p, a piece of flight f, is copied, and returns p.
func (o *ours) mark(f *flight, p *piece) *piece {
	f.copied = true
	for _, q := range f.pieces {
		if q != p && len(q.flights) == 1 {
			f.copied = false
		}
	}
	return p
}

func (o *ours) Wake(id int, now time.Duration) (time.Duration, bool) {
	t := o.path(id)
	if t == nil || t.Down {
		return 0, false
	}
	var at time.Duration
	found := false
	for _, u := range o.paths {
		if u == t || u.Down {
			continue
		}
		for _, f := range []*flight{u.fresh, u.uncopied} {
			if f == nil {
				continue
			}
			when := f.due + seconds(u.tolerance()) + 1
			if when <= now { // overdue: the longer, the better a copy
				when = now + max(time.Millisecond, (now-f.due)/4)
			}
			if !found || when < at {
				at, found = when, true
			}
		}
	}
	return at, found
}
