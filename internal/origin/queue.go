package origin

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"
)

// DefaultMaxOpen limits the subgroups in flight per session.
const DefaultMaxOpen = 256

// congestedFor is how long a path counts as congested after a subgroup is late or dropped as stale.
// Traffic at 31/30 of the path's rate takes that long to build a queue of maxWait.
const congestedFor = 3 * time.Second

// maxWait bounds the queueing delay on a congested path. Shorter stalls are absorbed.
const maxWait = 100 * time.Millisecond

// Queue holds the subgroups in flight to one session, across tracks. The transport orders them by
// priority and group (moqt.Publication); Queue drops the ones not worth sending when the path is
// congested or the peer stops reading.
type Queue struct {
	// OnDone, if set, is called on the sending goroutine once per delivery, sent or dropped, unless
	// the delivery ends before it has an object to send. Set it before Serve.
	OnDone func(Delivery)

	maxOpen int

	mu             sync.Mutex
	deliveries     map[*delivery]struct{}
	congestedUntil map[class]time.Time // end of the congestion of a class and all lower ones
}

// NewQueue returns a session's queue that allows maxOpen subgroups in flight, or DefaultMaxOpen if
// maxOpen is 0.
func NewQueue(maxOpen int) *Queue {
	return &Queue{
		maxOpen:        cmp.Or(maxOpen, DefaultMaxOpen),
		deliveries:     map[*delivery]struct{}{},
		congestedUntil: map[class]time.Time{},
	}
}

// Delivery reports one subgroup sent to, or dropped for, one subscription.
type Delivery struct {
	Track           *Track
	Group, Subgroup uint64
	Arrived         time.Time // first byte of the first object due
	Ended           time.Time // when the transport took the last byte or the delivery was dropped
	Bytes           int64     // sent, object headers included
	Dropped         string    // late, behind, blocked, reset or ended; "" if sent in full
}

// class is a scheduling class: subscriber priority, then publisher priority. Lower values go first
// and starve higher ones.
type class uint16

func (d *delivery) class() class {
	return class(d.v.sink.Priority())<<8 | class(d.sg.header.Priority)
}

// start sends a subgroup to a viewer. At the limit it drops the least important delivery: the
// oldest in the lowest class.
func (q *Queue) start(v *Viewer, sg *subgroup) {
	d := &delivery{v: v, sg: sg, started: time.Now(), dropped: make(chan struct{})}
	q.mu.Lock()
	victim := d
	if len(q.deliveries) >= q.maxOpen {
		for o := range q.deliveries {
			if o.lessImportant(victim) {
				victim = o
			}
		}
		victim.v.t.dropped.Add(1)
		delete(q.deliveries, victim)
	}
	if victim != d || len(q.deliveries) < q.maxOpen {
		q.deliveries[d] = struct{}{}
		v.crew.Go(func() {
			v.send(d)
			q.remove(d)
		})
	}
	q.mu.Unlock()
	if victim != d {
		victim.drop()
	}
	q.dropStale(nil)
}

func (q *Queue) remove(d *delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.deliveries, d)
}

func (d *delivery) lessImportant(o *delivery) bool {
	if a, b := d.class(), o.class(); a != b {
		return a > b
	}
	return d.started.Before(o.started)
}

// deliveriesTo returns the deliveries in flight to one viewer of the session.
func (q *Queue) deliveriesTo(v *Viewer) []*delivery {
	q.mu.Lock()
	defer q.mu.Unlock()
	var list []*delivery
	for d := range q.deliveries {
		if d.v == v {
			list = append(list, d)
		}
	}
	return list
}

// line identifies one subscription's deliveries of one class, which are sent in group order.
type line struct {
	v *Viewer
	class
}

// dropStale drops deliveries that a newer group of the same track makes pointless on a congested
// path. late, if not nil, just missed its deadline.
//
// Groups of a track are sent in order, so once one is late the following ones will be too, and
// bytes spent on them are wasted. Behind a late group only the newest survives. Behind a group
// still being sent, the others survive until one has waited maxWait. This applies to the class that
// was late and to all lower ones. A delivery waits only while objects that have arrived are unsent.
func (q *Queue) dropStale(late *delivery) {
	now := time.Now()
	var dropped []*delivery
	q.mu.Lock()
	if late != nil {
		delete(q.deliveries, late)
		q.congestedUntil[late.class()] = now.Add(congestedFor)
	}
	if first, ok := q.congested(now); ok {
		lines := map[line][]*delivery{}
		for d := range q.deliveries {
			if c := d.class(); c >= first {
				l := line{d.v, c}
				lines[l] = append(lines[l], d)
			}
		}
		for l, deliveries := range lines {
			missed := late != nil && late.v == l.v && late.class() == l.class
			skipped := stale(deliveries, missed, now)
			if len(skipped) > 0 {
				q.congestedUntil[l.class] = now.Add(congestedFor)
			}
			dropped = append(dropped, skipped...)
		}
		for _, d := range dropped {
			delete(q.deliveries, d)
		}
	}
	q.mu.Unlock()
	for _, d := range dropped {
		if d.drop() {
			d.v.t.dropped.Add(1)
		}
	}
}

// congested returns the highest congested class, if any. q.mu is held.
func (q *Queue) congested(now time.Time) (first class, ok bool) {
	first = math.MaxUint16
	for c, until := range q.congestedUntil {
		if now.After(until) {
			delete(q.congestedUntil, c)
			continue
		}
		first, ok = min(first, c), true
	}
	return first, ok
}

// stale returns the deliveries of a line to drop. missed reports whether one was just late.
func stale(deliveries []*delivery, missed bool, now time.Time) []*delivery {
	oldest, newest := uint64(math.MaxUint64), uint64(0)
	for _, d := range deliveries {
		oldest, newest = min(oldest, d.sg.header.Group), max(newest, d.sg.header.Group)
	}
	waiting := slices.DeleteFunc(deliveries, func(d *delivery) bool {
		return d.sg.header.Group == newest || d.sg.header.Group == oldest && !missed
	})
	if !missed && !slices.ContainsFunc(waiting, func(d *delivery) bool { return d.waited(now) >= maxWait }) {
		return nil
	}
	return waiting
}
