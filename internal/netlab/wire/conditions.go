package wire

import "time"

// Conditions are what one direction of a path is like. The zero value is a perfect wire.
type Conditions struct {
	Rate      float64       // bit/s; 0: sending takes no time and nothing queues
	Overhead  int           // bytes a packet takes on the wire beyond its Ethernet frame
	Delay     time.Duration // from having been sent to departure; not used with Variation
	Variation *Variation
	Reorder   bool // packets overtake others whose delay was drawn longer
	Loss      float64
	Burst     *BurstLoss // adds to Loss
	// Drop-tail limits of what waits and is being sent; 0: none.
	QueueBytes   int
	QueuePackets int
}

// Variation draws the delay anew from [Min, Max] whenever a time drawn from [EveryMin,
// EveryMax] has passed, all uniformly.
type Variation struct {
	Min, Max           time.Duration
	EveryMin, EveryMax time.Duration
}

// BurstLoss is the Gilbert–Elliott model: every packet advances a chain of a good and a bad
// state, and is lost with a probability of the state's.
type BurstLoss struct {
	Average float64 // share of all packets lost in the bad state
	Length  float64 // packets the bad state lasts, in the mean; ≥ 1
	InBad   float64 // probability of loss in the bad state
}

// transitions returns the probabilities of entering and of leaving the bad state.
func (b BurstLoss) transitions() (toBad, toGood float64) {
	toGood = 1 / b.Length
	share := b.Average / b.InBad // of packets that see the bad state
	return toGood * share / (1 - share), toGood
}

// LossRate returns the probability that a packet is lost, in the long run.
func (c Conditions) LossRate() float64 {
	if c.Burst == nil {
		return c.Loss
	}
	bad := c.Burst.Average / c.Burst.InBad
	return (1-bad)*c.Loss + c.Burst.Average
}

// A Change is the conditions from a moment on.
type Change struct {
	At time.Duration
	Conditions
}
