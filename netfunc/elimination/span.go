package elimination

import "holocast/netfunc/pathset"

// spanSlots is the number of slots that Span is divided into.
const spanSlots = 50

// maxSpans is the maximum CompleteSpan in multiples of Span.
const maxSpans = 20

// spanWindow holds the packets of the last Span, LastSpan and CompleteSpan, or the last W packets if a
// slow flow has fewer in that time. It advances in steps of Span/spanSlots, so that its memory does
// not depend on the rate, and the rules are applied after each step.
type spanWindow struct {
	step   int64 // length of a slot, ns
	slack  float64
	recent *packetWindow // the last W packets

	slots       []slot // ring; slot number s is at s mod len(slots)
	first, last int64  // slot numbers: start of the window, and the current slot
	empty       bool
	short, long sum
	// mid covers LastSpan, the window that decides whether to go from two paths to one. reset(true)
	// extends it to long.slots.
	mid      sum
	midSlots int64
}

// slot holds the packets of one step.
type slot struct {
	packets uint32
	rewards [pathset.Max]uint32
}

// sum holds the packets of the last slots, including the current one.
type sum struct {
	slots int64
	slot
}

func newSpanWindow(c Config) *spanWindow {
	step := int64(c.Span) / spanSlots
	w := &spanWindow{step: step, slack: c.Slack, recent: newPacketWindow(c), empty: true}
	w.short.slots = spanSlots + 1
	lastSpan := c.LastSpan
	if lastSpan == 0 {
		lastSpan = min(2*c.Span, c.CompleteSpan)
	}
	w.long.slots = (int64(c.CompleteSpan)+step-1)/step + 1
	w.midSlots = (int64(lastSpan)+step-1)/step + 1
	w.mid.slots = w.midSlots
	w.slots = make([]slot, w.long.slots)
	return w
}

func (w *spanWindow) slot(number int64) *slot { return &w.slots[number%int64(len(w.slots))] }

func (w *spanWindow) add(at int64, reward pathset.Set) (moved bool) {
	w.recent.add(at, reward)
	number := at / w.step
	switch {
	case w.empty:
		w.empty, w.first, w.last = false, number, number
	case number-w.last >= int64(len(w.slots)):
		clear(w.slots) // everything has expired
		w.short.slot, w.mid.slot, w.long.slot = slot{}, slot{}, slot{}
		w.last, moved = number, true
	default:
		for w.last < number {
			w.last++
			for _, t := range []*sum{&w.short, &w.mid} {
				if out := w.last - t.slots; out >= w.first {
					t.drop(w.slot(out))
				}
			}
			w.long.drop(w.slot(w.last)) // the oldest slot, whose place in the ring is reused
			*w.slot(w.last) = slot{}
			moved = true
		}
	}
	s := w.slot(w.last)
	s.packets++
	w.short.packets++
	w.mid.packets++
	w.long.packets++
	for r := reward; r != 0; r &= r - 1 {
		i := r.First() - 1
		s.rewards[i]++
		w.short.rewards[i]++
		w.mid.rewards[i]++
		w.long.rewards[i]++
	}
	return moved
}

// drop subtracts the packets of a slot.
func (t *sum) drop(s *slot) {
	t.packets -= s.packets
	for i := range t.rewards {
		t.rewards[i] -= s.rewards[i]
	}
}

// counts returns the content of a window, or of the last W packets if the window has fewer, and
// whether the window is full.
func (w *spanWindow) counts(t *sum) (s slot, filled bool) {
	s = t.slot
	if w.sparse(t) {
		s.rewards, s.packets = w.recent.sums(false)
	}
	return s, w.last-w.first >= t.slots && s.packets >= uint32(len(w.recent.rewards))
}

// sparse reports whether a window has fewer than W packets.
func (w *spanWindow) sparse(t *sum) bool { return t.packets < uint32(len(w.recent.rewards)) }

func (w *spanWindow) judge(paths pathset.Set) (useless, complete pathset.Set) {
	useless = w.useless(&w.short, paths)
	if (paths &^ useless).Len() == 1 {
		useless &^= w.spare(useless)
	}
	if long, filled := w.counts(&w.long); filled {
		all := long.packets - w.few(long)
		for s := paths; s != 0; s &= s - 1 {
			if long.rewards[s.First()-1] >= all {
				complete |= s & -s
			}
		}
	}
	return useless, complete
}

// few returns the largest number of rewards that counts as none.
func (w *spanWindow) few(s slot) uint32 { return uint32(float64(s.packets) * w.slack) }

// useless returns the paths whose rewards in a window count as none.
func (w *spanWindow) useless(t *sum, paths pathset.Set) (useless pathset.Set) {
	c, filled := w.counts(t)
	if !filled {
		return 0
	}
	for s := paths; s != 0; s &= s - 1 {
		if c.rewards[s.First()-1] <= w.few(c) {
			useless |= s & -s
		}
	}
	return useless
}

// spare returns the best of the paths that are about to be removed. It must stay, because otherwise a
// single path would remain. If all of them are useless in mid, spare returns none.
func (w *spanWindow) spare(paths pathset.Set) (best pathset.Set) {
	if w.useless(&w.mid, paths) == paths {
		return 0
	}
	mid, _ := w.counts(&w.mid)
	most := uint32(0)
	for s := paths; s != 0; s &= s - 1 {
		if n := mid.rewards[s.First()-1]; best == 0 || n > most {
			best, most = s&-s, n
		}
	}
	return best
}

// of returns the window that decides whether to go from two paths to one if last is set, and otherwise
// the window that removes other paths.
func (w *spanWindow) of(last bool) *sum {
	if last {
		return &w.mid
	}
	return &w.short
}

func (w *spanWindow) sums(last bool) ([pathset.Max]uint32, uint32) {
	c, _ := w.counts(w.of(last))
	return c.rewards, c.packets
}

func (w *spanWindow) began(last bool) int64 {
	t := w.of(last)
	if w.sparse(t) {
		return w.recent.began(last)
	}
	return max(w.first, w.last-t.slots+1) * w.step
}

func (w *spanWindow) reset(careful bool) {
	clear(w.slots)
	w.recent.reset(careful)
	w.short.slot, w.mid.slot, w.long.slot = slot{}, slot{}, slot{}
	w.empty = true
	w.mid.slots = w.midSlots
	if careful {
		w.mid.slots = w.long.slots
	}
}
