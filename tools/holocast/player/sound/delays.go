package sound

import (
	"slices"
	"time"
)

// The delay of pictures is determined over the last 2 s.
const (
	recentFor = 2 * time.Second
	maxRecent = 512
)

// delays holds the delays of the newest pictures.
type delays struct {
	recent   []shown
	fallback *int64 // without pictures, µs
}

// shown is a displayed picture.
type shown struct {
	at    time.Time
	delay int64 // µs
}

func (d *delays) add(v int64, at time.Time) {
	drop := 0
	for drop < len(d.recent) && (at.Sub(d.recent[drop].at) > recentFor || len(d.recent)-drop >= maxRecent) {
		drop++
	}
	d.recent = append(slices.Delete(d.recent, 0, drop), shown{at, v})
}

// median returns the median delay in µs, or the fallback if there are no recent pictures. ok is
// false if there is neither.
func (d *delays) median() (delay int64, ok bool) {
	if len(d.recent) == 0 {
		if d.fallback != nil {
			return *d.fallback, true
		}
		return 0, false
	}
	sorted := make([]int64, 0, maxRecent)
	for _, x := range d.recent {
		sorted = append(sorted, x.delay)
	}
	slices.Sort(sorted)
	return sorted[len(sorted)/2], true
}
