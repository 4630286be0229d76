package tile360

import (
	"math"
	"slices"
)

// Problem is the choice for one GoP: which tiles to send, at which quality, in which order.
type Problem struct {
	Qualities int // offered of each tile
	// Seen is, for each tile, the expected share of the viewport that it fills: the
	// probability that a point of the viewport will lie in it. With these the loss is the
	// viewport's expected mean squared error.
	Seen []float64
	// Miss is, for each tile, the distortion of what is shown in its place if it does not
	// arrive: that of the low-resolution sphere, or of a quality that is already there.
	Miss []float64
	// Bytes and Distortion are those of quality q of tile t at [t*Qualities+q]. Distortion
	// is WS-weighted mean squared error. A quality whose Bytes are not positive and finite,
	// or whose Distortion is not finite, is not offered.
	Bytes, Distortion []float64
	// Budget is what may be sent, bytes.
	Budget float64
	// Capacity is what the network may carry until the deadline, bytes: equally probable
	// values in ascending order. From it follows each tile's probability to be late. With
	// none, all tiles arrive.
	Capacity []float64
}

// Late returns the probability that what ends so many bytes into the GoP misses the deadline.
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

// Plan is what was chosen. Plans are reused: a solver overwrites one without allocating.
type Plan struct {
	Quality []int   // of each tile; −1 = not sent
	Order   []int   // the tiles that are sent, first to be sent first
	Bytes   float64 // of all that is sent
	// Loss is the sum over tiles of Seen × distortion if all arrives in time; Bound is what
	// no choice within the budget can get below. They are equal where Loss is proven
	// optimal. Plans not made by Solver.OWS have no Bound: it is 0.
	Loss, Bound float64
	// Expected is the loss expected of this order with tiles being late:
	// Seen × ((1−ε)·Distortion + ε·Miss), with ε from Problem.Capacity.
	Expected float64
}

// Gap returns how far the loss may be above the optimum, as a share of the optimum's bound.
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

// set finishes a plan whose Quality and Order are made.
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

// Solver chooses tiles. It keeps its memory from call to call: a solver that has solved a
// problem of a size solves others without allocating. It is not for concurrent use.
type Solver struct {
	// Refine limits the search for the optimum that follows the greedy choice among at most
	// 128 tiles: the states it may keep in all. 0 = no search. Among more tiles the greedy
	// choice is within hundredths of a percent of the optimum.
	Refine int

	hull  []hullPoint
	first []int32 // of each tile, the first of its points in hull; one more at the end
	level []int32 // of each tile, the chosen point
	keys  []uint64
	spare []uint64
	best  []int // order
	core  core
}

// DefaultRefine is a Refine that finds and proves the optimum of most choices among 32 tiles
// in a fraction of a millisecond.
const DefaultRefine = 8192

const refineTiles = 128

// hullPoint is a corner of the lower convex hull of a tile's losses over bytes. The first of
// each tile is not to send it.
type hullPoint struct {
	bytes, loss float64 // loss is weighted by Seen
	quality     int32
	tile        int32
}

// OWS chooses qualities and order such that the viewport's expected loss
//
//	L(t, q) = Seen(t) · ((1−ε)·D(q) + ε·Miss(t))
//
// is least within the budget, which is to be a low percentile of the predicted capacity, so
// that ε, the probability to be late, is small and much the same for all tiles.
//
// Qualities are a multiple-choice knapsack, one quality or none of each tile: from nothing,
// the step with the most loss avoided per byte is taken next, along each tile's convex hull,
// while it fits. The steps' order gives the relaxed problem's optimum too, hence Plan.Bound;
// a search among the choices that can still beat the greedy one (Refine) then mostly finds the
// optimum and proves it. Tiles are sent by descending Seen·(Miss−D)/bytes: what is cut off
// when the network carries less than the budget is what avoids least loss per byte.
//
// This departs from the paper's Algorithm 1 (Paper), where a tile's loss is Seen·ε·D, so that a
// tile on time costs nothing however coarse it is; where line 5 does not depend on the order,
// so that all iterations choose the same rates; and where ascending loss sends first what
// matters least.
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
	if loss <= plan.Bound { // equal up to the rounding of the two sums
		plan.Bound = plan.Loss
	}
	plan.Bound = min(plan.Bound, plan.Loss)
}

// hulls computes the tiles' hulls. Where a tile must be sent, each begins with its cheapest
// quality instead of with nothing.
func (s *Solver) hulls(p *Problem, must bool) {
	s.hull, s.first = s.hull[:0], s.first[:0]
	for t, seen := range p.Seen {
		from := len(s.hull)
		s.first = append(s.first, int32(from))
		if !must {
			s.hull = append(s.hull, hullPoint{loss: seen * p.Miss[t], quality: -1, tile: int32(t)})
		}
		// Qualities by ascending bytes, then loss.
		for q := range p.Qualities {
			i := t*p.Qualities + q
			if !p.offered(i) {
				continue
			}
			n := hullPoint{p.Bytes[i], seen * p.Distortion[i], int32(q), int32(t)}
			s.hull = append(s.hull, n)
			at := len(s.hull) - 1
			for at > from && (s.hull[at-1].bytes > n.bytes || s.hull[at-1].bytes == n.bytes && s.hull[at-1].loss > n.loss) {
				s.hull[at] = s.hull[at-1]
				at--
			}
			s.hull[at] = n
		}
		if len(s.hull) == from { // must be sent, and nothing is offered
			s.hull = append(s.hull, hullPoint{loss: seen * p.Miss[t], quality: -1, tile: int32(t)})
		}
		// Keep the corners.
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

// greedy takes the hulls' steps by descending slope while they fit, and sets the plan's
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
			continue // the step before did not fit
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

// bound is the Lagrangian dual's value at a price per byte: no choice within the budget
// loses less. At the slope of the first step that does not fit it is the optimum of the
// relaxed problem, in which tiles may be split between qualities.
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

// order sets the plan's Order: tiles that are sent by descending Seen·(Miss−D)/bytes.
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

// descending packs a key that sorts by descending value, rounded to float32, then by
// ascending index.
func descending(value float64, index int32) uint64 {
	return uint64(^orderedBits(value))<<32 | uint64(uint32(index))
}

// orderedBits maps a float32 to an integer of the same order. −0 counts as 0.
func orderedBits(value float64) uint32 {
	b := math.Float32bits(float32(value) + 0)
	if b>>31 != 0 {
		return ^b
	}
	return b | 1<<31
}

// sort sorts keys: many by radix, which is several times faster than comparing.
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
	// Keys come with ascending indexes, and each pass keeps the order of equals.
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
