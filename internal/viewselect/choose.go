package viewselect

import "holocast/internal/tile360"

// Option is one quality of a camera.
type Option struct {
	Rate  float64 // bit/s
	Error float64 // mean squared error of its picture
}

const (
	// floor is the least worth of a camera: a viewer may turn to any of them.
	floor = 0.02
	// missing is the error of a camera that is not sent, far above that of any quality.
	missing = 1e6
	// keep is the part of the error that a new choice must avoid to replace the present one. It keeps a
	// viewer on the border between two choices from alternating.
	keep = 0.05
)

// Chooser chooses qualities. It reuses its memory and is not safe for concurrent use.
type Chooser struct {
	solver  tile360.Solver
	problem tile360.Problem
	plan    tile360.Plan
	padded  [][]Option
}

// Choose sets dst to the index of each camera's quality, −1 if not even the cheapest fits. It
// minimizes the sum of worth × error at a total of at most budget bit/s, a multiple-choice knapsack
// (tile360.Solver). options has the same number of qualities for all cameras. current is the present
// choice, or nil; it is kept unless it exceeds the budget or a new one avoids 5 % of its error. gap
// bounds the excess over the optimum, as a fraction.
func (c *Chooser) Choose(dst []int, worth []float64, options [][]Option, budget float64, current []int) (gap float64) {
	p := &c.problem
	*p = tile360.Problem{
		Seen: p.Seen[:0], Miss: p.Miss[:0], Bytes: p.Bytes[:0], Distortion: p.Distortion[:0],
		Budget: budget,
	}
	if len(options) > 0 {
		p.Qualities = len(options[0])
	}
	for i, w := range worth {
		p.Seen = append(p.Seen, max(w, floor))
		p.Miss = append(p.Miss, missing)
		for _, o := range options[i] {
			p.Bytes = append(p.Bytes, o.Rate)
			p.Distortion = append(p.Distortion, o.Error)
		}
	}
	c.solver.Refine = tile360.DefaultRefine
	c.solver.OWS(p, &c.plan)
	if present, ok := c.loss(current); ok && c.plan.Loss > present*(1-keep) {
		copy(dst, current)
		return max(0, present-c.plan.Bound) / max(c.plan.Bound, 1e-12)
	}
	copy(dst, c.plan.Quality)
	return c.plan.Gap()
}

// loss returns the weighted error of a choice. ok is false if it exceeds the budget or is not one
// of the cameras.
func (c *Chooser) loss(choice []int) (loss float64, ok bool) {
	p := &c.problem
	if len(choice) != len(p.Seen) {
		return 0, false
	}
	rate := 0.0
	for i, q := range choice {
		if q >= p.Qualities {
			return 0, false
		}
		if q < 0 {
			loss += p.Seen[i] * p.Miss[i]
			continue
		}
		rate += p.Bytes[i*p.Qualities+q]
		loss += p.Seen[i] * p.Distortion[i*p.Qualities+q]
	}
	return loss, rate <= p.Budget
}
