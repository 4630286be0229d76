package origin

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"
)

// DefaultMaxOpen is how many subgroups are in flight to one session at a time,
// unless its queue is given another limit.
const DefaultMaxOpen = 256

// bottleneckFor is how long a path is taken for a bottleneck after a subgroup was
// late, or was skipped so as not to be. What exceeds the path's rate by a thirtieth
// adds up to patience meanwhile.
const bottleneckFor = 3 * time.Second

// patience is how long subgroups may wait at a bottleneck: a hitch is made up for.
const patience = 100 * time.Millisecond

// Queue is what is in flight to one session, of all its tracks. The transport sends
// by priority and group order (moqt.Publication); the queue decides what is no longer
// worth sending when the path is a bottleneck or the peer does not read.
type Queue struct {
	// Sent, if set, is called when a subgroup has been sent to a subscription or given up,
	// from the goroutine that sent it. It is not changed once the queue serves.
	Sent func(Sent)

	maxOpen int

	mu      sync.Mutex
	flights map[*flight]struct{}
	late    map[class]time.Time // until when the path is a bottleneck for a class and those after it
}

// NewQueue returns the queue of a session with at most maxOpen subgroups in flight;
// 0 means DefaultMaxOpen.
func NewQueue(maxOpen int) *Queue {
	return &Queue{maxOpen: cmp.Or(maxOpen, DefaultMaxOpen), flights: map[*flight]struct{}{}, late: map[class]time.Time{}}
}

// Sent is a subgroup that was sent to one subscription, or why it was not.
type Sent struct {
	Track           *Track
	Group, Subgroup uint64
	Arrived         time.Time // the first byte of the first object that was to be sent
	Ended           time.Time // when the transport had taken the last byte, or it was given up
	Bytes           int64     // that were sent, headers of objects included
	Failed          string    // why it was not sent whole: late, behind, blocked, reset or ended; "" = it was
}

// class orders subgroups by the subscriber's priority and then the publisher's, lower
// first. While one class has something to send, those after it wait.
type class uint16

func (f *flight) class() class {
	return class(f.v.sink.Priority())<<8 | class(f.sg.header.Priority)
}

// launch sends a subgroup to a viewer. When too many are in flight to its session, the
// one that matters least is given up: of the last class, the one that began first.
func (q *Queue) launch(v *viewer, sg *subgroup) {
	f := &flight{v: v, sg: sg, began: time.Now(), behind: make(chan struct{})}
	q.mu.Lock()
	victim := f
	if len(q.flights) >= q.maxOpen {
		for o := range q.flights {
			if o.lessImportant(victim) {
				victim = o
			}
		}
		victim.v.t.behind.Add(1)
		delete(q.flights, victim)
	}
	if victim != f || len(q.flights) < q.maxOpen {
		q.flights[f] = struct{}{}
		v.crew.Go(func() {
			v.fly(f)
			q.remove(f)
		})
	}
	q.mu.Unlock()
	if victim != f {
		victim.giveUp()
	}
	q.keepUp(nil)
}

func (q *Queue) remove(f *flight) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.flights, f)
}

func (f *flight) lessImportant(o *flight) bool {
	if a, b := f.class(), o.class(); a != b {
		return a > b
	}
	return f.began.Before(o.began)
}

// inFlight lists what is in flight to one viewer of the session.
func (q *Queue) inFlight(v *viewer) []*flight {
	q.mu.Lock()
	defer q.mu.Unlock()
	var list []*flight
	for f := range q.flights {
		if f.v == v {
			list = append(list, f)
		}
	}
	return list
}

// line is what one subscription has in flight of one class: its groups follow one
// another.
type line struct {
	v *viewer
	class
}

// keepUp gives up what waits for its turn at a bottleneck while newer groups of its
// track do. late, if not nil, has just missed its deadline and is no longer in flight.
//
// Groups of a track go one after the other. At a bottleneck they would all be late
// once one is: the time of each is nearly over when its turn comes, and what was sent
// of it was sent in vain. Therefore only the newest group of a track is left behind a
// late one. Behind one that is being sent, only the newest is left once others have
// waited for long, in the class that was late and in those that get what it leaves.
// A group with objects still to come waits only while some that arrived are unsent.
func (q *Queue) keepUp(late *flight) {
	now := time.Now()
	var behind []*flight
	q.mu.Lock()
	if late != nil {
		delete(q.flights, late)
		q.late[late.class()] = now.Add(bottleneckFor)
	}
	if first, ok := q.bottleneck(now); ok {
		lines := map[line][]*flight{}
		for f := range q.flights {
			if c := f.class(); c >= first {
				l := line{f.v, c}
				lines[l] = append(lines[l], f)
			}
		}
		for l, flights := range lines {
			missed := late != nil && late.v == l.v && late.class() == l.class
			skipped := skippable(flights, missed, now)
			if len(skipped) > 0 {
				q.late[l.class] = now.Add(bottleneckFor)
			}
			behind = append(behind, skipped...)
		}
		for _, f := range behind {
			delete(q.flights, f)
		}
	}
	q.mu.Unlock()
	for _, f := range behind {
		if f.giveUp() {
			f.v.t.behind.Add(1)
		}
	}
}

// bottleneck returns the first class for which the path is one. q.mu is held.
func (q *Queue) bottleneck(now time.Time) (first class, ok bool) {
	first = math.MaxUint16
	for c, until := range q.late {
		if now.After(until) {
			delete(q.late, c)
			continue
		}
		first, ok = min(first, c), true
	}
	return first, ok
}

// skippable lists what of a line is to be given up; missed says that a group of it was
// late just now.
func skippable(flights []*flight, missed bool, now time.Time) []*flight {
	oldest, newest := uint64(math.MaxUint64), uint64(0)
	for _, f := range flights {
		oldest, newest = min(oldest, f.sg.header.Group), max(newest, f.sg.header.Group)
	}
	waiting := slices.DeleteFunc(flights, func(f *flight) bool {
		return f.sg.header.Group == newest || f.sg.header.Group == oldest && !missed
	})
	if !missed && !slices.ContainsFunc(waiting, func(f *flight) bool { return f.waits(now) >= patience }) {
		return nil
	}
	return waiting
}
