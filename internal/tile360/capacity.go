package tile360

import "slices"

// Capacity predicts the network's capacity from past rates. The zero value is ready to use; it is
// not safe for concurrent use.
//
// The prediction is the harmonic mean of the last samples times a ratio. The ratio has the
// distribution of past ratios between a sample and the preceding mean. Initially these are ratios
// measured in 5G networks on foot and in a car, which later ones replace.
type Capacity struct {
	recent []float64 // bytes per second, at most meanOf
	ratios []float64 // sample / previous mean, newest last; at most ratiosKept
	sorted []float64
	guess  bool // recent is a guess
}

const (
	meanOf     = 3
	ratiosKept = 40
	mostRatio  = 10
)

// priorRatios are the centres of the deciles of second-by-second ratios in the traces of 5Gophers
// (Narayanan et al., WWW 2020).
var priorRatios = [...]float64{0.2, 0.54, 0.84, 0.93, 0.99, 1.04, 1.11, 1.2, 1.51, 4.07}

// Guess sets a rate, in bytes per second, to use until one is measured. It returns false if one has
// been measured.
func (c *Capacity) Guess(rate float64) bool {
	if len(c.recent) > 0 && !c.guess {
		return false
	}
	c.recent, c.guess = append(c.recent[:0], max(rate, 1)), true
	c.sorted = append(c.sorted[:0], priorRatios[:]...)
	return true
}

// Add adds a rate, in bytes per second, measured while there was data to send. Rates below 1 count
// as 1.
func (c *Capacity) Add(rate float64) {
	if !(rate >= 1) {
		rate = 1
	}
	if len(c.ratios) == 0 {
		c.ratios = append(c.ratios, priorRatios[:]...)
	}
	if c.guess {
		c.recent, c.guess = c.recent[:0], false
	}
	if mean := c.Mean(); mean > 0 {
		if len(c.ratios) == ratiosKept {
			c.ratios = c.ratios[:copy(c.ratios, c.ratios[1:])]
		}
		c.ratios = append(c.ratios, min(rate/mean, mostRatio))
	}
	if len(c.recent) == meanOf {
		c.recent = c.recent[:copy(c.recent, c.recent[1:])]
	}
	c.recent = append(c.recent, rate)
	c.sorted = append(c.sorted[:0], c.ratios...)
	slices.Sort(c.sorted)
}

// Mean returns the harmonic mean of the last samples in bytes per second, or 0 without samples.
func (c *Capacity) Mean() float64 {
	if len(c.recent) == 0 {
		return 0
	}
	sum := 0.0
	for _, r := range c.recent {
		sum += 1 / r
	}
	return float64(len(c.recent)) / sum
}

// Percentile returns the rate, in bytes per second, that the network exceeds with probability 100 −
// p percent, or 0 without samples.
func (c *Capacity) Percentile(p float64) float64 {
	n := len(c.sorted)
	if n == 0 {
		return 0
	}
	// Interpolate between ranks; each sample is the centre of its share.
	at := max(0, min(float64(n-1), p/100*float64(n)-0.5))
	i := int(at)
	r := c.sorted[i]
	if i+1 < n {
		r += (at - float64(i)) * (c.sorted[i+1] - r)
	}
	return c.Mean() * r
}

// Distribution appends the predicted capacity in bytes for a number of seconds, as equally probable
// values in ascending order (see Problem.Capacity).
func (c *Capacity) Distribution(seconds float64, to []float64) []float64 {
	mean := c.Mean()
	for _, r := range c.sorted {
		to = append(to, mean*r*seconds)
	}
	return to
}

// Train measures the network's rate from the frames that start a GoP. A publisher sends those
// frames of all tiles together, so they arrive at the network's rate, however little the viewer
// requests. The zero value is ready to use; it is not safe for concurrent use.
type Train struct {
	group       uint64
	begun       bool
	bytes       float64 // total so far
	first, last float64 // arrival times, s
	from, to    float64 // totals at first and last
}

// Minimum size of a train for a measurement, and the duration that shorter trains count as.
const (
	leastTrain     = 3000  // bytes
	leastTrainTime = 0.005 // s
)

// Add adds a completely received object of any track, since all tracks use the network. at is in
// seconds. begins marks the first object of a tile's GoP, which is group.
func (t *Train) Add(at float64, bytes int, group uint64, begins bool) {
	t.bytes += float64(bytes)
	switch {
	case !begins || t.begun && group < t.group:
	case !t.begun || group > t.group:
		t.begun, t.group, t.first, t.last, t.from, t.to = true, group, at, at, t.bytes, t.bytes
	case at >= t.last:
		t.last, t.to = at, t.bytes
	}
}

// Rate returns the rate at which a GoP's first frames arrived, in bytes per second, or 0 if there
// were too few bytes or the GoP is not the newest.
func (t *Train) Rate(group uint64) float64 {
	if !t.begun || group != t.group || t.to-t.from < leastTrain {
		return 0
	}
	return (t.to - t.from) / max(t.last-t.first, leastTrainTime)
}
