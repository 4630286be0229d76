package tile360

// Paper is Algorithm 1 (OWS) of the FBDT paper as printed, for comparison. It repeats lines 4–8 for
// a number of iterations and returns the ordering and rates with the least total loss (section 4.2,
// last sentence before the algorithm).
//
// Line 5 minimizes Σ Seen·D within the aggregate capacity, here Problem.Budget; every tile gets a
// rate, as R(t) exists for all of T. It is solved like OWS, by greedy slopes on convex hulls. The
// loss in line 6 is ε·Seen·D, with ε from the tile's position in the previous iteration's order, at
// first the grid's; line 7 sorts by ascending loss. Seen is the paper's P(t), the probability that
// the tile is observed.
func (s *Solver) Paper(p *Problem, iterations int, plan *Plan) {
	plan.reset(len(p.Seen))
	s.rates(p, plan)
	best := -1.0
	for round := range iterations + 1 {
		// The losses in this order rate it and determine the next order.
		s.keys = s.keys[:0]
		sum, bytes := 0.0, 0.0
		for _, t := range plan.Order {
			i := t*p.Qualities + plan.Quality[t]
			bytes += p.Bytes[i]
			loss := p.Late(bytes) * p.Seen[t] * p.Distortion[i]
			sum += loss
			s.keys = append(s.keys, descending(-loss, int32(t)))
		}
		if round > 0 && (best < 0 || sum < best) {
			best = sum
			s.best = append(s.best[:0], plan.Order...)
		}
		s.sort()
		for i, k := range s.keys {
			plan.Order[i] = int(uint32(k))
		}
	}
	if best >= 0 {
		copy(plan.Order, s.best)
	}
	plan.set(p)
	plan.Bound = 0
}

// rates sends every tile, in the grid's order, with the least Σ Seen·D within the budget, or at the
// smallest qualities if they exceed it.
func (s *Solver) rates(p *Problem, plan *Plan) {
	s.hulls(p, true)
	s.greedy(p.Budget, plan)
	plan.Order = plan.Order[:0]
	for t, q := range plan.Quality {
		if q >= 0 {
			plan.Order = append(plan.Order, t)
		}
	}
}

// Fixed chooses rates like Paper, and sends tiles in the grid's order: the paper's FIX.
func (s *Solver) Fixed(p *Problem, plan *Plan) {
	plan.reset(len(p.Seen))
	s.rates(p, plan)
	plan.set(p)
	plan.Bound = 0
}

// Whole sends all tiles, in the grid's order, at the best single quality that fits, or else the
// smallest.
func (s *Solver) Whole(p *Problem, plan *Plan) { s.uniform(p, plan, func(int) bool { return true }) }

// Viewport is like Whole, but sends only the tiles with Seen above 0.
func (s *Solver) Viewport(p *Problem, plan *Plan) {
	s.uniform(p, plan, func(t int) bool { return p.Seen[t] > 0 })
}

func (s *Solver) uniform(p *Problem, plan *Plan, sent func(tile int) bool) {
	plan.reset(len(p.Seen))
	best, bestBytes, bestLoss := -1, 0.0, 0.0
	for q := range p.Qualities {
		bytes, loss, all := 0.0, 0.0, true
		for t := range p.Seen {
			if i := t*p.Qualities + q; sent(t) {
				all = all && p.offered(i)
				bytes += p.Bytes[i]
				loss += p.Seen[t] * p.Distortion[i]
			}
		}
		better := best < 0 || bytes < bestBytes
		if bytes <= p.Budget {
			better = best < 0 || bestBytes > p.Budget || loss < bestLoss
		} else if best >= 0 && bestBytes <= p.Budget {
			better = false
		}
		if all && better {
			best, bestBytes, bestLoss = q, bytes, loss
		}
	}
	for t := range p.Seen {
		if best >= 0 && sent(t) {
			plan.Quality[t] = best
			plan.Order = append(plan.Order, t)
		}
	}
	plan.set(p)
}
