package jitter

import "slices"

// delay finds the delay within which 99 % of the recent packets arrive.
type delay struct {
	recent []int64 // µs from capture to the earliest sound, in order of arrival from at
	sorted []int64 // the same, ascending
	at     int
	count  int
	target int64
}

// observe adds a packet.
func (d *delay) observe(v int64) {
	if len(d.recent) < window {
		d.recent = append(d.recent, v)
	} else {
		i, _ := slices.BinarySearch(d.sorted, d.recent[d.at])
		d.sorted = slices.Delete(d.sorted, i, i+1)
		d.recent[d.at] = v
	}
	i, _ := slices.BinarySearch(d.sorted, v)
	d.sorted = slices.Insert(d.sorted, i, v)
	d.at = (d.at + 1) % window
	d.count++
	wanted := d.sorted[(99*len(d.sorted)+99)/100-1] + headroom
	if d.count < firstCount {
		wanted += early
	}
	wanted = min(wanted, maxTarget)
	// Each change is audible as a stretch, so small reductions are ignored.
	if d.count <= firstCount || wanted > d.target || wanted < d.target-2*headroom {
		d.target = wanted
	}
}
