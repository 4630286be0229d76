package fbdt

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestAnyPaths checks that every byte arrives over paths of any behaviour.
func TestAnyPaths(t *testing.T) {
	for seed := range uint64(20) {
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

// disturb performs a random action of an application or a transport.
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

// bulk returns the goodput as a share of the paths' rates, the share of bytes sent again, and the maximum number
// of bytes that waited at the receiver for earlier ones.
func bulk(t testing.TB, s Scheduler, links ...*link) (ratio, waste float64, reorder int64) {
	m := newSim(t, s, links...)
	const warm, most = 2 * time.Second, 8 << 20 // ready bytes, as a transport limits them
	var capacity float64
	var delivered, copied int64
	for m.now < warm+6*time.Second {
		m.add(1, Priority{}, most-bookOf(s).ready.bytes())
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
		name    string
		least   float64 // share of the sum of rates
		reorder int64   // bytes at most; 0 = any number
		links   []*link
	}{
		{"static", 0.98, 0, []*link{{rate: steady(100 * mbit), delay: 10 * ms}, {rate: steady(40 * mbit), delay: 15 * ms}}},
		{"equal", 0.98, 0, []*link{{rate: steady(50 * mbit), delay: 10 * ms}, {rate: steady(50 * mbit), delay: 10 * ms}}},
		{"lossy", 0.98, 0, []*link{
			{rate: steady(100 * mbit), delay: 10 * ms, extra: loss}, {rate: steady(40 * mbit), delay: 15 * ms},
		}},
		{"delayed", 0.98, 3e6, []*link{ // the other path carries 2.5 MB within the difference of delays
			{rate: steady(100 * mbit), delay: 510 * ms}, {rate: steady(40 * mbit), delay: 15 * ms},
		}},
		{"delayed, after lost packets", 0.98, 0, []*link{
			{rate: steady(100 * mbit), delay: 510 * ms, late: func(now time.Duration) time.Duration {
				if now < 1500*ms {
					return 2000 * ms
				}
				return 0
			}},
			{rate: steady(40 * mbit), delay: 15 * ms},
		}},
		{"mobile", 0.95, 0, []*link{
			{rate: alternate(100*mbit, 10*mbit, 1), delay: 10 * ms}, {rate: steady(40 * mbit), delay: 15 * ms},
		}},
		{"three", 0.95, 0, []*link{
			{rate: alternate(100*mbit, 10*mbit, 1), delay: 5 * ms},
			{rate: steady(40 * mbit), delay: 15 * ms},
			{rate: alternate(60*mbit, 10*mbit, 9), delay: 40 * ms},
		}},
	} {
		ratio, waste, reorder := bulk(t, New(Options{}), c.links...)
		t.Logf("%s: %.3f of the sum, %.3f sent twice, %d kB reordered", c.name, ratio, waste, reorder/1000)
		if ratio < c.least || waste > 0.02 {
			t.Errorf("%s: %.3f of the sum of rates, want %.2f; %.3f sent twice", c.name, ratio, c.least, waste)
		}
		if c.reorder > 0 && reorder > c.reorder {
			t.Errorf("%s: %d bytes wait for earlier ones, want at most %d", c.name, reorder, c.reorder)
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
		l = append(l, &link{
			rate: old.rate, delay: old.delay, extra: old.extra, late: old.late, wrong: old.wrong, eager: old.eager,
		})
	}
	return l
}

// loss returns the delay that 5 % packet loss adds to a segment of 20 packets: that of one
// retransmission, or of two.
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

// paced sends windows of n bytes at an interval, each as a stream. It returns the sorted delivery times, without
// those of the first second, and the share of bytes sent again beyond the initial allowance.
func paced(t testing.TB, s Scheduler, n int64, every, total time.Duration, links ...*link) ([]time.Duration, float64) {
	m := newSim(t, s, links...)
	windows := 20 + int(total/every)
	begin := make([]time.Duration, windows)
	took := make([]time.Duration, windows)
	next, open := 0, 0
	m.until(2*time.Duration(windows)*every+time.Minute, func() bool {
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
	return took, float64(max(0, m.copied-spareAtOnce/4)) / float64(m.delivered)
}

// TestNoSlowerThanOnePath checks that a window takes at most one segment longer than over the best path alone.
func TestNoSlowerThanOnePath(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 30 {
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

// TestUncertainRates checks that wrong rates do not delay windows if the transport reports them as uncertain.
func TestUncertainRates(t *testing.T) {
	alone, _ := paced(t, New(Options{}), 250e3, 50*ms, 2*time.Second, &link{rate: steady(120 * mbit), delay: 10 * ms})
	for _, wrong := range [][2]float64{{0.5, 1}, {0.4, 1}, {0.4, 0.4}, {2, 0.5}} {
		took, _ := paced(t, New(Options{}), 250e3, 50*ms, 2*time.Second,
			&link{rate: steady(120 * mbit), delay: 10 * ms, wrong: wrong[0]},
			&link{rate: steady(24 * mbit), delay: 10 * ms, wrong: wrong[1]})
		p95 := took[len(took)*95/100]
		t.Logf("%v: %v, alone %v", wrong, p95, alone[0])
		if p95 > alone[0] {
			t.Errorf("rates are %v of the true ones: windows take %v, over the faster path alone %v", wrong, p95, alone[0])
		}
	}
}

// TestGuessedRates checks that slow paths share small objects even if their rates are overestimated because nothing
// has filled their congestion windows.
func TestGuessedRates(t *testing.T) {
	burst := func(links ...*link) (last time.Duration) {
		m := newSim(t, New(Options{}), links...)
		id := uint64(0)
		for round := range 10 {
			m.until(time.Minute, func() bool { return m.now > time.Duration(round)*500*ms })
			begin, first := m.now, id
			for range 30 {
				m.add(id, Priority{Order: id}, 400)
				m.s.Truncate(id, 400)
				id++
			}
			m.until(time.Minute, func() bool {
				for i := first; i < id; i++ {
					if m.prefix(i) < 400 {
						return false
					}
				}
				return true
			})
			last = m.now - begin
		}
		return last
	}
	a := &link{rate: steady(80e3), delay: 10 * ms, eager: true, wrong: 25}
	b := &link{rate: steady(80e3), delay: 15 * ms, eager: true, wrong: 25}
	alone, both := burst(fresh([]*link{a})...), burst(a, b)
	t.Logf("%v, over one path %v", both, alone)
	if both > alone*2/3 {
		t.Errorf("30 objects take %v, over one path %v", both, alone)
	}
}

// TestLateAcknowledgements checks that acknowledgements in batches do not make a path seem slow.
func TestLateAcknowledgements(t *testing.T) {
	s := New(Options{}).(*ours)
	m := newSim(t, s, &link{rate: steady(60 * mbit), delay: 10 * ms, wrong: 0.1})
	m.batch = 8 * ms
	for i := range uint64(40) {
		m.add(i, Priority{Order: i}, 250e3)
		m.until(time.Minute, func() bool { return m.now > time.Duration(i+1)*50*ms })
	}
	if got := s.path(0).rate() / (60 * mbit); got < 0.85 || got > 1.15 {
		t.Errorf("the measured rate is %.2f of the true one", got)
	}
}

// TestAgainstMinRTT compares the 95th percentile of delivery times with that of minRTT, which commits bytes to
// slow paths too early.
func TestAgainstMinRTT(t *testing.T) {
	for _, c := range []struct {
		name  string
		n     int64
		every time.Duration
		gain  float64
		links []*link
	}{
		{"RTT", 100e3, 33 * ms, 2, []*link{
			{rate: steady(50 * mbit), delay: 10 * ms}, {rate: steady(50 * mbit), delay: 50 * ms},
		}},
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
	// The cut is noticed after 100 ms. The other path then needs about 40 ms per window, and catches
	// up.
	if longest := took[len(took)-1]; longest > 250*ms || waste > 0.05 {
		t.Errorf("windows take up to %v, %.3f sent twice", longest, waste)
	}
}
