package tile360

import (
	"errors"
	"math"
)

// Crowd is what several viewers of one medium looked at: the map of the crowd's attention
// over time.
type Crowd struct {
	Rate    float64 // samples per second
	Viewers [][]Vec // of each viewer, from the medium's start on; they may differ in length
}

// Check returns an error that names what is wrong with the traces.
func (c *Crowd) Check() error {
	if !(c.Rate > 0) || c.Rate > 1000 {
		return errors.New("a crowd's traces need between 0 and 1000 samples per second")
	}
	return nil
}

// crowdFocus is the concentration of the weight that a viewer has who looked elsewhere than
// the one predicted: exp(crowdFocus·(cos angle − 1)).
const crowdFocus = 4

// at returns where a viewer looked at a time, and whether that is known.
func (c *Crowd) at(viewer int, t float64) (Vec, bool) {
	v := c.Viewers[viewer]
	i := int(math.Floor(t*c.Rate + 0.5))
	if i < 0 || i >= len(v) {
		return Vec{}, false
	}
	return v[i], true
}

// weight is how much a viewer says about one who looked at now: much where both looked the
// same way then.
func (c *Crowd) weight(viewer int, now Sample) float64 {
	then, ok := c.at(viewer, now.T)
	if !ok {
		return 0
	}
	return math.Exp(crowdFocus * (then.Dot(now.Gaze) - 1))
}

// Mean returns the mean direction of the crowd at a time, seconds from the medium's start, as
// it concerns a viewer who looked at now; false where no trace reaches that far.
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

// looks appends where the crowd looked, with probabilities that sum to p, or nothing where no
// trace reaches that far.
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
