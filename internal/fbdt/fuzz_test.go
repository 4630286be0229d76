package fbdt

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// FuzzScheduler drives both schedulers with arbitrary events and checks that no byte is lost.
func FuzzScheduler(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		data := make([]byte, 300)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
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
			for n := range flying { // the scheduler forgets the path's segments
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
	// Finish over a single good path.
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

// check verifies that a book is consistent.
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
