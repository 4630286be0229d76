package tile360

import (
	"cmp"
	"slices"
)

// GoP describes one GoP of all tiles.
type GoP struct {
	Start, Duration float64 // seconds on the medium's timeline
	// Miss, Bytes and Distortion are as in Problem: Miss is the low-resolution sphere's distortion
	// in each tile; the others are at [tile*qualities+quality].
	Miss, Bytes, Distortion []float64
	// Have is the quality of each tile already received or requested, or −1 for none. Nil means
	// none for every tile.
	Have []int
}

// Request is a request for a tile of a GoP.
type Request struct {
	GoP           int // index in Plan's GoPs
	Tile, Quality int
}

// Planner decides which tiles a viewer requests. Benchmarks, player and web viewer use the same
// rules. It is not safe for concurrent use.
type Planner struct {
	View      *View
	Qualities int
	Gaze      Gaze
	Capacity  Capacity
	Solver    Solver
	// Percentile is the percentile of predicted capacity that OWS uses as budget. 0 means
	// BudgetPercentile.
	Percentile float64
	// Latency is the minimum time in seconds from a request to the display of its tile.
	Latency float64

	problem  Problem
	plan     Plan
	spare    Plan
	looks    []Look
	requests []Request
}

// gazeMoments is the number of gaze predictions per GoP.
const gazeMoments = 3

// leastRest is the minimum share of a GoP that must remain for its tiles to be requested.
const leastRest = 0.25

// BudgetPercentile is the percentile of predicted capacity that OWS uses as budget. Additional
// tiles are requested up to SparePercentile.
const (
	BudgetPercentile = 10
	SparePercentile  = 50
)

// Plan returns the tiles to request, in send order. gops are the GoPs that have not ended, starting
// with the current one. For the current GoP it requests tiles that came into view unexpectedly, if
// they are worth their bytes for the rest of the GoP. Samples of the gaze must be on the medium's
// timeline.
//
// seconds is the time until the last GoP is due; pending is the number of bytes requested earlier
// and not yet received. The result is valid until the next call.
//
// Tiles that OWS chooses within the budget come first. Tiles it left out follow, chosen in the same
// way within the further capacity predicted at SparePercentile. If that capacity does not
// materialize, only these tiles are late.
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

// expect sets each tile's expected share of the viewport during the part of the GoP in which tiles
// requested now can be shown, times that part's share of the GoP.
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

// Seen returns a tile's expected share of the viewport in the last plan, times the share of the GoP
// in which tiles requested then can be shown.
func (p *Planner) Seen(gop, tile int) float64 { return p.problem.Seen[gop*p.View.Grid.Tiles()+tile] }

// Chosen returns OWS's last choice within the budget: the tiles of consecutive GoPs.
func (p *Planner) Chosen() *Plan { return &p.plan }
