package congestion

import "time"

// Constants of RFC 9406 §4.3.
const (
	hystartMinRTTThresh  = 4 * time.Millisecond
	hystartMaxRTTThresh  = 16 * time.Millisecond
	hystartRTTDivisor    = 8
	hystartSamples       = 8
	hystartGrowthDivisor = 4
	hystartCSSRounds     = 5
	hystartNoRTT         = time.Duration(1<<63 - 1)
)

// hystart implements HyStart++ (RFC 9406 §4.2): slow start ends when the RTT of a round rises,
// after a few rounds of slower growth that confirm the rise.
type hystart struct {
	roundEnd    int64 // value of State.Delivered that ends the round
	lastMinRTT  time.Duration
	roundMinRTT time.Duration
	samples     int
	cssBaseline time.Duration // RTT below which the rise was spurious; 0 = not in CSS
	cssRounds   int
}

func newHystart() hystart {
	return hystart{lastMinRTT: hystartNoRTT, roundMinRTT: hystartNoRTT}
}

// update processes an ACK in slow start. It returns the increase of the window and whether slow
// start is over.
func (h *hystart) update(c *State, s *Sample) (increase int64, done bool) {
	increase = s.NewlyAcked
	if h.cssBaseline > 0 {
		increase /= hystartGrowthDivisor
	}
	if s.PriorDelivered >= h.roundEnd {
		h.roundEnd = c.Delivered
		if h.cssBaseline > 0 {
			h.cssRounds++
		}
		h.lastMinRTT, h.roundMinRTT, h.samples = h.roundMinRTT, hystartNoRTT, 0
		if h.cssRounds >= hystartCSSRounds {
			return increase, true
		}
	}
	h.roundMinRTT = min(h.roundMinRTT, s.RTT)
	h.samples++
	if h.samples < hystartSamples || h.lastMinRTT == hystartNoRTT {
		return increase, false
	}
	switch {
	case h.cssBaseline > 0 && h.roundMinRTT < h.cssBaseline:
		h.cssBaseline, h.cssRounds = 0, 0
	case h.cssBaseline == 0:
		thresh := max(hystartMinRTTThresh, min(h.lastMinRTT/hystartRTTDivisor, hystartMaxRTTThresh))
		if h.roundMinRTT >= h.lastMinRTT+thresh {
			h.cssBaseline, h.cssRounds = h.roundMinRTT, 0
		}
	}
	return increase, false
}
