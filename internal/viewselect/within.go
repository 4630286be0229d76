package viewselect

import "math"

// UnknownError returns the assumed Option.Error of a camera's quality, 0 being the best: errors grow
// fourfold from one quality to the next.
func UnknownError(quality int) float64 { return math.Pow(4, float64(quality)) - 1 }

// Budget returns the total bit/s of all cameras at a level, 0 being the best quality. Cameras with
// fewer qualities count with their last.
func Budget(options [][]Option, level int) (sum float64) {
	for _, list := range options {
		sum += list[min(level, len(list)-1)].Rate
	}
	return sum
}

// ChooseWithin is Choose for cameras with different numbers of qualities, ordered by descending
// bit rate. A camera that does not fit gets its last quality: no camera disappears, and the total
// may exceed the budget.
func (c *Chooser) ChooseWithin(
	dst []int, worth []float64, options [][]Option, budget float64, current []int,
) (gap float64) {
	count := 0
	for _, list := range options {
		count = max(count, len(list))
	}
	c.padded = c.padded[:0]
	for _, list := range options {
		// A quality of rate 0 is not offered.
		c.padded = append(c.padded, append(list[:len(list):len(list)], make([]Option, count-len(list))...))
	}
	gap = c.Choose(dst, worth, c.padded, budget, current)
	for i, q := range dst {
		if q < 0 {
			dst[i] = len(options[i]) - 1
		}
	}
	return gap
}
