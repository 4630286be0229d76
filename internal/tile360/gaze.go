package tile360

import "math"

// Sample is a viewer's gaze at a time, in seconds on the medium's timeline or another steady clock.
type Sample struct {
	T    float64
	Gaze Vec
}

const (
	historySpan = 0.5 // seconds of gaze used by the regression
	historySize = 64  // maximum samples
)

// Gaze predicts one viewer's gaze. The zero value is ready to use; it is not safe for concurrent
// use.
type Gaze struct {
	// Crowd holds the gaze of other viewers of the same medium, or nil.
	Crowd *Crowd

	samples []Sample // of the last historySpan, oldest first
}

// Add adds a sample. Times must ascend; otherwise, as after a seek, the history restarts.
func (g *Gaze) Add(s Sample) {
	s.Gaze = s.Gaze.Unit()
	n := len(g.samples)
	if n > 0 && !(s.T > g.samples[n-1].T) {
		g.samples = g.samples[:0]
	}
	from := 0
	for from < len(g.samples) && (g.samples[from].T < s.T-historySpan-1e-9 || len(g.samples)-from >= historySize) {
		from++
	}
	g.samples = append(g.samples[:copy(g.samples, g.samples[from:])], s)
}

// Last returns the last sample or, without one, the zero time and the forward gaze.
func (g *Gaze) Last() Sample {
	if n := len(g.samples); n > 0 {
		return g.samples[n-1]
	}
	return Sample{Gaze: Vec{0, 0, 1}}
}

// velocity returns the slope of a linear regression over the history, in radians per second to the
// right and up as seen from the last gaze.
func (g *Gaze) velocity() (right, up float64) {
	last, n := g.Last(), float64(len(g.samples))
	if n < 2 {
		return 0, 0
	}
	var t, x, y, tt, tx, ty float64
	for _, s := range g.samples {
		a, b := last.Gaze.offset(s.Gaze)
		d := s.T - last.T
		t += d
		x += a
		y += b
		tt += d * d
		tx += d * a
		ty += d * b
	}
	spread := tt - t*t/n
	if spread < 1e-9 {
		return 0, 0
	}
	return (tx - t*x/n) / spread, (ty - t*y/n) / spread
}

// Linear extrapolates the gaze ahead seconds after the last sample by linear regression over the
// last half second, in the tangent plane at the last gaze.
func (g *Gaze) Linear(ahead float64) Vec {
	right, up := g.velocity()
	right, up = limited(right*ahead, up*ahead, math.Pi/2)
	return g.Last().Gaze.moved(right, up)
}

func limited(x, y, most float64) (float64, float64) {
	if n := math.Sqrt(x*x + y*y); n > most {
		return x * most / n, y * most / n
	}
	return x, y
}

// Predict combines the viewer's own motion with the crowd's gaze. It adds the regression's and the
// crowd's offset from the last gaze, with the weights that fit recorded head movements best at that
// horizon (model.go).
func (g *Gaze) Predict(ahead float64) Vec {
	right, up := g.velocity()
	right, up = limited(right*ahead, up*ahead, math.Pi/2)
	last := g.Last()
	m := modelAt(ahead)
	if g.Crowd == nil {
		return last.Gaze.moved(m.aloneX*right, m.aloneY*up)
	}
	c, ok := g.Crowd.Mean(last, last.T+ahead)
	if !ok {
		return last.Gaze.moved(m.aloneX*right, m.aloneY*up)
	}
	x, y := last.Gaze.offset(c)
	return last.Gaze.moved(m.ownX*right+m.crowdX*x, m.ownY*up+m.crowdY*y)
}

// Looks appends possible gazes ahead seconds after the last sample, with probabilities that sum to
// p. They surround Predict's direction with the errors measured in recorded head movements of the
// same speed and, if there is a crowd, include its viewers' gazes.
func (g *Gaze) Looks(ahead, p float64, looks []Look) []Look {
	centre := g.Predict(ahead)
	right, up := g.velocity()
	e := errorAt(ahead, math.Sqrt(right*right+up*up), g.Crowd != nil)
	if g.Crowd != nil {
		share := e.crowd
		before := len(looks)
		looks = g.Crowd.looks(g.Last(), g.Last().T+ahead, p*share, looks)
		if len(looks) > before {
			p -= p * share
		}
	}
	// Rings of equal probability, each with equally probable directions, rotated from ring to ring.
	per := p / float64(len(errorRings)*ringLooks)
	for i, radius := range errorRings {
		for k := range ringLooks {
			s, c := math.Sincos(2 * math.Pi * (float64(k) + 0.5*float64(i%2)) / ringLooks)
			x, y := limited(radius*e.x*c, radius*e.y*s, math.Pi)
			looks = append(looks, Look{centre.moved(x, y), per})
		}
	}
	return looks
}

const ringLooks = 8
