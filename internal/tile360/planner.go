package tile360

import (
	"cmp"
	"slices"
)

// GoP is what is known of one group of pictures of all tiles.
type GoP struct {
	Start, Duration float64 // seconds on the medium's timeline
	// Miss, Bytes and Distortion are as in Problem: Miss is the distortion of the
	// low-resolution sphere in each tile, the others are at [tile*qualities+quality].
	Miss, Bytes, Distortion []float64
	// Have is the quality of each tile that is there or under way, −1 where none is. Nil
	// stands for none of any.
	Have []int
}

// Request is a tile of a GoP to ask for.
type Request struct {
	GoP           int // index in the GoPs planned for
	Tile, Quality int
}

// Planner decides for a viewer what to ask for. Bench, player and web viewer use the same
// rules. It is not for concurrent use.
type Planner struct {
	View      *View
	Qualities int
	Gaze      Gaze
	Capacity  Capacity
	Solver    Solver
	// Percentile of the predicted capacity is what OWS may plan with; 0 = BudgetPercentile.
	Percentile float64
	// Latency is how long after a request its tile can be shown at the earliest, seconds.
	Latency float64

	problem  Problem
	plan     Plan
	spare    Plan
	looks    []Look
	requests []Request
}

// The gaze is expected at so many moments of a GoP.
const gazeMoments = 3

// leastRest is the share of a GoP below which it is not worth asking for its tiles.
const leastRest = 0.25

// BudgetPercentile is the percentile of the predicted capacity that OWS may plan with, and
// SparePercentile that up to which further tiles are asked for.
const (
	BudgetPercentile = 10
	SparePercentile  = 50
)

// Plan decides which tiles to ask for, in the order in which to have them sent. GoPs are those
// whose time is not over, the one being shown first: of that one tiles are asked for again
// that the viewer turned to unexpectedly, if they are worth it for the rest of the GoP. The
// gaze's samples must be on the medium's timeline.
//
// Seconds is the time until the last GoP must be there; pending is how many bytes asked for
// before are still to come. The result is valid until the next call.
//
// What OWS chooses within the budget comes first. Tiles that it left out follow, chosen in the
// same way for what the network is more likely than not to carry beyond the budget: if it does
// not, they are late, and nothing before them is.
func (p *Planner) Plan(gops []GoP, seconds, pending float64) []Request {
	tiles := p.View.Grid.Tiles()
	pr := &p.problem
	pr.Qualities = p.Qualities
	pr.Seen = slices.Grow(pr.Seen[:0], len(gops)*tiles)[:len(gops)*tiles]
	pr.Miss, pr.Bytes, pr.Distortion = pr.Miss[:0], pr.Bytes[:0], pr.Distortion[:0]
	for i := range gops {
		g := &gops[i]
		p.expect(g, pr.Seen[i*tiles:(i+1)*tiles])
		for t := range tiles {
			miss, have := g.Miss[t], -1
			if g.Have != nil {
				have = g.Have[t]
			}
			if have >= 0 {
				miss = min(miss, g.Distortion[t*p.Qualities+have])
			}
			pr.Miss = append(pr.Miss, miss)
			for q := range p.Qualities {
				bytes := g.Bytes[t*p.Qualities+q]
				if q == have {
					bytes = 0 // no longer offered
				}
				pr.Bytes = append(pr.Bytes, bytes)
			}
		}
		pr.Distortion = append(pr.Distortion, g.Distortion...)
	}
	pr.Budget = p.Capacity.Percentile(cmp.Or(p.Percentile, BudgetPercentile))*seconds - pending
	pr.Capacity = p.Capacity.Distribution(seconds, pr.Capacity[:0])
	for i := range pr.Capacity {
		pr.Capacity[i] -= pending
	}
	p.Solver.OWS(pr, &p.plan)
	p.requests = p.requests[:0]
	p.request(&p.plan, tiles)
	for _, i := range p.plan.Order {
		clear(pr.Bytes[i*p.Qualities : (i+1)*p.Qualities])
	}
	pr.Budget = p.Capacity.Percentile(SparePercentile)*seconds - pending - p.plan.Bytes
	p.Solver.OWS(pr, &p.spare)
	p.request(&p.spare, tiles)
	return p.requests
}

func (p *Planner) request(plan *Plan, tiles int) {
	for _, i := range plan.Order {
		p.requests = append(p.requests, Request{i / tiles, i % tiles, plan.Quality[i]})
	}
}

// expect sets what share of the viewport each tile is expected to fill while what is asked for
// now can be shown, times that time's share of the GoP.
func (p *Planner) expect(g *GoP, seen []float64) {
	now, end := p.Gaze.Last().T, g.Start+g.Duration
	from := max(g.Start, now+p.Latency)
	rest := (end - from) / g.Duration
	if !(rest >= leastRest) {
		clear(seen)
		return
	}
	p.looks = p.looks[:0]
	for i := range gazeMoments {
		at := from + (end-from)*(float64(i)+0.5)/gazeMoments
		p.looks = p.Gaze.Looks(max(0, at-now), rest/gazeMoments, p.looks)
	}
	p.View.Expect(p.looks, seen, nil)
}

// Seen returns the share of the viewport that the last plan expected a tile of a GoP to fill,
// times the share of the GoP for which what is asked for can be shown.
func (p *Planner) Seen(gop, tile int) float64 { return p.problem.Seen[gop*p.View.Grid.Tiles()+tile] }

// Chosen returns what OWS last chose within the budget: the GoPs' tiles, one GoP after the
// other.
func (p *Planner) Chosen() *Plan { return &p.plan }
