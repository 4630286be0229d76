package sound

import "slices"

// recentDelays is the number of pictures that determine their delay: 2 s at 30 per second.
const recentDelays = 61

// delays holds the delays of the newest pictures, µs.
type delays struct {
	recent   []int64
	at       int
	fallback *int64 // without pictures
}

func (d *delays) add(v int64) {
	if len(d.recent) < recentDelays {
		d.recent = append(d.recent, v)
		return
	}
	d.recent[d.at] = v
	d.at = (d.at + 1) % recentDelays
}

func (d *delays) median() (int64, bool) {
	if len(d.recent) == 0 && d.fallback != nil {
		return *d.fallback, true
	}
	if len(d.recent) == 0 {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(d.recent))
	return sorted[len(sorted)/2], true
}
