package tile360

import (
	"cmp"
	"math"
	"slices"
)

// core is the part of a knapsack in which the greedy choice may be improved.
type core struct {
	slope  float64 // price per byte of the relaxed problem's bound
	tiles  []coreTile
	option []option
	state  []state
	next   []state
}

type coreTile struct {
	tile     int32
	from, to int32   // range of its options
	least    float64 // bytes of the smallest option
}

// option is a quality of a tile, with the excess of its loss + slope·bytes over the tile's minimum.
type option struct {
	bytes, excess float64
	quality       int32
}

// state is a choice for the tiles processed so far.
type state struct {
	bytes, excess float64
	loss          float64 // excess − slope·bytes: the tiles' loss plus a constant
	previous      int32   // index of the state it extends
	quality       int32   // chosen for the tile
}

// refine searches for a better choice than the plan's and raises the plan's Bound if it proves a
// higher one.
//
// At the relaxation's price per byte every option has an excess over its tile's best option, and
// the loss of a choice is Bound + the sum of excesses + the price of unused bytes. So options with
// an excess of at least Loss − Bound are excluded, which leaves one option for most tiles. Dynamic
// programming over the rest finds the optimum; its states are choices within the budget that no
// other beats in both bytes and loss. If there are more states than Refine allows, only those with
// the least excess are kept and optimality is not proven.
func (s *Solver) refine(p *Problem, plan *Plan) {
	c := &s.core
	slack := plan.Loss - plan.Bound
	c.tiles, c.option = c.tiles[:0], c.option[:0]
	fixed, least := 0.0, 0.0 // bytes
	for t, seen := range p.Seen {
		from := len(c.option)
		c.option = append(c.option, option{0, seen * p.Miss[t], -1})
		base := c.option[from].excess
		for q := range p.Qualities {
			if i := t*p.Qualities + q; p.offered(i) {
				o := option{p.Bytes[i], seen*p.Distortion[i] + c.slope*p.Bytes[i], int32(q)}
				base = min(base, o.excess)
				c.option = append(c.option, o)
			}
		}
		n, smallest := from, math.Inf(1)
		for _, o := range c.option[from:] {
			if o.excess -= base; o.excess < slack {
				c.option[n] = o
				n++
				smallest = min(smallest, o.bytes)
			}
		}
		c.option = c.option[:n]
		if n-from == 1 {
			fixed += smallest
			plan.Quality[t] = int(c.option[from].quality)
			c.option = c.option[:from]
			continue
		}
		c.tiles = append(c.tiles, coreTile{int32(t), int32(from), int32(n), smallest})
		least += smallest
	}
	best, at := plan.Loss, -1
	width := max(1, s.Refine/max(1, len(c.tiles)))
	exact := true
	c.state = append(c.state[:0], state{bytes: fixed, loss: -c.slope * fixed, previous: -1, quality: -1})
	from := 0
	for _, tile := range c.tiles {
		to := len(c.state)
		least -= tile.least
		c.next = c.next[:0]
		for i := from; i < to; i++ {
			st := c.state[i]
			for _, o := range c.option[tile.from:tile.to] {
				bytes, excess := st.bytes+o.bytes, st.excess+o.excess
				if bytes+least <= p.Budget && excess < slack {
					c.next = append(c.next, state{bytes, excess, excess - c.slope*bytes, int32(i), o.quality})
				}
			}
		}
		exact = s.keep(width) && exact
		from = to
	}
	for i := from; i < len(c.state); i++ {
		if loss := plan.Bound + c.state[i].loss + c.slope*p.Budget; loss < best {
			best, at = loss, i
		}
	}
	if at < 0 { // the greedy choice is best
		for t, i := range s.level {
			plan.Quality[t] = int(s.hull[i].quality)
		}
	} else {
		for k := len(c.tiles) - 1; k >= 0; k-- {
			plan.Quality[c.tiles[k].tile] = int(c.state[at].quality)
			at = int(c.state[at].previous)
		}
	}
	plan.Loss = best
	if exact {
		plan.Bound = best
	}
}

// keep appends to states at most width states of next that no other state beats. It reports whether
// it kept all such states.
func (s *Solver) keep(width int) bool {
	c := &s.core
	slices.SortFunc(c.next, func(a, b state) int {
		return cmp.Or(cmp.Compare(a.bytes, b.bytes), cmp.Compare(a.loss, b.loss),
			cmp.Compare(a.previous, b.previous), cmp.Compare(a.quality, b.quality))
	})
	n, least := 0, math.Inf(1)
	for _, st := range c.next {
		if st.loss < least {
			c.next[n] = st
			n++
			least = st.loss
		}
	}
	c.next = c.next[:n]
	all := n <= width
	if !all {
		slices.SortFunc(c.next, func(a, b state) int {
			return cmp.Or(cmp.Compare(a.excess, b.excess), cmp.Compare(a.bytes, b.bytes))
		})
		c.next = c.next[:width]
	}
	c.state = append(c.state, c.next...)
	return all
}
