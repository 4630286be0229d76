package tile360

import (
	"math"
	"slices"
)

// Problem is a choice of tiles to send, their qualities and order, for one GoP or several. Tiles of
// several GoPs are listed one GoP after the other.
type Problem struct {
	Qualities int // per tile
	// Seen is each tile's expected share of the viewport: the probability that a point of the
	// viewport lies in it. The loss is then the viewport's expected mean squared error.
	Seen []float64
	// Miss is the distortion of each missing tile's replacement: the low-resolution sphere, or a
	// quality already received.
	Miss []float64
	// Bytes and Distortion of quality q of tile t are at [t*Qualities+q]. Distortion is WS-weighted
	// mean squared error. A quality whose Bytes are not positive and finite, or whose Distortion is
	// not finite, is not offered.
	Bytes, Distortion []float64
	// Budget is the maximum number of bytes to send.
	Budget float64
	// Capacity is the predicted capacity until the deadline in bytes, as equally probable values in
	// ascending order. It determines each tile's probability of being late. If empty, all tiles are
	// in time.
	Capacity []float64
}

// Late returns the probability that data ending at a byte offset in the GoP misses the deadline.
func (p *Problem) Late(bytes float64) float64 {
	if len(p.Capacity) == 0 {
		return 0
	}
	n, _ := slices.BinarySearch(p.Capacity, bytes)
	return float64(n) / float64(len(p.Capacity))
}

func (p *Problem) offered(i int) bool {
	b, d := p.Bytes[i], p.Distortion[i]
	return b > 0 && b <= math.MaxFloat64 && math.Abs(d) <= math.MaxFloat64
}

// Plan is a solution. A solver overwrites a reused plan without allocating.
type Plan struct {
	Quality []int   // per tile; −1 = not sent
	Order   []int   // tiles to send, in order
	Bytes   float64 // total
	// Loss is the sum over tiles of Seen × distortion if all arrive in time. Bound is a lower bound
	// for every choice within the budget; if they are equal, Loss is proven optimal. Only
	// Solver.OWS sets Bound.
	Loss, Bound float64
	// Expected is the expected loss of this order including lateness: Seen × ((1−ε)·Distortion +
	// ε·Miss), with ε from Problem.Capacity.
	Expected float64
}

// Gap returns the maximum excess of the loss over the optimum, as a fraction of the bound.
func (p *Plan) Gap() float64 {
	if p.Loss <= p.Bound {
		return 0
	}
	return (p.Loss - p.Bound) / max(p.Bound, 1e-12)
}

func (p *Plan) reset(tiles int) {
	p.Quality = slices.Grow(p.Quality[:0], tiles)[:tiles]
	for t := range p.Quality {
		p.Quality[t] = -1
	}
	p.Order = slices.Grow(p.Order[:0], tiles)
	*p = Plan{Quality: p.Quality, Order: p.Order}
}

// set computes the fields derived from Quality and Order.
func (p *Plan) set(pr *Problem) {
	p.Bytes, p.Loss, p.Expected = 0, 0, 0
	for t, q := range p.Quality {
		if q < 0 {
			p.Loss += pr.Seen[t] * pr.Miss[t]
			p.Expected += pr.Seen[t] * pr.Miss[t]
		}
	}
	for _, t := range p.Order {
		i := t*pr.Qualities + p.Quality[t]
		p.Bytes += pr.Bytes[i]
		late := pr.Late(p.Bytes)
		p.Loss += pr.Seen[t] * pr.Distortion[i]
		p.Expected += pr.Seen[t] * ((1-late)*pr.Distortion[i] + late*pr.Miss[t])
	}
}

// Solver chooses tiles. It reuses its memory, so that solving problems of equal size does not
// allocate. It is not safe for concurrent use.
type Solver struct {
	// Refine bounds the total states of the search for the optimum that follows the greedy choice
	// among at most 128 tiles. 0 means no search. Among more tiles the greedy choice is within
	// hundredths of a percent of the optimum.
	Refine int

	hull  []hullPoint
	first []int32 // index of each tile's first point in hull, then the end
	level []int32 // index of each tile's chosen point
	keys  []uint64
	spare []uint64
	best  []int // best order so far
	core  core
}

// DefaultRefine finds and proves the optimum of most choices among 32 tiles in a fraction of a
// millisecond.
const DefaultRefine = 8192

const refineTiles = 128

// hullPoint is a corner of the lower convex hull of a tile's losses over bytes. Each tile's first
// point stands for not sending it.
type hullPoint struct {
	bytes, loss float64 // loss is weighted by Seen
	quality     int32
	tile        int32
}

// OWS chooses qualities and order to minimize the viewport's expected loss
//
//	L(t, q) = Seen(t) · ((1−ε)·D(q) + ε·Miss(t))
//
// within the budget. The budget should be a low percentile of the predicted capacity, so that ε,
// the probability of being late, is small and similar for all tiles.
//
// Qualities form a multiple-choice knapsack, one quality or none per tile. Starting from nothing,
// the greedy choice repeatedly takes the step along a tile's convex hull that avoids the most loss
// per byte, while it fits. The order of steps also solves the relaxed problem, which gives
// Plan.Bound. A search among the choices that can still beat the greedy one (Refine) then usually
// finds and proves the optimum. Tiles are sent by descending Seen·(Miss−D)/bytes, so that a
// capacity below the budget cuts off the least loss per byte.
//
// This differs from the paper's Algorithm 1 (Paper) in three ways. There, a tile's loss is
// Seen·ε·D, so a coarse tile costs nothing if it is in time; line 5 does not depend on the order,
// so all iterations choose the same rates; and ascending loss sends the least important tiles
// first.
func (s *Solver) OWS(p *Problem, plan *Plan) {
	plan.reset(len(p.Seen))
	s.hulls(p, false)
	s.greedy(p.Budget, plan)
	if s.Refine > 0 && len(p.Seen) <= refineTiles && plan.Loss > plan.Bound {
		s.refine(p, plan)
	}
	s.order(p, plan)
	loss := plan.Loss
	plan.set(p)
	if loss <= plan.Bound { // equal except for rounding
		plan.Bound = plan.Loss
	}
	plan.Bound = min(plan.Bound, plan.Loss)
}

// hulls computes the tiles' hulls. With must, each starts at its cheapest quality instead of
// nothing.
func (s *Solver) hulls(p *Problem, must bool) {
	s.hull, s.first = s.hull[:0], s.first[:0]
	for t, seen := range p.Seen {
		from := len(s.hull)
		s.first = append(s.first, int32(from))
		if !must {
			s.hull = append(s.hull, hullPoint{loss: seen * p.Miss[t], quality: -1, tile: int32(t)})
		}
		// Sort qualities by bytes, then loss.
		for q := range p.Qualities {
			i := t*p.Qualities + q
			if !p.offered(i) {
				continue
			}
			n := hullPoint{p.Bytes[i], seen * p.Distortion[i], int32(q), int32(t)}
			s.hull = append(s.hull, n)
			at := len(s.hull) - 1
			for at > from && (s.hull[at-1].bytes > n.bytes || s.hull[at-1].bytes == n.bytes &&
				s.hull[at-1].loss > n.loss) {
				s.hull[at] = s.hull[at-1]
				at--
			}
			s.hull[at] = n
		}
		if len(s.hull) == from { // must be sent, but nothing is offered
			s.hull = append(s.hull, hullPoint{loss: seen * p.Miss[t], quality: -1, tile: int32(t)})
		}
		// Keep only the corners.
		n := from + 1
		for i := from + 1; i < len(s.hull); i++ {
			c := s.hull[i]
			if c.loss >= s.hull[n-1].loss {
				continue
			}
			for n-from >= 2 {
				a, b := s.hull[n-2], s.hull[n-1]
				if (b.loss-c.loss)*(b.bytes-a.bytes) < (a.loss-b.loss)*(c.bytes-b.bytes) {
					break
				}
				n--
			}
			s.hull[n] = c
			n++
		}
		s.hull = s.hull[:n]
	}
	s.first = append(s.first, int32(len(s.hull)))
}

// greedy takes the hulls' steps in descending order of slope while they fit, and sets the plan's
// Quality, Loss, Bytes and Bound.
func (s *Solver) greedy(budget float64, plan *Plan) {
	s.keys = s.keys[:0]
	s.level = s.level[:0]
	bytes, loss := 0.0, 0.0
	for t := range plan.Quality {
		from, to := s.first[t], s.first[t+1]
		s.level = append(s.level, from)
		bytes += s.hull[from].bytes
		loss += s.hull[from].loss
		for i := from + 1; i < to; i++ {
			a, b := &s.hull[i-1], &s.hull[i]
			s.keys = append(s.keys, descending((a.loss-b.loss)/(b.bytes-a.bytes), i))
		}
	}
	s.sort()
	slope, full := 0.0, false
	for _, k := range s.keys {
		i := int32(uint32(k))
		a, b := &s.hull[i-1], &s.hull[i]
		if s.level[b.tile] != i-1 {
			continue // the previous step of the tile did not fit
		}
		if bytes+(b.bytes-a.bytes) > budget {
			if !full {
				slope, full = (a.loss-b.loss)/(b.bytes-a.bytes), true
			}
			continue
		}
		bytes += b.bytes - a.bytes
		loss += b.loss - a.loss
		s.level[b.tile] = i
	}
	for t, i := range s.level {
		plan.Quality[t] = int(s.hull[i].quality)
	}
	plan.Bytes, plan.Loss, plan.Bound = bytes, loss, loss
	if full {
		plan.Bound = min(loss, s.bound(slope, budget))
		s.core.slope = slope
	}
}

// bound returns the Lagrangian dual's value at a price per byte, a lower bound for the loss within
// the budget. At the slope of the first step that does not fit, it is the optimum of the relaxed
// problem, in which tiles may be split between qualities.
func (s *Solver) bound(slope, budget float64) float64 {
	sum := -slope * budget
	for t := range len(s.first) - 1 {
		least := math.Inf(1)
		for _, h := range s.hull[s.first[t]:s.first[t+1]] {
			least = min(least, h.loss+slope*h.bytes)
		}
		sum += least
	}
	return sum
}

// order sets the plan's Order by descending Seen·(Miss−D)/bytes.
func (s *Solver) order(p *Problem, plan *Plan) {
	s.keys = s.keys[:0]
	for t, q := range plan.Quality {
		if q >= 0 {
			i := t*p.Qualities + q
			s.keys = append(s.keys, descending(p.Seen[t]*(p.Miss[t]-p.Distortion[i])/p.Bytes[i], int32(t)))
		}
	}
	s.sort()
	plan.Order = plan.Order[:0]
	for _, k := range s.keys {
		plan.Order = append(plan.Order, int(uint32(k)))
	}
}

// descending returns a key that sorts by descending value, rounded to float32, then by ascending
// index.
func descending(value float64, index int32) uint64 {
	return uint64(^orderedBits(value))<<32 | uint64(uint32(index))
}

// orderedBits maps a float32 to an integer with the same order. −0 counts as 0.
func orderedBits(value float64) uint32 {
	b := math.Float32bits(float32(value) + 0)
	if b>>31 != 0 {
		return ^b
	}
	return b | 1<<31
}

// sort sorts keys. It uses radix sort for many keys, which is several times faster.
func (s *Solver) sort() {
	n := len(s.keys)
	if n < 256 {
		slices.Sort(s.keys)
		return
	}
	s.spare = slices.Grow(s.spare[:0], n)[:n]
	var count [3][1 << 11]uint32
	for _, k := range s.keys {
		count[0][k>>32&0x7ff]++
		count[1][k>>43&0x7ff]++
		count[2][k>>54]++
	}
	// Keys arrive with ascending indexes, and each pass is stable.
	for pass, shift := range [3]uint{32, 43, 54} {
		c, at := &count[pass], uint32(0)
		for i := range c {
			c[i], at = at, at+c[i]
		}
		for _, k := range s.keys {
			d := k >> shift & 0x7ff
			s.spare[c[d]] = k
			c[d]++
		}
		s.keys, s.spare = s.spare, s.keys
	}
}
