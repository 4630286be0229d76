package origin

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"
)

// DefaultMaxOpen is how many subgroups are in delivery to one session at a time,
// unless its queue is given another limit.
const DefaultMaxOpen = 256

// congestedFor is how long a path is taken for a bottleneck after a subgroup was
// late, or was skipped so as not to be. What exceeds the path's rate by a thirtieth
// adds up to maxWait meanwhile.
const congestedFor = 3 * time.Second

// maxWait is how long subgroups may wait at a bottleneck: a hitch is made up for.
const maxWait = 100 * time.Millisecond

// Queue is what is in delivery to one session, of all its tracks. The transport sends
// by priority and group order (moqt.Publication); the queue decides what is no longer
// worth sending when the path is a bottleneck or the peer does not read.
type Queue struct {
	// Sent, if set, is called when a subgroup has been sent to a subscription or given up,
	// from the goroutine that sent it. It is not changed once the queue serves.
	OnDone func(Delivery)

	maxOpen int

	mu             sync.Mutex
	deliveries     map[*delivery]struct{}
	congestedUntil map[class]time.Time // until when the path is a bottleneck for a class and those after it
}

// NewQueue returns the queue of a session with at most maxOpen subgroups in delivery;
// 0 means DefaultMaxOpen.
func NewQueue(maxOpen int) *Queue {
	return &Queue{maxOpen: cmp.Or(maxOpen, DefaultMaxOpen), deliveries: map[*delivery]struct{}{}, congestedUntil: map[class]time.Time{}}
}

// Sent is a subgroup that was sent to one subscription, or why it was not.
type Delivery struct {
	Track           *Track
	Group, Subgroup uint64
	Arrived         time.Time // the first byte of the first object that was to be sent
	Ended           time.Time // when the transport had taken the last byte, or it was given up
	Bytes           int64     // that were sent, headers of objects included
	Dropped         string    // why it was not sent whole: late, behind, blocked, reset or ended; "" = it was
}

// class orders subgroups by the subscriber's priority and then the publisher's, lower
// first. While one class has something to send, those after it wait.
type class uint16

func (d *delivery) class() class {
	return class(d.v.sink.Priority())<<8 | class(d.sg.header.Priority)
}

// launch sends a subgroup to a viewer. When too many are in delivery to its session, the
// one that matters least is given up: of the last class, the one that began first.
func (q *Queue) start(v *viewer, sg *subgroup) {
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

// deliveriesTo lists what is in delivery to one viewer of the session.
func (q *Queue) deliveriesTo(v *viewer) []*delivery {
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

// line is what one subscription has in delivery of one class: its groups follow one
// another.
type line struct {
	v *viewer
	class
}

// keepUp gives up what waits for its turn at a bottleneck while newer groups of its
// track do. late, if not nil, has just missed its deadline and is no longer in delivery.
//
// Groups of a track go one after the other. At a bottleneck they would all be late
// once one is: the time of each is nearly over when its turn comes, and what was sent
// of it was sent in vain. Therefore only the newest group of a track is left behind a
// late one. Behind one that is being sent, only the newest is left once others have
// waited for long, in the class that was late and in those that get what it leaves.
// A group with objects still to come waits only while some that arrived are unsent.
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

// bottleneck returns the first class for which the path is one. q.mu is held.
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

// skippable lists what of a line is to be given up; missed says that a group of it was
// late just now.
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
