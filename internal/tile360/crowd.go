package tile360

import (
	"errors"
	"math"
)

// Crowd holds the gaze of earlier viewers of a medium over time.
type Crowd struct {
	Rate    float64 // samples per second
	Viewers [][]Vec // per viewer, from the medium's start; lengths may differ
}

// Check returns an error if the traces are invalid.
func (c *Crowd) Check() error {
	if !(c.Rate > 0) || c.Rate > 1000 {
		return errors.New("a crowd's traces need more than 0 and at most 1000 samples per second")
	}
	return nil
}

// crowdFocus sets how fast a viewer's weight, exp(crowdFocus·(cos a − 1)), falls with the angle a
// between that viewer's gaze and ours.
const crowdFocus = 4

// at returns a viewer's gaze at a time, or false if it is unknown.
func (c *Crowd) at(viewer int, t float64) (Vec, bool) {
	v := c.Viewers[viewer]
	i := int(math.Floor(t*c.Rate + 0.5))
	if i < 0 || i >= len(v) {
		return Vec{}, false
	}
	return v[i], true
}

// weight returns the weight of a viewer in predicting the gaze of another viewer, whose current
// sample is now. It is high if their gazes were close at that time.
func (c *Crowd) weight(viewer int, now Sample) float64 {
	then, ok := c.at(viewer, now.T)
	if !ok {
		return 0
	}
	return math.Exp(crowdFocus * (then.Dot(now.Gaze) - 1))
}

// Mean returns the crowd's mean direction at t seconds from the medium's start, weighted for a
// viewer whose current sample is now. It returns false if no trace reaches t.
func (c *Crowd) Mean(now Sample, t float64) (Vec, bool) {
	var sum Vec
	for i := range c.Viewers {
		v, ok := c.at(i, t)
		if w := c.weight(i, now); ok && w > 0 {
			sum.X += w * v.X
			sum.Y += w * v.Y
			sum.Z += w * v.Z
		}
	}
	if sum.Dot(sum) < 1e-18 {
		return Vec{}, false
	}
	return sum.Unit(), true
}

// looks appends the crowd's directions at t with probabilities that sum to p, or nothing if no
// trace reaches t.
func (c *Crowd) looks(now Sample, t, p float64, looks []Look) []Look {
	from, sum := len(looks), 0.0
	for i := range c.Viewers {
		v, ok := c.at(i, t)
		if w := c.weight(i, now); ok && w > 0 {
			looks = append(looks, Look{v, w})
			sum += w
		}
	}
	for i := from; i < len(looks); i++ {
		looks[i].P *= p / sum
	}
	return looks
}
