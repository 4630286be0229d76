package elimination

import "holocast/netfunc/pathset"

// window holds the rewards that the two rules evaluate.
type window interface {
	// add counts a settled packet with T_min(n) = at and removes expired packets. It reports
	// whether to apply the rules.
	add(at int64, reward pathset.Set) bool
	// judge returns the paths of P that are useless in the window, and the paths that suffice
	// alone. Both sets are empty until the window is full.
	judge(paths pathset.Set) (useless, complete pathset.Set)
	// sums returns N_i and the number of packets. last selects the window that decides whether to
	// go from two paths to one.
	sums(last bool) (rewards [pathset.Max]uint32, packets uint32)
	// began returns a time at or before T_min of the oldest packet in the window.
	began(last bool) int64
	// reset empties the window. careful lengthens the window that decides whether to go from two
	// paths to one.
	reset(careful bool)
}

func newWindow(c Config) window {
	if c.Span == 0 {
		return newPacketWindow(c)
	}
	return newSpanWindow(c)
}

// packetWindow holds the last W packets, as printed.
type packetWindow struct {
	n       uint64        // number of packets so far
	rewards []pathset.Set // R_i of packet n is at n mod W
	times   []int64       // T_min
	count   [pathset.Max]uint32
	slack   uint32 // tolerance of N_i from 0 and W
}

func newPacketWindow(c Config) *packetWindow {
	return &packetWindow{
		rewards: make([]pathset.Set, c.W),
		times:   make([]int64, c.W),
		slack:   uint32(float64(c.W) * c.Slack),
	}
}

func (w *packetWindow) add(at int64, reward pathset.Set) bool {
	place := w.n % uint64(len(w.rewards))
	left := w.rewards[place] // R_i(n−W); none before packet W
	w.rewards[place], w.times[place] = reward, at
	w.n++
	for s := reward &^ left; s != 0; s &= s - 1 {
		w.count[s.First()-1]++
	}
	for s := left &^ reward; s != 0; s &= s - 1 {
		w.count[s.First()-1]--
	}
	return w.n > uint64(len(w.rewards))
}

func (w *packetWindow) judge(paths pathset.Set) (useless, complete pathset.Set) {
	if w.n <= uint64(len(w.rewards)) {
		return 0, 0
	}
	for s := paths; s != 0; s &= s - 1 {
		switch n := w.count[s.First()-1]; {
		case n <= w.slack:
			useless |= s & -s
		case n >= uint32(len(w.rewards))-w.slack:
			complete |= s & -s
		}
	}
	return useless, complete
}

func (w *packetWindow) sums(bool) ([pathset.Max]uint32, uint32) {
	return w.count, uint32(min(w.n, uint64(len(w.rewards))))
}

func (w *packetWindow) began(bool) int64 {
	if w.n < uint64(len(w.times)) {
		return w.times[0]
	}
	return w.times[w.n%uint64(len(w.times))]
}

func (w *packetWindow) reset(bool) {
	w.n, w.count = 0, [pathset.Max]uint32{}
	clear(w.rewards)
}
