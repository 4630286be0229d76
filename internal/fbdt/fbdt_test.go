package fbdt

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// check verifies that all records of a book agree.
func check(t testing.TB, b *book) {
	t.Helper()
	var out int64
	flights := 0
	for _, p := range b.paths {
		var under, unsent int64
		for f := p.head; f != nil; f = f.next {
			flights++
			under += f.length
			if !f.sent {
				unsent += f.length
			}
			if b.flights[f.number] != f || f.path != p || len(f.pieces) == 0 {
				t.Fatalf("flight %d of path %d is inconsistent", f.number, p.id)
			}
			if f.next != nil && f.next.number <= f.number {
				t.Fatal("flights out of order")
			}
			for _, q := range f.pieces {
				if !slices.Contains(q.flights, f) {
					t.Fatalf("flight %d: piece does not list it", f.number)
				}
			}
		}
		if under != p.underway || unsent != p.unsent {
			t.Fatalf("path %d: %d bytes under way, %d unsent; counted %d and %d", p.id, p.underway, p.unsent, under, unsent)
		}
	}
	if flights != len(b.flights) {
		t.Fatalf("%d flights, paths have %d", len(b.flights), flights)
	}
	up := slices.ContainsFunc(b.paths, func(p *path) bool { return !p.Down })
	for _, s := range b.streams {
		var all []*piece
		for p := s.pieces; p != nil; p = p.next {
			all = append(all, p)
			if p.in == nil {
				out += p.length()
			}
			live := slices.ContainsFunc(p.flights, func(f *flight) bool { return !f.path.Down })
			if live && p.in != nil || up && !live && p.in == nil || len(p.flights) == 0 && p.in == nil {
				t.Fatalf("stream %d: bytes %d to %d are ready: %v, on a live path: %v", s.id, p.start, p.end, p.in != nil, live)
			}
		}
		slices.SortFunc(all, func(a, b *piece) int { return cmp.Compare(a.start, b.start) })
		end := int64(0)
		for _, p := range all {
			if p.start < end || p.length() <= 0 || p.end > s.end {
				t.Fatalf("stream %d: piece %d to %d after %d, end %d", s.id, p.start, p.end, end, s.end)
			}
			end = p.end
		}
	}
	if out != b.out {
		t.Fatalf("%d bytes under way, counted %d", b.out, out)
	}
	var last *piece
	var walk func(n *piece) int64
	walk = func(n *piece) int64 {
		if n == nil {
			return 0
		}
		sum := walk(n.left) + n.length()
		if last != nil && last.place().compare(n.place()) >= 0 {
			t.Fatal("tree out of order")
		}
		last = n
		if sum += walk(n.right); sum != n.sum {
			t.Fatalf("subtree has %d bytes, not %d", sum, n.sum)
		}
		return sum
	}
	walk(b.ready.root)
}

func bookOf(s Scheduler) *book {
	switch s := s.(type) {
	case *ours:
		return &s.book
	case *paper:
		return &s.book
	case *minRTT:
		return &s.book
	}
	panic("unknown scheduler")
}

// next returns the first byte of a path's next segment, in KiB; -1 if there is none.
func next(s Scheduler, path int, now time.Duration) int64 {
	seg, ok := s.Next(path, now)
	if !ok {
		return -1
	}
	return seg.Offset >> 10
}

// Rates and times are powers of two, so that predictions are exact: a KiB takes 1/1024 s.
const (
	rate = 1 << 20
	unit = time.Second / 1024
)

func kib() Options { return Options{Window: 8 << 10, MinSegment: 1 << 10, MaxSegment: 1 << 10} }

// near and far deliver a KiB after 9 and 65 units.
var (
	near = Estimate{Rate: rate, RTT: 16 * time.Second / 1024}
	far  = Estimate{Rate: rate, RTT: 128 * time.Second / 1024}
)

func TestPlacement(t *testing.T) {
	s := New(kib())
	s.SetPath(0, near)
	s.SetPath(1, far)
	s.Add(1, Priority{}, 1<<20)
	// When the far path's first KiB arrives, the near one delivers KiB 57. A window of 8 KiB follows. Each further
	// KiB arrives later by one. They meet at 61, and the next window ends 8 KiB of ready bytes behind that.
	for i, want := range []int64{64, 63, 62, 61, 72, 71} {
		if got := next(s, 1, 0); got != want {
			t.Errorf("far path's segment %d begins at %d KiB, want %d", i, got, want)
		}
	}
	for want := range int64(61) {
		if got := next(s, 0, 0); got != want {
			t.Fatalf("near path's segment begins at %d KiB, want %d", got, want)
		}
		s.Sent(bookOf(s).numbers-1, 0)
	}
	if got := next(s, 0, 0); got != 65 {
		t.Errorf("after the meeting, the near path goes on at %d KiB, want 65", got)
	}
}

func TestUseless(t *testing.T) {
	s := New(kib())
	s.SetPath(0, near)
	s.SetPath(1, far)
	s.Add(1, Priority{}, 57<<10)
	if got := next(s, 1, 0); got != -1 {
		t.Errorf("the far path sends KiB %d, which the near one delivers sooner", got)
	}
	if _, ok := s.Wake(1, 0); ok {
		t.Error("nothing under way, but Wake expects a change")
	}
	s.Add(1, Priority{}, 1<<10)
	if got := next(s, 1, 0); got != 57 {
		t.Errorf("the far path's segment begins at %d KiB, want the last, 57", got)
	}
}

func TestEqualPathsAlternate(t *testing.T) {
	s := New(kib())
	s.SetPath(0, near)
	s.SetPath(1, near)
	s.Add(1, Priority{}, 1<<20)
	for i := range int64(20) {
		if got := next(s, int(i%2), time.Duration(i/2)*unit); got != i {
			t.Fatalf("segment begins at %d KiB, want %d", got, i)
		}
	}
}

func TestUrgentFirst(t *testing.T) {
	s := New(kib())
	s.SetPath(0, near)
	s.Add(1, Priority{Urgency: 3, Order: 5}, 2<<10)
	s.Add(2, Priority{Urgency: 3, Order: 4}, 1<<10)
	s.Add(3, Priority{Urgency: 1, Order: 9}, 1<<10)
	s.Add(4, Priority{Urgency: 3, Order: 4}, 1<<10)
	s.Reprioritize(1, Priority{Urgency: 3, Order: 4})
	for i, want := range []uint64{3, 1, 1, 2, 4} {
		seg, _ := s.Next(0, 0)
		if seg.Stream != want {
			t.Errorf("segment %d is of stream %d, want %d", i, seg.Stream, want)
		}
	}
}

func TestOverdueCopy(t *testing.T) {
	s := New(kib())
	s.SetPath(0, near)
	s.SetPath(1, near)
	s.Add(1, Priority{}, 2<<10)
	first, _ := s.Next(0, 0)
	second, _ := s.Next(1, 0)
	s.Acked(second.Number, 17*unit)
	// The first one is due at 17 units: 1 to send, 16 of RTT. Its tolerance is a quarter of the RTT and 1 ms.
	if _, ok := s.Next(1, 17*unit); ok {
		t.Error("a punctual segment is copied")
	}
	at, ok := s.Wake(1, 17*unit)
	if want := 21*unit + time.Millisecond; !ok || at < want || at > want+100 {
		t.Fatalf("Wake: %v, %v; want %v", at, ok, want)
	}
	var c Segment
	for ok = false; !ok; at, _ = s.Wake(1, at) {
		if c, ok = s.Next(1, at); at > time.Second {
			t.Fatal("no copy")
		}
	}
	// Lateness must exceed 1.1 times the copy's 9 units by 1 ms.
	if least := 27*unit + time.Millisecond; at < least || at > 2*least || !c.Copy || c.Offset != first.Offset {
		t.Errorf("copy %+v after %v", c, at)
	}
	if _, ok := s.Next(1, at); ok {
		t.Error("a second copy")
	}
	if stale := s.Acked(c.Number, at); !slices.Equal(stale, []uint64{first.Number}) {
		t.Errorf("stale: %v, want the original", stale)
	}
	if stale := s.Acked(first.Number, at); stale != nil || len(bookOf(s).flights) != 0 {
		t.Errorf("stale: %v, %d under way", stale, len(bookOf(s).flights))
	}
}

func TestLateCopy(t *testing.T) {
	s := New(kib())
	s.SetPath(0, far)
	s.Add(1, Priority{}, 3<<10)
	for range 3 {
		next(s, 0, 0)
	}
	s.SetPath(1, near)
	c, ok := s.Next(1, 0)
	if !ok || !c.Copy || c.Offset != 2<<10 {
		t.Errorf("segment %+v, want a copy of what arrives last", c)
	}
}

func TestDown(t *testing.T) {
	s := New(kib())
	down := near
	down.Down = true
	s.SetPath(0, near)
	s.SetPath(1, near)
	s.Add(1, Priority{}, 2<<10)
	next(s, 0, 0)
	lost, _ := s.Next(1, 0)

	s.SetPath(1, down)
	if _, ok := s.Next(1, 0); ok {
		t.Error("a path that is down gets a segment")
	}
	s.SetPath(1, near) // back before anybody took its bytes
	if got := next(s, 0, 0); got != -1 {
		t.Errorf("KiB %d is sent again although its path is back", got)
	}
	s.SetPath(1, down)
	c, ok := s.Next(0, 0)
	if !ok || !c.Copy || c.Offset != lost.Offset {
		t.Errorf("segment %+v, want the bytes of %+v", c, lost)
	}
	if stale := s.Acked(lost.Number, 0); !slices.Equal(stale, []uint64{c.Number}) {
		t.Errorf("stale: %v, want the copy", stale)
	}
	s.SetPath(0, down)
	s.SetPath(1, near)
	if got := next(s, 1, 0); got != 0 {
		t.Errorf("the path that is back sends KiB %d, want 0", got)
	}
	check(t, bookOf(s))
}

func TestUnknownRate(t *testing.T) {
	s := New(Options{Window: 8 << 10, MaxSegment: 64 << 10})
	s.SetPath(0, near)
	s.SetPath(1, Estimate{})
	s.Add(1, Priority{}, 40<<10)
	for i, want := range []int64{36, 32, -1} {
		if got := next(s, 1, 0); got != want {
			t.Errorf("exploring segment %d begins at %d KiB, want %d", i, got, want)
		}
	}
}

func TestUnacked(t *testing.T) {
	o := kib()
	o.Unacked = 3 << 10
	for _, s := range []Scheduler{New(o), NewPaper(o)} {
		s.SetPath(0, near)
		s.Add(1, Priority{}, 1<<20)
		var last Segment
		n := 0
		for seg, ok := s.Next(0, 0); ok && n < 100; seg, ok = s.Next(0, 0) {
			last = seg
			n++
		}
		if _, isOurs := s.(*ours); isOurs && n != 3 {
			t.Errorf("%d KiB under way, want 3", n)
		}
		s.Acked(last.Number, 0)
		if _, isOurs := s.(*ours); isOurs && next(s, 0, 0) != 3 {
			t.Error("no segment after an acknowledgement")
		}
	}
}

func TestTruncate(t *testing.T) {
	s := New(kib())
	s.SetPath(0, near)
	s.Add(1, Priority{}, 8<<10)
	for range 4 {
		next(s, 0, 0)
	}
	if stale := s.Truncate(1, 2<<10+512); !slices.Equal(stale, []uint64{3}) {
		t.Errorf("stale: %v, want the fourth segment", stale)
	}
	s.Add(1, Priority{}, 1<<10)
	if got := next(s, 0, 0); got != -1 {
		t.Errorf("KiB %d of an ended stream", got)
	}
	s.Lost(2)
	if seg, _ := s.Next(0, 0); seg.Offset != 2<<10 || seg.Length != 512 || seg.Copy {
		t.Errorf("segment %+v, want the 512 bytes before the end", seg)
	}
	for n := range uint64(5) {
		s.Acked(n, 0)
	}
	if b := bookOf(s); len(b.streams) != 0 || b.out != 0 {
		t.Errorf("%d streams, %d bytes left", len(b.streams), b.out)
	}
}

// TestPaperExample follows Figure 4: six packets over two paths, the second packet delayed on the first.
func TestPaperExample(t *testing.T) {
	o := kib()
	o.Window = 6 << 10
	s := NewPaper(o)
	s.SetPath(0, Estimate{Rate: rate, RTT: 20 * ms})
	s.SetPath(1, Estimate{Rate: rate, RTT: 50 * ms}) // less reliable: backward
	s.Add(1, Priority{}, 8<<10)
	for i, step := range []struct {
		path int
		want int64
	}{{0, 0}, {1, 5}, {0, 1}, {1, 4}, {1, 3}, {1, 2}} {
		if got := next(s, step.path, 0); got != step.want {
			t.Errorf("step %d: path %d sends packet %d, want %d", i, step.path, got, step.want)
		}
	}
	for path := range 2 { // the pointers have met
		if got := next(s, path, 0); got != -1 {
			t.Errorf("path %d sends packet %d of the next window", path, got)
		}
	}
	for _, n := range []uint64{0, 1, 3, 4, 5} { // all but the second packet
		s.Acked(n, 60*ms)
	}
	if got := next(s, 1, 60*ms); got != -1 {
		t.Errorf("packet %d without waiting for the other path", got)
	}
	if at, ok := s.Wake(1, 60*ms); !ok || at != 80*ms {
		t.Errorf("Wake: %v, %v; want one RTT of the other path", at, ok)
	}
	c, ok := s.Next(1, 80*ms)
	if !ok || !c.Copy || c.Offset != 1<<10 {
		t.Errorf("segment %+v, want the second packet again", c)
	}
	// The next window begins without waiting for that.
	if got := next(s, 1, 80*ms); got != 7 {
		t.Errorf("path 1 sends packet %d, want 7", got)
	}
	if got := next(s, 0, 80*ms); got != 6 {
		t.Errorf("path 0 sends packet %d, want 6", got)
	}
	if stale := s.Acked(2, 81*ms); !slices.Equal(stale, []uint64{c.Number}) {
		t.Errorf("stale: %v, want the copy", stale)
	}
}

func TestPaperThreePaths(t *testing.T) {
	o := kib()
	o.Window = 8 << 10
	s := NewPaper(o)
	s.SetPath(0, Estimate{Rate: 2 * rate, RTT: 10 * ms})
	s.SetPath(1, Estimate{Rate: rate, RTT: 20 * ms})
	s.SetPath(2, Estimate{Rate: rate, RTT: 30 * ms})
	s.Add(1, Priority{}, 8<<10)
	// By rates, the first two paths share the first 6 KiB.
	for i, step := range []struct {
		path int
		want int64
	}{{0, 0}, {1, 5}, {2, 6}, {2, 7}, {2, 4}, {0, 1}, {1, 3}, {0, 2}, {0, -1}} {
		if got := next(s, step.path, 0); got != step.want {
			t.Errorf("step %d: path %d sends KiB %d, want %d", i, step.path, got, step.want)
		}
	}
}

// TestAnyPaths checks that every byte arrives whatever the paths do.
func TestAnyPaths(t *testing.T) {
	for seed := range uint64(40) {
		for name, s := range map[string]Scheduler{"ours": New(Options{}), "paper": NewPaper(Options{Window: 100e3})} {
			r := rand.New(rand.NewPCG(seed, 3))
			var links []*link
			for range 1 + r.IntN(4) {
				links = append(links, randomLink(r))
			}
			m := newSim(t, s, links...)
			m.rand = r
			limits := map[uint64]int64{}
			for m.now < 8*time.Second {
				m.step()
				if r.IntN(200) == 0 {
					m.disturb(limits)
				}
				if m.now%(100*ms) == 0 {
					check(t, bookOf(s))
				}
			}
			good := &link{rate: steady(50 * mbit), delay: 10 * ms}
			m.links = append(m.links, good)
			m.order = append(m.order, len(m.links)-1)
			m.update(len(m.links) - 1)
			for i, l := range m.links[:len(m.links)-1] {
				if l.rate(m.now) < 1000 { // a transport would give these up
					m.remove(i)
				}
			}
			m.event()
			m.until(120*time.Second, func() bool {
				for id, limit := range limits {
					if m.prefix(id) < limit {
						return false
					}
				}
				return true
			})
			if t.Failed() {
				t.Fatalf("seed %d, %s", seed, name)
			}
		}
	}
}

func randomLink(r *rand.Rand) *link {
	l := &link{delay: time.Duration(1+r.IntN(100)) * ms, eager: r.IntN(2) == 0, deaf: r.IntN(3) == 0}
	high, low := (1+r.Float64()*99)*mbit, (0.1+r.Float64())*mbit
	from := time.Duration(r.Int64N(int64(6 * time.Second)))
	switch r.IntN(5) {
	case 0:
		l.rate = steady(high)
	case 1:
		l.rate = alternate(high, low, r.Uint64())
	case 2:
		l.rate = alternate(high, 0, r.Uint64())
	case 3:
		l.rate = steady(1)
	case 4: // dies
		l.rate = func(now time.Duration) float64 {
			if now < from {
				return high
			}
			return 0
		}
	}
	if r.IntN(2) == 0 {
		l.extra = func(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(100 * ms))) }
	}
	return l
}

// disturb does something that an application or a transport may do.
func (m *sim) disturb(limits map[uint64]int64) {
	r := m.rand
	id := uint64(r.IntN(12))
	p := Priority{Urgency: int8(r.IntN(3)), Order: uint64(r.IntN(3))}
	switch r.IntN(8) {
	case 0:
		m.s.Reprioritize(id, p)
	case 1:
		if limit, ok := limits[id]; ok && r.IntN(4) == 0 {
			limits[id] = r.Int64N(limit + 1)
			m.reset(m.s.Truncate(id, limits[id]))
			m.ended[id] = true
		}
	case 2:
		for n, packet := range m.sent { // the peer refuses a segment, and its path gives it up
			m.reset([]uint64{n})
			m.s.Lost(packet.Number)
			break
		}
	case 3:
		m.s.Acked(bookOf(m.s).numbers+uint64(r.IntN(3)), m.now)
	default:
		if !m.ended[id] {
			n := 1 + r.Int64N(200e3)
			m.add(id, p, n)
			limits[id] += n
		}
	}
}

// remove closes a path.
func (m *sim) remove(i int) {
	for n, p := range m.sent {
		if p.path == i {
			m.reset([]uint64{n})
		}
	}
	m.s.RemovePath(i)
	m.links[i].gone = true
}

// bulk returns the goodput as a share of the paths' rates, the share of bytes sent again, and the most bytes that
// waited for earlier ones at the receiver.
func bulk(t testing.TB, s Scheduler, links ...*link) (ratio, waste float64, reorder int64) {
	m := newSim(t, s, links...)
	m.add(1, Priority{}, 1<<40)
	const warm = 2 * time.Second
	var capacity float64
	var delivered, copied int64
	for m.now < warm+6*time.Second {
		m.step()
		if m.now == warm {
			delivered, copied = m.delivered, m.copied
			for _, l := range links {
				l.idle = 0
			}
		}
		if m.now > warm {
			for _, l := range links {
				capacity += l.rate(m.now) * tick.Seconds()
			}
		}
		reorder = max(reorder, m.delivered-m.prefix(1))
	}
	delivered, copied = m.delivered-delivered, m.copied-copied
	return float64(delivered) / capacity, float64(copied) / float64(delivered), reorder
}

func TestBulk(t *testing.T) {
	for _, c := range []struct {
		name  string
		least float64 // share of the sum of rates
		links []*link
	}{
		{"static", 0.98, []*link{{rate: steady(100 * mbit), delay: 10 * ms}, {rate: steady(40 * mbit), delay: 15 * ms}}},
		{"equal", 0.98, []*link{{rate: steady(50 * mbit), delay: 10 * ms}, {rate: steady(50 * mbit), delay: 10 * ms}}},
		{"lossy", 0.98, []*link{
			{rate: steady(100 * mbit), delay: 10 * ms, extra: loss}, {rate: steady(40 * mbit), delay: 15 * ms},
		}},
		{"delayed", 0.98, []*link{{rate: steady(100 * mbit), delay: 510 * ms}, {rate: steady(40 * mbit), delay: 15 * ms}}},
		{"mobile", 0.95, []*link{
			{rate: alternate(100*mbit, 10*mbit, 1), delay: 10 * ms}, {rate: steady(40 * mbit), delay: 15 * ms},
		}},
		{"three", 0.95, []*link{
			{rate: alternate(100*mbit, 10*mbit, 1), delay: 5 * ms}, {rate: steady(40 * mbit), delay: 15 * ms},
			{rate: alternate(60*mbit, 10*mbit, 9), delay: 40 * ms},
		}},
	} {
		ratio, waste, reorder := bulk(t, New(Options{}), c.links...)
		t.Logf("%s: %.3f of the sum, %.3f sent twice, %d kB reordered", c.name, ratio, waste, reorder/1000)
		if ratio < c.least || waste > 0.02 {
			t.Errorf("%s: %.3f of the sum of rates, want %.2f; %.3f sent twice", c.name, ratio, c.least, waste)
		}
		for i, l := range c.links {
			if l.idle > 10*ms {
				t.Errorf("%s: path %d was idle for %v", c.name, i, l.idle)
			}
		}
		ratio, waste, reorder = bulk(t, NewPaper(Options{}), fresh(c.links)...)
		t.Logf("%s as printed: %.3f of the sum, %.3f sent twice, %d kB reordered", c.name, ratio, waste, reorder/1000)
	}
}

// fresh returns unused copies of links.
func fresh(links []*link) (l []*link) {
	for _, old := range links {
		l = append(l, &link{rate: old.rate, delay: old.delay, extra: old.extra, eager: old.eager})
	}
	return l
}

// loss delays a segment of 20 packets as loss of 5 % does: by a retransmission, or two.
func loss(r *rand.Rand) (d time.Duration) {
	for range 20 {
		if r.IntN(20) == 0 {
			d = max(d, 25*ms)
			if r.IntN(20) == 0 {
				d = 60 * ms
			}
		}
	}
	return d
}

// alternate switches between two rates every one to three seconds.
func alternate(a, b float64, seed uint64) func(time.Duration) float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	var ends []time.Duration
	for at := time.Duration(0); at < 200*time.Second; {
		at += time.Second + time.Duration(r.Int64N(int64(2*time.Second)))
		ends = append(ends, at)
	}
	return func(now time.Duration) float64 {
		if i, _ := slices.BinarySearch(ends, now); i%2 == 0 {
			return a
		}
		return b
	}
}

// paced offers windows at an interval, each a stream. It returns their delivery times after the first second, sorted,
// and the share of bytes sent again.
func paced(t testing.TB, s Scheduler, n int64, every, total time.Duration, links ...*link) ([]time.Duration, float64) {
	m := newSim(t, s, links...)
	windows := 20 + int(total/every)
	begin := make([]time.Duration, windows)
	took := make([]time.Duration, windows)
	next, open := 0, 0
	m.until(total+120*time.Second, func() bool {
		for next < windows && m.now >= time.Duration(next)*every {
			begin[next] = m.now
			m.add(uint64(next), Priority{Order: uint64(next)}, n)
			m.s.Truncate(uint64(next), n)
			next++
		}
		for i := open; i < next; i++ {
			if took[i] == 0 && m.prefix(uint64(i)) == n {
				took[i] = m.now - begin[i]
			}
			if i == open && took[i] > 0 {
				open++
			}
		}
		return open == windows
	})
	took = took[int(time.Second/every):]
	slices.Sort(took)
	return took, float64(m.copied) / float64(m.delivered)
}

// TestNoSlowerThanOnePath checks that a window takes at most one segment longer than over the best path alone.
func TestNoSlowerThanOnePath(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 60 {
		var links []*link
		eager := r.IntN(2) == 0
		for range 2 + r.IntN(2) {
			l := &link{rate: steady((1 + r.Float64()*200) * mbit), delay: time.Duration(1+r.IntN(80)) * ms, eager: eager}
			if r.IntN(3) == 0 {
				l.rate = steady((0.5 + r.Float64()*5) * mbit)
			}
			links = append(links, l)
		}
		best := 0.0
		for _, l := range links {
			best = max(best, l.rate(0))
		}
		n := int64(10e3 + r.Float64()*1e6)
		every := max(5*ms, time.Duration(float64(n)/best/(0.3+r.Float64()*0.6)*1e9))
		alone := time.Duration(1 << 62)
		for _, l := range links {
			if rate := l.rate(0); float64(n)/every.Seconds() < 0.95*rate {
				took, _ := paced(t, New(Options{}), n, every, 2*time.Second, fresh([]*link{l})...)
				segment := time.Duration(max(4096, rate*0.004) / rate * 1e9)
				alone = min(alone, took[len(took)-1]+segment)
			}
		}
		took, waste := paced(t, New(Options{}), n, every, 2*time.Second, links...)
		if longest := took[len(took)-1]; longest > alone || waste > 0.02 {
			for _, l := range links {
				t.Logf("path: %.1f Mbit/s, %v", l.rate(0)/mbit, l.delay)
			}
			t.Errorf("%d bytes every %v take up to %v, alone %v; %.3f sent twice", n, every, longest, alone, waste)
		}
	}
}

// TestAgainstMinRTT compares the 95th percentile of delivery times where minRTT commits bytes to a path too early.
func TestAgainstMinRTT(t *testing.T) {
	for _, c := range []struct {
		name  string
		n     int64
		every time.Duration
		gain  float64
		links []*link
	}{
		{"RTT", 100e3, 33 * ms, 2, []*link{{rate: steady(50 * mbit), delay: 10 * ms}, {rate: steady(50 * mbit), delay: 50 * ms}}},
		{"RTT and rate", 250e3, 33 * ms, 2, []*link{
			{rate: steady(100 * mbit), delay: 10 * ms}, {rate: steady(20 * mbit), delay: 50 * ms},
		}},
		{"RTT and rate, full congestion windows", 1e6, 100 * ms, 2, []*link{
			{rate: steady(100 * mbit), delay: 10 * ms, eager: true}, {rate: steady(20 * mbit), delay: 50 * ms, eager: true},
		}},
		{"rate", 1e6, 100 * ms, 0.98, []*link{ // here minRTT is close to the optimum
			{rate: steady(100 * mbit), delay: 20 * ms}, {rate: steady(20 * mbit), delay: 20 * ms},
		}},
	} {
		a, _ := paced(t, New(Options{}), c.n, c.every, 2*time.Second, c.links...)
		b, _ := paced(t, newMinRTT(), c.n, c.every, 2*time.Second, fresh(c.links)...)
		ours, theirs := a[len(a)*95/100], b[len(b)*95/100]
		t.Logf("%s: %v, minRTT %v", c.name, ours, theirs)
		if gain := float64(theirs) / float64(ours); gain < c.gain {
			t.Errorf("%s: %v, minRTT %v: %.2f times better, want %.2f", c.name, ours, theirs, gain, c.gain)
		}
	}
}

// TestCuts cuts one of two paths ten times in a minute.
func TestCuts(t *testing.T) {
	cut := func(now time.Duration) float64 {
		if now%(6*time.Second) > 4*time.Second {
			return 0
		}
		return 50 * mbit
	}
	took, waste := paced(t, New(Options{}), 250e3, 50*ms, time.Minute,
		&link{rate: cut, delay: 10 * ms}, &link{rate: steady(60 * mbit), delay: 20 * ms})
	// Down is noticed after 100 ms; the other path then needs about 40 ms for a window, and catches up.
	if longest := took[len(took)-1]; longest > 250*ms || waste > 0.05 {
		t.Errorf("windows take up to %v, %.3f sent twice", longest, waste)
	}
}

func TestNoAllocations(t *testing.T) {
	s, step := loaded(20, 200)
	if n := testing.AllocsPerRun(2000, step); n > 0.1 {
		t.Errorf("%.2f allocations per segment", n)
	}
	check(t, bookOf(s))
}

// loaded returns a scheduler with streams and segments under way, and a function that sends one more segment and
// acknowledges the oldest.
func loaded(streams, segments int) (Scheduler, func()) {
	s := New(Options{Unacked: 1 << 40, MaxSegment: 4 << 10})
	for i := range 3 {
		s.SetPath(i, Estimate{Rate: 1e9, RTT: time.Duration(1+i) * 100 * ms})
	}
	for i := range streams {
		s.Add(uint64(i), Priority{Order: uint64(i % 7)}, 1<<20)
	}
	var now time.Duration
	queue := make([]uint64, 0, segments) // a ring
	i, oldest := 0, 0
	step := func() {
		now += 4 * time.Microsecond
		i++
		if seg, ok := s.Next(i%3, now); ok {
			s.Sent(seg.Number, now)
			s.Add(uint64(i%streams), Priority{}, seg.Length)
			if len(queue) < segments {
				queue = append(queue, seg.Number)
				return
			}
			s.Acked(queue[oldest], now)
			queue[oldest] = seg.Number
			oldest = (oldest + 1) % segments
		}
	}
	for range 4 * segments {
		step()
	}
	return s, step
}

func BenchmarkOurs(b *testing.B) {
	_, step := loaded(1000, 10000)
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
}

// FuzzScheduler drives both schedulers with arbitrary events and checks that no byte is lost.
func FuzzScheduler(f *testing.F) {
	f.Add([]byte("\x00\x01\x10\x06\x00\x06\x01\x08\x00\x08\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 400 {
			return
		}
		for _, s := range []Scheduler{
			New(Options{MinSegment: 16, MaxSegment: 64, Window: 200, Unacked: 2000}),
			NewPaper(Options{MinSegment: 16, MaxSegment: 64, Window: 200, Unacked: 2000}),
		} {
			drive(t, s, data)
		}
	})
}

func drive(t *testing.T, s Scheduler, data []byte) {
	var now time.Duration
	flying := map[uint64]Segment{}
	var numbers []uint64
	got := map[uint64]*intervals{}
	added, limit := map[uint64]int64{}, map[uint64]int64{}
	drop := func(stale []uint64) {
		for _, n := range stale {
			if _, ok := flying[n]; !ok {
				t.Fatalf("segment %d is stale but not under way", n)
			}
			delete(flying, n)
		}
	}
	ack := func(n uint64) {
		if seg, ok := flying[n]; ok {
			delete(flying, n)
			if got[seg.Stream] == nil {
				got[seg.Stream] = &intervals{}
			}
			got[seg.Stream].add(seg.Offset, seg.Offset+seg.Length)
		}
		drop(s.Acked(n, now))
	}
	send := func(path int) bool {
		seg, ok := s.Next(path, now)
		if !ok {
			return false
		}
		end := seg.Offset + seg.Length
		if seg.Length <= 0 || seg.Offset < 0 || end > added[seg.Stream] {
			t.Fatalf("segment %+v of %d bytes", seg, added[seg.Stream])
		}
		if g := got[seg.Stream]; g != nil {
			if c := (&intervals{slices.Clone(g.list)}); c.add(seg.Offset, end) != seg.Length {
				t.Fatalf("segment %+v has acknowledged bytes", seg)
			}
		}
		flying[seg.Number] = seg
		numbers = append(numbers, seg.Number)
		return true
	}
	for len(data) >= 3 {
		op, a, v := data[0], int(data[1]), data[2]
		data = data[3:]
		stream := uint64(a % 5)
		p := Priority{int8(v % 3), uint64(v % 5)}
		now += time.Duration(v) * 100 * time.Microsecond
		var n uint64
		if len(numbers) > 0 {
			n = numbers[a%len(numbers)]
		}
		switch op % 11 {
		case 0, 1:
			if _, ended := limit[stream]; !ended {
				s.Add(stream, p, int64(v)*3)
				added[stream] += int64(v) * 3
			}
		case 2:
			s.Reprioritize(stream, p)
		case 3:
			at := int64(v) * 2
			if old, ended := limit[stream]; !ended || at < old {
				limit[stream] = at
			}
			drop(s.Truncate(stream, at))
		case 4:
			s.SetPath(a%4, Estimate{Rate: float64(v) * 1000, RTT: time.Duration(a) * ms, Down: v%4 == 0})
		case 5:
			s.RemovePath(a % 4)
			for n := range flying { // the scheduler has forgotten those of the path
				if bookOf(s).flights[n] == nil {
					delete(flying, n)
				}
			}
		case 6, 7:
			send(a % 4)
		case 8:
			ack(n)
		case 9:
			delete(flying, n)
			s.Lost(n)
		case 10:
			s.Sent(n, now)
			s.Wake(a%4, now)
		}
		check(t, bookOf(s))
	}
	// In the end one path is good.
	for i := range 4 {
		s.RemovePath(i)
	}
	clear(flying)
	s.SetPath(0, Estimate{Rate: 1e6, RTT: ms})
	for range 10000 {
		if now += ms; !send(0) && len(flying) == 0 {
			break
		}
		for n := range flying {
			ack(n)
		}
	}
	for stream, n := range added {
		want := n
		if end, ok := limit[stream]; ok {
			want = min(n, end)
		}
		prefix := int64(0)
		if g := got[stream]; g != nil {
			prefix = g.prefix()
		}
		if prefix < want {
			t.Fatalf("stream %d: %d of %d bytes arrived", stream, prefix, want)
		}
	}
	check(t, bookOf(s))
}
