package schedulers

import (
	"time"
)

// minRTT fills the path with the lowest round-trip time first, then the next (Raiciu et al., "How hard can it be?
// Designing and implementing a deployable multipath TCP", NSDI 2012, and the first Linux scheduler).
type minRTT struct{ plain }

// plain is embedded in rules without memory.
type plain struct{}

func (plain) took(*inOrder, *path, int64)                 {}
func (plain) acked(*inOrder, *path, int64, time.Duration) {}

func (minRTT) takes(s *inOrder, p *path, _ time.Duration) bool {
	for _, other := range s.each() {
		if other != p && other.waits && other.estimate.RTT < p.estimate.RTT {
			return false
		}
	}
	return true
}

// roundRobin gives a segment to each path with room in turn (Paasch et al., "Experimental evaluation of multipath TCP
// schedulers", CSWS 2014).
type roundRobin struct {
	plain
	last int // path that took the last segment
}

func (r *roundRobin) takes(s *inOrder, p *path, _ time.Duration) bool {
	turn := func(q *path) int { // 0 is next
		if q.index > r.last {
			return q.index - r.last - 1
		}
		return q.index - r.last - 1 + 1<<16
	}
	for _, other := range s.each() {
		if other != p && other.waits && turn(other) < turn(p) {
			return false
		}
	}
	return true
}

func (r *roundRobin) took(_ *inOrder, p *path, _ int64) { r.last = p.index }

// blest keeps a slower path idle if its bytes would block the send window for the fastest path, which is busy at the
// moment (Ferlin et al., "BLEST: blocking estimation-based MPTCP scheduler for heterogeneous networks", IFIP
// Networking 2016).
type blest struct{ minRTT }

// packet is the size of a packet's payload, in bytes.
const packet = 1200

func (blest) takes(s *inOrder, p *path, now time.Duration) bool {
	if !(minRTT{}).takes(s, p, now) {
		return false
	}
	fast := s.fastest()
	if fast == p || p.estimate.RTT == 0 || fast.estimate.RTT == 0 {
		return true
	}
	rounds := float64(p.estimate.RTT) / float64(fast.estimate.RTT)
	sends := rounds * (fast.window() + (rounds-1)/2*packet) // equation 1: by the fast path in the slow one's RTT
	return sends <= s.sendWindow()-float64(p.underway+packet)
}

// sendWindow estimates the size, in bytes, to which the kernel's receive buffer would grow: twice the bytes that all
// paths carry in the longest round-trip time, up to the limit of unacknowledged bytes.
func (s *inOrder) sendWindow() float64 {
	rate, longest := 0.0, time.Duration(0)
	for _, p := range s.each() {
		rate += p.estimate.Rate
		longest = max(longest, p.estimate.RTT)
	}
	return min(max(2*rate*longest.Seconds(), 64<<10), float64(s.options.Unacked))
}

// ecf keeps a slower path idle if the fastest path, although busy now, would complete the ready bytes earlier (Lim
// et al., "ECF: an MPTCP path scheduler to manage heterogeneous paths", CoNEXT 2017, Algorithm 1).
type ecf struct {
	plain
	waiting bool
}

// ecfBeta is the paper's β, a hysteresis that favours further waiting.
const ecfBeta = 0.25

func (e *ecf) takes(s *inOrder, p *path, now time.Duration) bool {
	if !(minRTT{}).takes(s, p, now) {
		return false
	}
	fast := s.fastest()
	if fast == p || p.estimate.RTT == 0 || fast.estimate.RTT == 0 {
		return true
	}
	k, variation := float64(s.ready), max(fast.estimate.Var, p.estimate.Var).Seconds()
	rttFast, rttSlow := fast.estimate.RTT.Seconds(), p.estimate.RTT.Seconds()
	hold := 0.0
	if e.waiting {
		hold = ecfBeta
	}
	if (1+k/fast.window())*rttFast >= (1+hold)*(rttSlow+variation) {
		e.waiting = false
		return true
	}
	if k/p.window()*rttSlow < 2*rttFast+variation {
		return true
	}
	e.waiting = true
	return false
}

// ratio splits the bytes in a given proportion and searches for the proportion with the highest throughput, like
// MuSher (Saha et al., "MuSher: an agile multipath-TCP scheduler for dual-band 802.11ad/ac wireless LANs", MobiCom
// 2019). It starts from the paths' rates, then moves one path's share by a step each interval. It keeps the direction
// while the throughput rises and reverses it when the throughput falls. After both directions it goes on to the next
// path.
type ratio struct {
	share map[int]float64 // sums to 1
	given map[int]float64 // bytes since the last change
	// The current interval.
	began     time.Duration
	delivered int64   // acknowledged bytes
	best      float64 // bytes/s of the interval before
	direction float64
	moved     int // path whose share changes
	busy      bool
}

// Of the search.
const (
	ratioInterval = 500 * time.Millisecond
	ratioStep     = 0.05
	ratioSlack    = 0.02 // of the throughput: less is noise
)

func (r *ratio) takes(s *inOrder, p *path, now time.Duration) bool {
	paths := s.each()
	if len(paths) == 1 {
		return true
	}
	r.update(paths, now)
	total := 0.0
	for _, q := range paths {
		total += r.given[q.index]
	}
	return r.given[p.index] <= r.share[p.index]*(total+float64(s.options.MaxSegment))
}

func (r *ratio) took(s *inOrder, p *path, n int64) {
	if r.given != nil {
		r.given[p.index] += float64(n)
	}
	r.busy = s.ready > 0
}

func (r *ratio) acked(_ *inOrder, _ *path, n int64, _ time.Duration) { r.delivered += n }

// update starts the search, restarts it after paths were added or removed, and moves the shares after each interval
// with enough data to send.
func (r *ratio) update(paths []*path, now time.Duration) {
	fresh := len(r.share) != len(paths)
	for _, p := range paths {
		_, known := r.share[p.index]
		fresh = fresh || !known
	}
	switch {
	case fresh:
		r.share, r.direction, r.best, r.moved = map[int]float64{}, 1, 0, 0
		sum := 0.0
		for _, p := range paths {
			r.share[p.index] = max(p.estimate.Rate, 1)
			sum += r.share[p.index]
		}
		for i := range r.share {
			r.share[i] /= sum
		}
	case now-r.began < ratioInterval:
		return
	case r.busy: // otherwise the throughput is the application's
		rate := float64(r.delivered) / (now - r.began).Seconds()
		if rate < r.best*(1-ratioSlack) {
			r.direction = -r.direction
			r.moved += int((1 + r.direction) / 2) // both directions of this path are tried
		}
		r.best = rate
		r.move(paths)
	}
	r.given, r.began, r.delivered = map[int]float64{}, now, 0
}

// move changes one path's share by a step; the others keep their relative proportion.
func (r *ratio) move(paths []*path) {
	at := paths[r.moved%len(paths)].index
	old := r.share[at]
	share := min(max(old+r.direction*ratioStep, ratioStep), 1-ratioStep)
	for i, v := range r.share {
		if i != at {
			r.share[i] = v * (1 - share) / (1 - old)
		}
	}
	r.share[at] = share
}
