package schedulers

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"holocast/internal/fbdt"
)

// Two paths with the same rate, 10 MB/s, and round-trip times of 1:5. Their windows are 200 kB and 1 MB.
var (
	fast = fbdt.Estimate{Rate: 10e6, RTT: 20 * time.Millisecond}
	slow = fbdt.Estimate{Rate: 10e6, RTT: 100 * time.Millisecond}
)

// asking returns a scheduler with n bytes on one stream and the paths 0 (fast) and 1 (slow).
func asking(name string, n int64) *inOrder {
	s := New(name, fbdt.Options{}).(*inOrder)
	s.SetPath(0, fast)
	s.SetPath(1, slow)
	s.Add(1, fbdt.Priority{}, n)
	return s
}

// fill lets a path take bytes until it has n in flight.
func fill(t *testing.T, s *inOrder, path int, n int64) {
	t.Helper()
	for s.paths[path].underway < n {
		if _, ok := s.Next(path, 0); !ok {
			t.Fatalf("path %d gets nothing with %d bytes under way", path, s.paths[path].underway)
		}
	}
}

func TestOrderAmongPathsWithRoom(t *testing.T) {
	s := asking("minrtt", 1<<20)
	s.paths[0].waits = true // has room
	if _, ok := s.Next(1, 0); ok {
		t.Error("minrtt: the slow path goes first")
	}
	if at, ok := s.Wake(1, 5*time.Millisecond); !ok || at != 6*time.Millisecond {
		t.Errorf("the refused path asks again at %v, %v", at, ok)
	}
	if g, ok := s.Next(0, 0); !ok || g.Offset != 0 || g.Length != 40_000 {
		t.Errorf("fast path: %+v, %v", g, ok)
	}
	if g, ok := s.Next(1, 0); !ok || g.Offset != 40_000 {
		t.Errorf("slow path, the fast one being busy: %+v, %v", g, ok)
	}

	s = asking("roundrobin", 1<<20)
	s.SetPath(2, slow)
	for i := range 3 {
		s.paths[i].waits = true
	}
	var turns []int
	for range 6 {
		for i := range 3 {
			if _, ok := s.Next(i, 0); ok {
				s.paths[i].waits = true // at once
				turns = append(turns, i)
				break
			}
		}
	}
	if want := []int{1, 2, 0, 1, 2, 0}; !slices.Equal(turns, want) {
		t.Errorf("round robin: %v, want %v", turns, want)
	}
	s.paths[0].waits = false // without room
	if _, ok := s.Next(1, 0); !ok {
		t.Error("round robin waits for a busy path")
	}
}

// The fast path is busy. ECF leaves the slow one idle if the fast one alone would finish earlier: k bytes would take
// (1 + k/200 kB) · 20 ms over the fast path, against 100 ms over the slow one.
func TestECF(t *testing.T) {
	for _, c := range []struct {
		ready   int64
		waiting bool
		sends   bool
	}{
		{700_000, false, false}, // 90 ms < 100 ms
		{800_000, false, true},  // 100 ms
		{800_000, true, false},  // 100 ms < 125 ms: hysteresis
		{1_100_000, true, true}, // 130 ms
		{300_000, false, true},  // over the slow path 30 ms < two fast round trips
		{500_000, false, false},
	} {
		s := asking("ecf", c.ready)
		s.rule.(*ecf).waiting = c.waiting
		if _, ok := s.Next(1, 0); ok != c.sends {
			t.Errorf("%d bytes ready, waiting %v: the slow path sends %v, want %v", c.ready, c.waiting, ok, c.sends)
		}
	}
}

// During one round trip of the slow path, which equals 5 of the fast path, the fast path sends 5 · (200 kB + 2
// packets) = 1,012,000 bytes. The send window is 2 · 20 MB/s · 100 ms = 4 MB.
func TestBLEST(t *testing.T) {
	for _, c := range []struct {
		underway int64
		sends    bool
	}{{0, true}, {2_960_000, true}, {3_000_000, false}} {
		s := asking("blest", 8<<20)
		s.paths[1].underway = c.underway
		if _, ok := s.Next(1, 0); ok != c.sends {
			t.Errorf("%d bytes under way: the slow path sends %v, want %v", c.underway, ok, c.sends)
		}
	}
}

func TestRatio(t *testing.T) {
	s := New("musher", fbdt.Options{}).(*inOrder)
	s.SetPath(0, fbdt.Estimate{Rate: 30e6, RTT: 10 * time.Millisecond})
	s.SetPath(1, fbdt.Estimate{Rate: 10e6, RTT: 10 * time.Millisecond})
	s.Add(1, fbdt.Priority{}, 16<<20)
	sent := map[int]int64{}
	for range 100 { // both ask as often as they like
		for i := range 2 {
			if g, ok := s.Next(i, 0); ok {
				sent[i] += g.Length
			}
		}
	}
	if got := float64(sent[0]) / float64(sent[1]); got < 2.7 || got > 3.3 {
		t.Errorf("bytes are in proportion %.2f, want 3", got)
	}
	r := s.rule.(*ratio)
	// The throughput rises, rises, falls: the share goes up, up, down.
	var shares []int
	for k, rate := range []int64{10e6, 12e6, 8e6} {
		r.delivered = rate / 2
		s.Next(0, time.Duration(k+1)*ratioInterval)
		shares = append(shares, int(100*r.share[0]+0.5))
	}
	if want := []int{80, 85, 80}; !slices.Equal(shares, want) {
		t.Errorf("shares %v %%, want %v", shares, want)
	}
	s.SetPath(1, fbdt.Estimate{Down: true})
	if _, ok := s.Next(0, 2*time.Second); !ok {
		t.Error("the last path waits for one that is down")
	}
}

// If a path goes down, is removed or loses a segment, the affected bytes are sent once over the other path.
func TestRecovery(t *testing.T) {
	s := asking("minrtt", 80_000)
	fill(t, s, 1, 80_000)
	down := slow
	down.Down = true
	s.SetPath(1, down)
	copied, ok := s.Next(0, 0)
	if !ok || !copied.Copy || copied.Offset != 0 || copied.Length != 40_000 {
		t.Fatalf("copy %+v, %v", copied, ok)
	}
	if _, ok := s.Next(1, 0); ok {
		t.Error("a path that is down sends")
	}
	if stale := s.Acked(copied.Number, 0); !slices.Equal(stale, []uint64{0}) {
		t.Errorf("stale %v, want the first segment", stale)
	}
	if stale := s.Acked(0, 0); stale != nil {
		t.Errorf("a stale segment's acknowledgement makes %v stale", stale)
	}
	s.SetPath(1, slow)
	if stale := s.Acked(1, 0); len(stale) != 0 || len(s.again) != 0 {
		t.Errorf("stale %v, still to send again %v", stale, s.again)
	}
	if _, ok := s.Next(0, 0); ok {
		t.Error("sends more than everything")
	}

	s = asking("minrtt", 80_000)
	fill(t, s, 0, 80_000)
	s.Lost(1)
	if g, ok := s.Next(1, 0); !ok || g.Copy || g.Offset != 40_000 {
		t.Errorf("lost segment: %+v, %v", g, ok)
	}
	s.RemovePath(0)
	if g, ok := s.Next(1, 0); !ok || g.Copy || g.Offset != 0 {
		t.Errorf("segment of the removed path: %+v, %v", g, ok)
	}
	if stale := s.Truncate(1, 40_000); !slices.Equal(stale, []uint64{2}) {
		t.Errorf("truncated: stale %v", stale)
	}
}

// Each piece is sent over both paths, unless it arrives over one before the other could send it.
func TestDuplicate(t *testing.T) {
	s := New(Duplicate, fbdt.Options{})
	s.SetPath(0, fast)
	s.SetPath(1, slow)
	s.Add(1, fbdt.Priority{}, 120_000)
	var got []fbdt.Segment
	next := func(path int) {
		t.Helper()
		g, ok := s.Next(path, 0)
		if !ok {
			t.Fatalf("path %d gets nothing after %+v", path, got)
		}
		got = append(got, g)
	}
	next(0)
	next(0)
	next(1)
	if g := got[2]; !g.Copy || g.Offset != 0 || got[0].Copy || got[1].Copy {
		t.Errorf("%+v", got)
	}
	if stale := s.Acked(0, 0); !slices.Equal(stale, []uint64{2}) {
		t.Errorf("stale %v, want the copy", stale)
	}
	s.Acked(1, 0)
	next(1) // the second piece has arrived
	next(0)
	if g := got[4]; got[3].Offset != 80_000 || got[3].Copy || !g.Copy || g.Offset != 80_000 {
		t.Errorf("%+v", got)
	}
	if g, ok := s.Next(0, 0); ok {
		t.Errorf("sends %+v more than twice", g)
	}
}

func TestPriorities(t *testing.T) {
	s := New("minrtt", fbdt.Options{}).(*inOrder)
	s.SetPath(0, fast)
	for id := range uint64(4) {
		s.Add(id, fbdt.Priority{Urgency: 3, Order: 9 - id}, 1000)
	}
	s.Reprioritize(0, fbdt.Priority{Urgency: 1})
	s.Truncate(2, 0)
	var order []uint64
	for {
		g, ok := s.Next(0, 0)
		if !ok {
			break
		}
		order = append(order, g.Stream)
	}
	if want := []uint64{0, 3, 1}; !slices.Equal(order, want) {
		t.Errorf("streams in order %v, want %v", order, want)
	}
	if s.ready != 0 || s.unacked != 3000 {
		t.Errorf("%d bytes ready, %d unacknowledged", s.ready, s.unacked)
	}
}

// Over any paths, every scheduler delivers all bytes and ends empty.
func TestDeliversEverything(t *testing.T) {
	for _, name := range append(Names(), Duplicate) {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(50) {
				deliver(t, name, rand.New(rand.NewPCG(seed, 1)))
			}
		})
	}
	if New("unknown", fbdt.Options{}) != nil {
		t.Error("an unknown scheduler exists")
	}
}

func deliver(t *testing.T, name string, r *rand.Rand) {
	t.Helper()
	scheduler := New(name, fbdt.Options{MinSegment: 500, MaxSegment: 4000, Unacked: 50_000})
	s, ok := scheduler.(*inOrder)
	if !ok {
		s = scheduler.(*duplicate).inOrder
	}
	estimate := func() fbdt.Estimate {
		return fbdt.Estimate{
			Rate: float64(r.IntN(20)) * 1e6, RTT: time.Duration(r.IntN(100)) * time.Millisecond,
			Down: r.IntN(4) == 0,
		}
	}
	const streams, size = 5, 30_000
	for id := range uint64(streams) {
		s.Add(id, fbdt.Priority{Urgency: int8(r.IntN(3))}, size)
	}
	got := map[uint64][]bool{} // by stream and byte
	under := map[uint64]fbdt.Segment{}
	gone := func(numbers []uint64) {
		for _, n := range numbers {
			if _, ok := under[n]; !ok {
				t.Fatalf("segment %d is stale but not under way", n)
			}
			delete(under, n)
		}
	}
	segmentOf := map[uint64]int{}
	now := time.Duration(0)
	for step := 0; len(s.streams) > 0; step++ {
		if step > 100_000 {
			t.Fatalf("not done: %d bytes ready, %d unacknowledged", s.ready, s.unacked)
		}
		now += time.Millisecond
		index := r.IntN(3)
		switch k := r.IntN(12); {
		case k == 0:
			s.SetPath(index, estimate())
		case k == 1 && step < 5000:
			s.RemovePath(index)
			for n, p := range segmentOf {
				if p == index {
					delete(under, n)
				}
			}
		case k < 7:
			if g, ok := scheduler.Next(index, now); ok {
				under[g.Number], segmentOf[g.Number] = g, index
			}
		default:
			for n, g := range under { // any
				delete(under, n)
				if r.IntN(5) == 0 {
					s.Lost(n)
					break
				}
				gone(s.Acked(n, now))
				if got[g.Stream] == nil {
					got[g.Stream] = make([]bool, size)
				}
				for i := g.Offset; i < g.Offset+g.Length; i++ {
					if got[g.Stream][i] {
						t.Fatalf("stream %d: byte %d is acknowledged twice", g.Stream, i)
					}
					got[g.Stream][i] = true
				}
				break
			}
		}
		for id := range uint64(streams) {
			if step == 100 {
				s.Truncate(id, size)
			}
		}
	}
	for id := range uint64(streams) {
		if n := slices.Index(got[id], false); n >= 0 {
			t.Fatalf("stream %d: byte %d is missing", id, n)
		}
	}
	if s.unacked != 0 || s.ready != 0 || len(s.sent) != 0 || len(s.again) != 0 {
		t.Fatalf("left: %d unacknowledged, %d ready, %v, %v", s.unacked, s.ready, s.sent, s.again)
	}
}
