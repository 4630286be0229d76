package moqt

import (
	"container/heap"
	"slices"
	"sync"
	"time"
)

// Limits of a session's datagram queue. One frame may be hundreds of datagrams.
const (
	maxDatagramBytes  = 4 << 20 // in total
	maxDatagramGroups = 1024    // in total
	datagramCost      = 64      // overhead per datagram
	// The path counts as congested for congestedFor after a datagram is late or dropped as stale.
	// Meanwhile, a publication with more than minDropBytes queued drops groups once one has waited
	// maxDatagramWait, because the groups behind it would wait as long.
	congestedFor    = 3 * time.Second
	minDropBytes    = 64 << 10
	maxDatagramWait = 100 * time.Millisecond
	maxGroupHistory = 16 // started and dropped groups remembered per publication
)

// datagramQueue holds a session's datagrams until the transport takes them. It sends by priority,
// then by group in arrival order. On a congested path it drops whole groups, because a frame that
// lacks a datagram is useless.
type datagramQueue struct {
	mu             sync.Mutex
	order          groupHeap
	tracks         map[trackQueueKey]*trackQueue
	bytes          int
	nextSeq        uint64
	congestedUntil time.Time     // until then the path is congested
	ready          chan struct{} // signalled when a datagram is queued
}

// trackQueue holds the queued datagrams of one publication at one priority, for example of one
// description of its frames.
type trackQueue struct {
	groups []*datagramGroup // in arrival order
	bytes  int
}

type trackQueueKey struct {
	p        *Publication
	priority uint16 // subscriber priority << 8 | publisher priority; lower goes first
}

// groupPriority identifies a group of a publication at one priority.
type groupPriority struct {
	group    uint64
	priority uint16
}

// remember appends a group to a publication's bounded history.
func remember(list *[]groupPriority, g *datagramGroup) {
	if len(*list) == maxGroupHistory {
		*list = slices.Delete(*list, 0, 1)
	}
	*list = append(*list, groupPriority{g.group, g.priority})
}

// datagramGroup holds the queued datagrams of one group at one priority.
type datagramGroup struct {
	trackQueueKey
	group   uint64
	seq     uint64 // arrival order
	index   int    // in the heap
	began   time.Time
	started bool // one of its datagrams was sent
	list    []outgoingDatagram
	bytes   int
}

type outgoingDatagram struct {
	b        []byte
	deadline time.Time // zero means none
}

func newDatagramQueue() *datagramQueue {
	return &datagramQueue{tracks: map[trackQueueKey]*trackQueue{}, ready: make(chan struct{}, 1)}
}

// push queues a datagram of a group. It returns how many others were dropped, to make room or as
// stale, and whether this one was queued.
func (q *datagramQueue) push(
	p *Publication,
	group uint64,
	priority uint16,
	d outgoingDatagram,
	now time.Time,
) (dropped int, queued bool) {
	cost := len(d.b) + datagramCost
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.Contains(p.droppedGroups, groupPriority{group, priority}) {
		return 0, false
	}
	key := trackQueueKey{p, priority}
	l := q.tracks[key]
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
		dropped += q.dropGroup(victim)
	}
	if l = q.tracks[key]; l == nil {
		l = &trackQueue{}
		q.tracks[key] = l
	}
	if g == nil {
		q.nextSeq++
		g = &datagramGroup{
			trackQueueKey: key,
			group:         group,
			seq:           q.nextSeq,
			began:         now,
			started:       slices.Contains(p.startedGroups, groupPriority{group, priority}),
		}
		l.groups = append(l.groups, g)
		heap.Push(&q.order, g)
	}
	g.list = append(g.list, d)
	g.bytes += cost
	l.bytes += cost
	q.bytes += cost
	dropped += q.dropStale(l, now)
	signal(q.ready)
	return dropped, true
}

// late marks the path as congested because a datagram of g missed its deadline. If more than
// minDropBytes of the publication are queued at g's priority, it drops the rest of g, which is now
// incomplete. It returns the number of datagrams dropped.
func (q *datagramQueue) late(g *datagramGroup, now time.Time) (dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.congestedUntil = now.Add(congestedFor)
	if l := q.tracks[g.trackQueueKey]; l != nil && l.bytes > minDropBytes && slices.Contains(l.groups, g) {
		dropped = q.dropGroup(g)
	}
	return dropped
}

// dropped reports whether a group of a track was dropped and more than minDropBytes of the track are
// queued. A FETCH of the missing objects would then compete with them.
func (q *datagramQueue) dropped(track TrackName, group uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, l := range q.tracks {
		if l.bytes > minDropBytes && key.p.track.Equal(track) &&
			slices.ContainsFunc(key.p.droppedGroups, func(s groupPriority) bool { return s.group == group }) {
			return true
		}
	}
	return false
}

// dropStale drops the groups of l that wait on a congested path, except the one being sent and the
// newest, once one has waited maxDatagramWait. q.mu is held.
func (q *datagramQueue) dropStale(l *trackQueue, now time.Time) (dropped int) {
	if l.bytes <= minDropBytes || !now.Before(q.congestedUntil) {
		return 0
	}
	newest := l.groups[len(l.groups)-1]
	waits := func(g *datagramGroup) bool { return g != newest && !g.started }
	if !slices.ContainsFunc(
		l.groups,
		func(g *datagramGroup) bool { return waits(g) && now.Sub(g.began) >= maxDatagramWait },
	) {
		return 0
	}
	for _, g := range slices.Clone(l.groups) {
		if waits(g) {
			dropped += q.dropGroup(g)
		}
	}
	q.congestedUntil = now.Add(congestedFor)
	return dropped
}

// leastImportant returns the group to drop first: the oldest of the lowest priority. q.mu is held.
func (q *datagramQueue) leastImportant() (least *datagramGroup) {
	for _, g := range q.order {
		if least == nil || g.priority > least.priority || g.priority == least.priority && g.seq < least.seq {
			least = g
		}
	}
	return least
}

// dropGroup drops a group, including its later datagrams. It returns the number dropped now. q.mu
// is held.
func (q *datagramQueue) dropGroup(g *datagramGroup) int {
	remember(&g.p.droppedGroups, g)
	return q.remove(g)
}

// remove removes a group and returns its number of datagrams. q.mu is held.
func (q *datagramQueue) remove(g *datagramGroup) int {
	l := q.tracks[g.trackQueueKey]
	l.groups = slices.DeleteFunc(l.groups, func(o *datagramGroup) bool { return o == g })
	l.bytes -= g.bytes
	if len(l.groups) == 0 {
		delete(q.tracks, g.trackQueueKey)
	}
	q.bytes -= g.bytes
	heap.Remove(&q.order, g.index)
	return len(g.list)
}

// pop returns the next datagram to send and its group, or nil if the queue is empty.
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
		remember(&g.p.startedGroups, g)
	}
	if len(g.list) == 1 {
		q.remove(g)
		return d, g
	}
	g.list[0] = outgoingDatagram{}
	g.list = g.list[1:]
	cost := len(d.b) + datagramCost
	g.bytes -= cost
	q.tracks[g.trackQueueKey].bytes -= cost
	q.bytes -= cost
	return d, g
}

// pending reports whether datagrams are queued.
func (q *datagramQueue) pending() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.order) > 0
}

// forget drops the queued datagrams of an ended publication.
func (q *datagramQueue) forget(p *Publication) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, l := range q.tracks {
		if key.p == p {
			for _, g := range slices.Clone(l.groups) {
				q.remove(g)
			}
		}
	}
}

// groupHeap orders groups by priority, then by arrival.
type groupHeap []*datagramGroup

func (h groupHeap) Len() int { return len(h) }

func (h groupHeap) Less(i, j int) bool {
	if h[i].priority != h[j].priority {
		return h[i].priority < h[j].priority
	}
	return h[i].seq < h[j].seq
}

func (h groupHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *groupHeap) Push(x any) {
	g := x.(*datagramGroup)
	g.index = len(*h)
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
