package jitter

import "slices"

// delay finds the delay within which 99 % of the recent packets arrive. It ignores a stall of the
// network, after which packets arrive in a burst, unless stalls recur.
type delay struct {
	recent []int64 // µs from capture to the earliest sound, in order of arrival from at
	sorted []int64 // the same, ascending
	at     int
	count  int
	target int64
	stall  int  // count at the newest packet that a stall delayed
	recurs bool // another stall preceded it by less than recurrence
	burst  bool // the newest packets arrived together after a stall
}

// observe adds a packet. bunched tells that it arrived together with the one before.
func (d *delay) observe(v int64, bunched bool) {
	d.count++
	if d.stalled(v, bunched) {
		return
	}
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

// usual returns the delay within which 90 % of the recent packets arrive.
func (d *delay) usual() int64 {
	if len(d.sorted) == 0 {
		return 0
	}
	return min(d.sorted[(90*len(d.sorted)+99)/100-1]+headroom, maxTarget)
}

// stalled reports whether a packet belongs to the burst after a stall that does not recur.
func (d *delay) stalled(v int64, bunched bool) bool {
	d.burst = d.burst && bunched
	if d.count > firstCount && v > d.target+surplus {
		if since := d.count - d.stall; since > apart {
			d.recurs = d.stall > 0 && since < recurrence
		}
		d.stall, d.burst = d.count, true
	}
	return d.burst && bunched && !d.recurs && v > d.target
}
