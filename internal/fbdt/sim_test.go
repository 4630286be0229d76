package fbdt

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

const (
	tick = 250 * time.Microsecond
	mbit = 125e3 // bytes/s
	ms   = time.Millisecond
)

// link models one direction of a path: a bottleneck, a delay, and the transport's estimates.
type link struct {
	rate  func(now time.Duration) float64       // bytes/s
	delay time.Duration                         // one way
	extra func(*rand.Rand) time.Duration        // of one segment, such as a retransmission
	late  func(now time.Duration) time.Duration // of all segments at a time
	lag   time.Duration                         // time constant of the rate estimate; 0 = 100 ms
	eager bool                                  // fills its congestion window, not just a queue of two segments
	wrong float64                               // factor of the reported rate, until the path is full; 0 = 1
	deaf  bool                                  // the transport does not notice that it is down
	gone  bool                                  // closed

	queue    []*packet
	credit   float64
	estimate float64
	inFlight int64
	heard    time.Duration
	down     bool
	asleep   bool // has no use: waits for an event, or until wake
	wake     time.Duration
	idle     time.Duration // time without anything to send
}

type packet struct {
	Segment
	path int
	left float64
	at   time.Duration // arrival of it, or of its acknowledgement
	gone bool          // reset
}

func steady(rate float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return rate }
}

type sim struct {
	t         testing.TB
	s         Scheduler
	links     []*link
	order     []int // the turns of the links
	now       time.Duration
	arrivals  []*packet
	acks      []*packet
	sent      map[uint64]*packet
	got       map[uint64]*intervals
	rand      *rand.Rand
	batch     time.Duration // acknowledgements are handled at multiples of it, as on a busy machine; 0 = at once
	offered   map[uint64]int64
	ended     map[uint64]bool
	delivered int64 // bytes, once
	copied    int64 // bytes transmitted again
}

func newSim(t testing.TB, s Scheduler, links ...*link) *sim {
	m := &sim{
		t: t, s: s, links: links, sent: map[uint64]*packet{}, got: map[uint64]*intervals{},
		offered: map[uint64]int64{}, ended: map[uint64]bool{}, rand: rand.New(rand.NewPCG(1, 2)),
	}
	for i := range links {
		m.order = append(m.order, i)
		m.update(i)
	}
	slices.SortStableFunc(m.order, func(a, b int) int { return cmp.Compare(links[a].delay, links[b].delay) })
	return m
}

func (m *sim) update(i int) {
	l := m.links[i]
	m.s.SetPath(i, Estimate{
		Rate: l.estimate * cmp.Or(l.wrong, 1), RTT: 2 * l.delay, Var: l.delay / 20,
		Guess: l.wrong > 1, Limited: l.wrong > 0, Down: l.down,
	})
}

// event makes every link ask for a segment again.
func (m *sim) event() {
	for _, l := range m.links {
		l.asleep = false
	}
}

func (m *sim) add(stream uint64, p Priority, n int64) {
	m.event()
	m.offered[stream] += n
	m.s.Add(stream, p, n)
}

// prefix returns the number of bytes of a stream that the receiver can read.
func (m *sim) prefix(stream uint64) int64 {
	if g := m.got[stream]; g != nil {
		return g.prefix()
	}
	return 0
}

func (m *sim) reset(stale []uint64) {
	for _, n := range stale {
		p := m.sent[n]
		if p == nil {
			m.t.Fatalf("stale segment %d is not under way", n)
		}
		l := m.links[p.path]
		p.gone = true
		l.inFlight -= p.Length
		delete(m.sent, n)
	}
}

// step advances by a tick.
func (m *sim) step() {
	m.now += tick
	m.arrivals = due(m.arrivals, m.now, func(p *packet) {
		if p.gone && p.at > m.now {
			return
		}
		g := m.got[p.Stream]
		if g == nil {
			g = &intervals{}
			m.got[p.Stream] = g
		}
		m.delivered += g.add(p.Offset, p.Offset+p.Length)
		p.at = m.now + m.back()
		if m.batch > 0 {
			p.at = (p.at + m.batch - 1).Truncate(m.batch)
		}
		m.acks = append(m.acks, p)
	})
	m.acks = due(m.acks, m.now, func(p *packet) {
		m.event()
		l := m.links[p.path]
		l.heard = m.now
		if m.sent[p.Number] != nil {
			l.inFlight -= p.Length
			delete(m.sent, p.Number)
		}
		m.reset(m.s.Acked(p.Number, m.now))
	})
	for i, l := range m.links {
		if l.gone {
			continue
		}
		m.transmit(i, l)
		if m.now%(10*ms) == 0 {
			m.observe(i, l)
		}
	}
	for _, i := range m.order {
		m.ask(i)
	}
}

// back returns the delay of an acknowledgement, which the receiver sends over all paths.
func (m *sim) back() time.Duration {
	least := time.Minute
	for _, l := range m.links {
		if !l.gone && l.rate(m.now) >= 1000 {
			least = min(least, l.delay)
		}
	}
	return least
}

// observe updates the transport's estimates of a link.
func (m *sim) observe(i int, l *link) {
	rate := l.rate(m.now)
	lag := cmp.Or(l.lag, 100*ms)
	if l.estimate == 0 {
		if l.heard > 0 {
			l.estimate = rate
		}
	} else if l.inFlight > 0 {
		l.estimate += (rate - l.estimate) * min(1, float64(10*ms)/float64(lag))
	}
	silence := max(100*ms, 4*l.delay+40*ms)
	switch {
	case l.inFlight == 0:
		l.heard = max(l.heard, m.now-2*l.delay)
	case rate < 1000 && !l.down && !l.deaf && m.now-l.heard > silence:
		l.down = true
		m.event()
	case rate >= 1000 && l.down:
		l.down, l.heard = false, m.now
		m.event()
	}
	m.update(i)
}

func (m *sim) transmit(i int, l *link) {
	l.queue = slices.DeleteFunc(l.queue, func(p *packet) bool { return p.gone })
	if len(l.queue) == 0 {
		l.credit = 0
		l.idle += tick
		return
	}
	l.credit += l.rate(m.now) * tick.Seconds()
	for len(l.queue) > 0 && l.credit > 0 {
		p := l.queue[0]
		n := min(l.credit, p.left)
		if p.left == float64(p.Length) && p.Copy {
			m.copied += p.Length
		}
		p.left -= n
		l.credit -= n
		if p.left > 0 {
			break
		}
		l.queue = l.queue[1:]
		if !l.eager {
			m.s.Sent(p.Number, m.now)
		}
		m.event()
		p.at = m.now + l.delay
		if l.extra != nil {
			p.at += l.extra(m.rand)
		}
		if l.late != nil {
			p.at += l.late(m.now)
		}
		m.arrivals = append(m.arrivals, p)
		m.ask(i)
	}
}

// ask fills a link: up to two queued segments, or up to the congestion window if it is eager.
func (m *sim) ask(i int) {
	l := m.links[i]
	for !l.gone && (l.eager || len(l.queue) < 2) {
		window := int64(l.estimate*2*l.delay.Seconds()*2) + 32<<10
		if l.extra != nil {
			window *= 4 // in QUIC, only the lost packet would stay in flight, not its whole segment
		}
		if l.inFlight >= window || l.asleep && (l.wake == 0 || m.now < l.wake) || !m.refill(i) {
			return
		}
	}
}

func (m *sim) refill(i int) bool {
	l := m.links[i]
	seg, ok := m.s.Next(i, m.now)
	if !ok {
		l.asleep = true
		l.wake, _ = m.s.Wake(i, m.now)
		return false
	}
	if seg.Length <= 0 || seg.Offset < 0 || seg.Offset+seg.Length > m.offered[seg.Stream] {
		m.t.Fatalf("segment %+v of %d bytes offered", seg, m.offered[seg.Stream])
	}
	if l.inFlight == 0 {
		l.heard = m.now
	}
	p := &packet{Segment: seg, path: i, left: float64(seg.Length)}
	l.inFlight += seg.Length
	l.queue = append(l.queue, p)
	m.sent[seg.Number] = p
	if l.eager {
		m.s.Sent(seg.Number, m.now)
	}
	return true
}

// until runs until a condition holds; it fails the test after the limit.
func (m *sim) until(limit time.Duration, done func() bool) {
	m.t.Helper()
	for end := m.now + limit; !done(); m.step() {
		if m.now > end {
			m.t.Fatalf("not done after %v: %d bytes delivered, %d segments under way", limit, m.delivered, len(m.sent))
		}
	}
}

// due calls f for the packets whose time has come, in order, and returns the others.
func due(list []*packet, now time.Duration, f func(*packet)) []*packet {
	var ready []*packet
	rest := list[:0]
	for _, p := range list {
		if p.at <= now {
			ready = append(ready, p)
		} else if !p.gone || p.at > 0 {
			rest = append(rest, p)
		}
	}
	slices.SortStableFunc(ready, func(a, b *packet) int { return cmp.Compare(a.at, b.at) })
	for _, p := range ready {
		f(p)
	}
	return rest
}

// intervals is a set of byte ranges.
type intervals struct{ list [][2]int64 }

// add inserts a range and returns how many bytes of it are new.
func (v *intervals) add(from, to int64) int64 {
	fresh := to - from
	i := 0
	for i < len(v.list) && v.list[i][1] < from {
		i++
	}
	j := i
	for j < len(v.list) && v.list[j][0] <= to {
		fresh -= max(0, min(to, v.list[j][1])-max(from, v.list[j][0]))
		j++
	}
	if j > i {
		a, b := v.list[i][0], v.list[j-1][1]
		v.list = slices.Replace(v.list, i, j, [2]int64{min(a, from), max(b, to)})
	} else {
		v.list = slices.Insert(v.list, i, [2]int64{from, to})
	}
	return fresh
}

func (v *intervals) prefix() int64 {
	if len(v.list) > 0 && v.list[0][0] == 0 {
		return v.list[0][1]
	}
	return 0
}

// minRTT sends in order over the path with the least RTT that can send; the simulator asks paths in that order.
type minRTT struct{ book }

func (s *minRTT) Next(id int, _ time.Duration) (Segment, bool) {
	t := s.path(id)
	if t == nil || t.Down || s.ready.bytes() == 0 || s.out >= s.Unacked {
		return Segment{}, false
	}
	p, _ := s.ready.at(0)
	return s.take(t, p, p.start, min(p.end, p.start+s.size(t.Rate))).segment(), true
}

func (s *minRTT) Wake(int, time.Duration) (time.Duration, bool) { return 0, false }

func newMinRTT() Scheduler { return &minRTT{newBook(Options{})} }
