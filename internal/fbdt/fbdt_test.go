package fbdt

import (
	"slices"
	"testing"
	"time"
)

// next returns the first byte of a path's next segment, in KiB; -1 if there is none.
func next(s Scheduler, path int, now time.Duration) int64 {
	seg, ok := s.Next(path, now)
	if !ok {
		return -1
	}
	return seg.Offset >> 10
}

// Rates and times are powers of two, which makes predictions exact: a KiB takes 1/1024 s.
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
	// When the far path's first KiB arrives, the near path has delivered 57 KiB. The pointer starts at the end of a
	// window of 8 KiB behind those. Each further KiB arrives one unit later, so the near path gets one KiB
	// further. The two meet at 61, and the next window ends 8 KiB of ready bytes behind that.
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
		t.Errorf("after the meeting, the near path continues at %d KiB, want 65", got)
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
	// The first segment is due after 17 units: 1 for sending and 16 for the RTT. The tolerance is a quarter
	// of the RTT plus 1 ms.
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
	// The segment must be late by more than 1.1 times the 9 units of a copy, plus 1 ms.
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
		t.Errorf("segment %+v, want a copy of the last arrival", c)
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
	// The next window begins before the copy is acknowledged.
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
	// In proportion to their rates, the first two paths share the first 6 KiB.
	for i, step := range []struct {
		path int
		want int64
	}{{0, 0}, {1, 5}, {2, 6}, {2, 7}, {2, 4}, {0, 1}, {1, 3}, {0, 2}, {0, -1}} {
		if got := next(s, step.path, 0); got != step.want {
			t.Errorf("step %d: path %d sends KiB %d, want %d", i, step.path, got, step.want)
		}
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
