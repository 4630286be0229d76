package tiles

import (
	"slices"

	"holocast/internal/tile360"
)

// scheme is a method of selecting tiles.
type scheme struct {
	name string

	// again selects several decisions per GoP, which may also request tiles of the GoP being
	// displayed. The fields below apply to schemes that decide once, a second before a GoP is
	// displayed.
	again      bool
	percentile float64 // the budget is this percentile of the predicted capacity, or its mean if percentile is mean
	known      bool    // the capacity is known, not predicted; percentile is ignored
	seen       weighting
	gaze       prediction
	leftover   bool // finally, request the tiles that OWS leaves out
	choose     func(s *tile360.Solver, p *tile360.Problem, plan *tile360.Plan)
}

// mean, used as a percentile, selects the mean of the predicted capacity.
const mean = -1

// weighting selects Problem.Seen.
type weighting int

const (
	share    weighting = iota // expected share of the viewport
	observed                  // probability that any part of the tile is seen
)

// prediction is the predicted gaze.
type prediction int

const (
	spread   prediction = iota // Gaze.Looks, with the crowd
	alone                      // Gaze.Looks, without a crowd
	point                      // Gaze.Predict, without its errors
	last                       // the current gaze
	crowdMap                   // the crowd's gaze, independent of the viewer
)

// The compared schemes, in table order.
const (
	Ours     = "ours"
	Whole    = "whole"
	Viewport = "viewport"
	Fixed    = "fixed"
	Paper    = "paper"
)

// Schemes lists the schemes.
func Schemes() []string { return []string{Ours, Whole, Viewport, Fixed, Paper} }

// paperRounds is the paper's M.
const paperRounds = 10

func printed(s *tile360.Solver, p *tile360.Problem, plan *tile360.Plan) {
	s.Paper(p, paperRounds, plan)
}

// printedRates selects the paper's rates and sorts the tiles in our order.
func printedRates(s *tile360.Solver, p *tile360.Problem, plan *tile360.Plan) {
	s.Fixed(p, plan)
	slices.SortStableFunc(plan.Order, func(a, b int) int {
		value := func(t int) float64 {
			i := t*p.Qualities + plan.Quality[t]
			return p.Seen[t] * (p.Miss[t] - p.Distortion[i]) / p.Bytes[i]
		}
		switch x, y := value(a), value(b); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
}

func ows(s *tile360.Solver, p *tile360.Problem, plan *tile360.Plan) { s.OWS(p, plan) }

func whole(s *tile360.Solver, p *tile360.Problem, plan *tile360.Plan) { s.Whole(p, plan) }

func viewport(s *tile360.Solver, p *tile360.Problem, plan *tile360.Plan) { s.Viewport(p, plan) }

func fixed(s *tile360.Solver, p *tile360.Problem, plan *tile360.Plan) { s.Fixed(p, plan) }

// compared returns a scheme of the main table. percentile applies to the baselines.
func compared(name string, percentile float64) scheme {
	return map[string]scheme{
		Ours:     {name: Ours, again: true, gaze: spread},
		Whole:    {name: Whole, percentile: percentile, seen: observed, choose: whole},
		Viewport: {name: Viewport, percentile: percentile, seen: observed, gaze: point, choose: viewport},
		Fixed:    {name: Fixed, percentile: percentile, seen: observed, choose: fixed},
		Paper:    {name: Paper, percentile: percentile, seen: observed, choose: printed},
	}[name]
}

// steps returns the schemes between the paper's and ours. Each changes one thing.
func steps() []scheme {
	const p = tile360.BudgetPercentile
	return []scheme{
		{name: "printed rates, fixed order", percentile: p, seen: observed, choose: fixed},
		{name: "printed rates, printed order", percentile: p, seen: observed, choose: printed},
		{name: "printed rates, our order", percentile: p, seen: observed, choose: printedRates},
		{name: "our rates, our order", percentile: p, choose: ows},
		{name: "tiles beyond the budget last", percentile: p, leftover: true, choose: ows},
		{name: "decided every 250 ms: ours", again: true},
	}
}

// gazes returns variants of our scheme with decreasing knowledge of the gaze. They request no tiles
// beyond the budget.
func gazes() []scheme {
	const p = tile360.BudgetPercentile
	return []scheme{
		{name: "predicted with errors, and the crowd's", percentile: p, choose: ows},
		{name: "predicted with errors", percentile: p, gaze: alone, choose: ows},
		{name: "predicted without errors", percentile: p, gaze: point, choose: ows},
		{name: "current", percentile: p, gaze: last, choose: ows},
	}
}

// planAgain makes one of several decisions per GoP, with the planner. It requests tiles, and
// cancels tiles whose transfer has not begun or whose GoP has ended.
func (v *viewer) planAgain(g int) {
	pending := 0.0
	under := map[[2]int]int{}
	keep := v.queue[:0]
	for _, j := range v.queue {
		switch {
		case j.tile >= 0 && j.left == j.bytes: // not begun
			continue
		case j.tile >= 0 && j.gop < g:
			v.wasted += j.bytes - j.left
			continue
		case j.tile >= 0:
			under[[2]int{j.gop, j.tile}] = j.quality
		}
		keep = append(keep, j)
		pending += j.left
	}
	v.queue = keep
	var gops []tile360.GoP
	first := max(0, g)
	for n := first; n <= g+1 && n < v.seconds; n++ {
		gop := *v.gop(n)
		gop.Start = float64(n)
		gop.Have = slices.Clone(v.have(n))
		for k, q := range under {
			if k[0] == n {
				gop.Have[k[1]] = max(gop.Have[k[1]], q)
			}
		}
		gops = append(gops, gop)
	}
	for _, r := range v.planner.Plan(gops, float64(g+1)-v.head, pending) {
		bytes := gops[r.GoP].Bytes[r.Tile*v.clip.qualities+r.Quality]
		v.queue = append(v.queue, job{first + r.GoP, r.Tile, r.Quality, bytes, bytes, v.now + rtt})
	}
}

// planOnce decides on a GoP using the scheme's settings.
func (v *viewer) planOnce(g int) {
	gop, s := v.gop(g), v.scheme
	v.planner.View.Expect(v.looks(g), v.share, v.seen)
	capacity := &v.planner.Capacity
	v.problem = tile360.Problem{
		Qualities: v.clip.qualities, Seen: v.share, Miss: gop.Miss, Bytes: gop.Bytes, Distortion: gop.Distortion,
		Budget:   capacity.Percentile(s.percentile) - v.videoBytes(g),
		Capacity: capacity.Distribution(1, v.problem.Capacity[:0]),
	}
	if s.percentile == mean {
		v.problem.Budget = capacity.Mean() - v.videoBytes(g)
	}
	if s.known {
		bytes := v.net.between(v.now+rtt, v.now+1)
		v.problem.Budget = bytes - v.videoBytes(g)
		v.problem.Capacity = append(v.problem.Capacity[:0], bytes)
	}
	for i := range v.problem.Capacity {
		v.problem.Capacity[i] -= v.videoBytes(g)
	}
	if s.seen == observed {
		v.problem.Seen = v.seen
	}
	if v.blank {
		v.problem.Miss = v.clip.black[g%len(v.clip.black)]
	}
	solver := &v.planner.Solver
	s.choose(solver, &v.problem, &v.plan)
	v.ask(g)
	if s.leftover {
		v.problem.Bytes = slices.Clone(v.problem.Bytes)
		for _, t := range v.plan.Order {
			clear(v.problem.Bytes[t*v.clip.qualities : (t+1)*v.clip.qualities])
		}
		v.problem.Budget = capacity.Percentile(tile360.SparePercentile) - v.videoBytes(g) - v.plan.Bytes
		solver.OWS(&v.problem, &v.plan)
		v.ask(g)
	}
}

func (v *viewer) ask(g int) {
	for _, t := range v.plan.Order {
		q := v.plan.Quality[t]
		bytes := v.gop(g).Bytes[t*v.clip.qualities+q]
		v.queue = append(v.queue, job{g, t, q, bytes, bytes, v.now + rtt})
	}
}

// looks returns the predicted gaze during a GoP.
func (v *viewer) looks(g int) []tile360.Look {
	ahead := func(at float64) float64 { return max(0, float64(g)+at-v.head) }
	switch v.scheme.gaze {
	case point:
		return []tile360.Look{{Gaze: v.planner.Gaze.Predict(ahead(0.5)), P: 1}}
	case last:
		return []tile360.Look{{Gaze: v.planner.Gaze.Last().Gaze, P: 1}}
	case crowdMap:
		var looks []tile360.Look
		for _, viewer := range v.trace.crowd.Viewers {
			if i := int((float64(g) + 0.5) * v.trace.crowd.Rate); i < len(viewer) {
				looks = append(looks, tile360.Look{Gaze: viewer[i], P: 1})
			}
		}
		for i := range looks {
			looks[i].P /= float64(len(looks))
		}
		return looks
	}
	var looks []tile360.Look
	for _, at := range []float64{1. / 6, 0.5, 5. / 6} {
		looks = v.planner.Gaze.Looks(ahead(at), 1./3, looks)
	}
	return looks
}
