package moqt

import (
	"container/heap"
	"slices"
	"sync"
	"time"
)

// Bounds of the datagrams of a session that wait for the transport. A frame may be
// hundreds of datagrams at once.
const (
	maxDatagramBytes  = 4 << 20 // of all of them
	maxDatagramGroups = 1024    // that they are of
	datagramCost      = 64      // of each, besides its bytes
	// The path is a bottleneck for so long after a datagram missed its deadline, or was
	// dropped so as not to. A publication of which more waits then is not worth sending
	// in full once groups have waited for long: groups after them would wait as long.
	bottleneckFor    = 3 * time.Second
	fewDatagramBytes = 64 << 10
	datagramPatience = 100 * time.Millisecond
	maxRemembered    = 16 // groups of a publication that are remembered as begun, and as dropped
)

// datagramQueue holds the datagrams of a session that the transport has not taken yet.
// They leave by priority, then group after group as these began. At a bottleneck it drops
// groups whole: of a frame that misses a part the others are of no use.
type datagramQueue struct {
	mu    sync.Mutex
	order groupHeap
	lines map[datagramLineKey]*datagramLine
	bytes int
	begun uint64
	until time.Time     // the path is a bottleneck
	ready chan struct{} // signalled when there is something to send
}

// datagramLine is what waits of one publication at one priority: the first descriptions of
// its frames, say, or their second ones.
type datagramLine struct {
	groups []*datagramGroup // as they began
	bytes  int
}

type datagramLineKey struct {
	p        *Publication
	priority uint16 // the subscriber's, then the publisher's; lower first
}

// lineGroup is a group of a publication's line, whether or not something of it waits.
type lineGroup struct {
	group    uint64
	priority uint16
}

// remember adds a group to those that a publication remembers.
func remember(list *[]lineGroup, g *datagramGroup) {
	if len(*list) == maxRemembered {
		*list = slices.Delete(*list, 0, 1)
	}
	*list = append(*list, lineGroup{g.group, g.priority})
}

// datagramGroup is what waits of one group in a line.
type datagramGroup struct {
	datagramLineKey
	group   uint64
	number  uint64 // of groups, as they began
	at      int    // in the heap
	began   time.Time
	started bool // some of it was sent
	list    []outgoingDatagram
	bytes   int
}

type outgoingDatagram struct {
	b        []byte
	deadline time.Time // zero = none
}

func newDatagramQueue() *datagramQueue {
	return &datagramQueue{lines: map[datagramLineKey]*datagramLine{}, ready: make(chan struct{}, 1)}
}

// push queues a datagram of a group. It returns how many were dropped for it, and
// whether it was queued.
func (q *datagramQueue) push(p *Publication, group uint64, priority uint16, d outgoingDatagram, now time.Time) (dropped int, queued bool) {
	cost := len(d.b) + datagramCost
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.Contains(p.skipped, lineGroup{group, priority}) {
		return 0, false
	}
	key := datagramLineKey{p, priority}
	l := q.lines[key]
	var g *datagramGroup
	if l != nil {
		if i := slices.IndexFunc(l.groups, func(g *datagramGroup) bool { return g.group == group }); i >= 0 {
			g = l.groups[i]
		}
	}
	for q.bytes+cost > maxDatagramBytes || g == nil && len(q.order) >= maxDatagramGroups {
		victim := q.leastImportant()
		if victim == nil || victim == g || victim.priority < priority {
			return dropped, false
		}
		dropped += q.skip(victim)
	}
	if l = q.lines[key]; l == nil {
		l = &datagramLine{}
		q.lines[key] = l
	}
	if g == nil {
		q.begun++
		g = &datagramGroup{datagramLineKey: key, group: group, number: q.begun, began: now, started: slices.Contains(p.begun, lineGroup{group, priority})}
		l.groups = append(l.groups, g)
		heap.Push(&q.order, g)
	}
	g.list = append(g.list, d)
	g.bytes += cost
	l.bytes += cost
	q.bytes += cost
	dropped += q.keepUp(l, now)
	signal(q.ready)
	return dropped, true
}

// late says that a datagram of a group has missed its deadline. Where more waits than a bottleneck
// carries in time, the group is dropped, for it misses a part. It returns how many datagrams that is.
func (q *datagramQueue) late(g *datagramGroup, now time.Time) (dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.until = now.Add(bottleneckFor)
	if l := q.lines[g.datagramLineKey]; l != nil && l.bytes > fewDatagramBytes && slices.Contains(l.groups, g) {
		dropped = q.skip(g)
	}
	return dropped
}

// gaveUp tells whether a group of a track was dropped and others of it wait: a FETCH of what the
// group misses would take their place.
func (q *datagramQueue) gaveUp(track TrackName, group uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, l := range q.lines {
		if l.bytes > fewDatagramBytes && key.p.track.Equal(track) &&
			slices.ContainsFunc(key.p.skipped, func(s lineGroup) bool { return s.group == group }) {
			return true
		}
	}
	return false
}

// keepUp drops what of a line waits at a bottleneck behind the group being sent, but for
// the newest, once it has waited for long. q.mu is held.
func (q *datagramQueue) keepUp(l *datagramLine, now time.Time) (dropped int) {
	if l.bytes <= fewDatagramBytes || !now.Before(q.until) {
		return 0
	}
	newest := l.groups[len(l.groups)-1]
	waits := func(g *datagramGroup) bool { return g != newest && !g.started }
	if !slices.ContainsFunc(l.groups, func(g *datagramGroup) bool { return waits(g) && now.Sub(g.began) >= datagramPatience }) {
		return 0
	}
	for _, g := range slices.Clone(l.groups) {
		if waits(g) {
			dropped += q.skip(g)
		}
	}
	q.until = now.Add(bottleneckFor)
	return dropped
}

// leastImportant is the group that is dropped first: of the last priority, the one that
// began first. q.mu is held.
func (q *datagramQueue) leastImportant() (least *datagramGroup) {
	for _, g := range q.order {
		if least == nil || g.priority > least.priority || g.priority == least.priority && g.number < least.number {
			least = g
		}
	}
	return least
}

// skip drops a group, and what else will come of it. It returns how many datagrams that
// is now. q.mu is held.
func (q *datagramQueue) skip(g *datagramGroup) int {
	remember(&g.p.skipped, g)
	return q.drop(g)
}

// drop removes a group and returns how many datagrams that is. q.mu is held.
func (q *datagramQueue) drop(g *datagramGroup) int {
	l := q.lines[g.datagramLineKey]
	l.groups = slices.DeleteFunc(l.groups, func(o *datagramGroup) bool { return o == g })
	l.bytes -= g.bytes
	if len(l.groups) == 0 {
		delete(q.lines, g.datagramLineKey)
	}
	q.bytes -= g.bytes
	heap.Remove(&q.order, g.at)
	return len(g.list)
}

// pop returns the datagram to send next and its group, nil when none waits.
func (q *datagramQueue) pop() (d outgoingDatagram, g *datagramGroup) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.order) == 0 {
		return d, nil
	}
	g = q.order[0]
	d = g.list[0]
	if !g.started {
		g.started = true
		remember(&g.p.begun, g)
	}
	if len(g.list) == 1 {
		q.drop(g)
		return d, g
	}
	g.list[0] = outgoingDatagram{}
	g.list = g.list[1:]
	cost := len(d.b) + datagramCost
	g.bytes -= cost
	q.lines[g.datagramLineKey].bytes -= cost
	q.bytes -= cost
	return d, g
}

// waits tells whether there is something to send.
func (q *datagramQueue) waits() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.order) > 0
}

// forget drops what waits of a publication that has ended.
func (q *datagramQueue) forget(p *Publication) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, l := range q.lines {
		if key.p == p {
			for _, g := range slices.Clone(l.groups) {
				q.drop(g)
			}
		}
	}
}

// groupHeap orders groups by priority and then as they began.
type groupHeap []*datagramGroup

func (h groupHeap) Len() int { return len(h) }

func (h groupHeap) Less(i, j int) bool {
	if h[i].priority != h[j].priority {
		return h[i].priority < h[j].priority
	}
	return h[i].number < h[j].number
}

func (h groupHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements heap.Interface.
func (h *groupHeap) Push(x any) {
	g := x.(*datagramGroup)
	g.at = len(*h)
	*h = append(*h, g)
}

// Pop implements heap.Interface.
func (h *groupHeap) Pop() any {
	n := len(*h) - 1
	g := (*h)[n]
	(*h)[n] = nil
	*h = (*h)[:n]
	return g
}
