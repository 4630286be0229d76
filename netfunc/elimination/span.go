package elimination

import "holocast/netfunc/pathset"

// spanSlots is how many steps a window of time moves in to pass once.
const spanSlots = 50

// maxSpans is how many times Span CompleteSpan may be.
const maxSpans = 20

// spanWindow holds the packets of the last Span, and for the second rule of the last
// CompleteSpan. It moves in steps of Span/spanSlots, so that its memory does not
// depend on the rate, and the rules are asked when it has moved.
type spanWindow struct {
	step  int64 // ns
	least uint32
	slack float64

	slots       []slot // the last ones; slot number s is at s mod len(slots)
	first, last int64  // slot numbers: where the window began, and the one being filled
	empty       bool
	short, long sum
}

// slot is the packets of one step.
type slot struct {
	packets uint32
	rewards [pathset.Max]uint32
}

// sum is the packets of the last slots; of the one being filled too.
type sum struct {
	slots int64
	slot
}

func newSpanWindow(c Config) *spanWindow {
	step := int64(c.Span) / spanSlots
	w := &spanWindow{step: step, least: uint32(c.W), slack: c.Slack, empty: true}
	w.short.slots = spanSlots + 1
	w.long.slots = (int64(c.CompleteSpan)+step-1)/step + 1
	w.slots = make([]slot, w.long.slots)
	return w
}

func (w *spanWindow) slot(number int64) *slot { return &w.slots[number%int64(len(w.slots))] }

func (w *spanWindow) add(at int64, reward pathset.Set) (moved bool) {
	number := at / w.step
	switch {
	case w.empty:
		w.empty, w.first, w.last = false, number, number
	case number-w.last >= int64(len(w.slots)):
		clear(w.slots) // nothing is left of what was
		w.short.slot, w.long.slot = slot{}, slot{}
		w.last, moved = number, true
	default:
		for w.last < number {
			w.last++
			if out := w.last - w.short.slots; out >= w.first {
				w.short.drop(w.slot(out))
			}
			w.long.drop(w.slot(w.last)) // which is len(slots) before it
			*w.slot(w.last) = slot{}
			moved = true
		}
	}
	s := w.slot(w.last)
	s.packets++
	w.short.packets++
	w.long.packets++
	for r := reward; r != 0; r &= r - 1 {
		i := r.First() - 1
		s.rewards[i]++
		w.short.rewards[i]++
		w.long.rewards[i]++
	}
	return moved
}

// drop takes the packets of a slot out.
func (t *sum) drop(s *slot) {
	t.packets -= s.packets
	for i := range t.rewards {
		t.rewards[i] -= s.rewards[i]
	}
}

// filled tells whether the window has passed once and holds enough packets.
func (w *spanWindow) filled(t *sum) bool {
	return w.last-w.first >= t.slots && t.packets >= w.least
}

func (w *spanWindow) judge(paths pathset.Set) (useless, complete pathset.Set) {
	short, long := w.filled(&w.short), w.filled(&w.long)
	few := uint32(float64(w.short.packets) * w.slack)
	all := w.long.packets - uint32(float64(w.long.packets)*w.slack)
	for s := paths; s != 0; s &= s - 1 {
		i := s.First() - 1
		if short && w.short.rewards[i] <= few {
			useless |= s & -s
		}
		if long && w.long.rewards[i] >= all {
			complete |= s & -s
		}
	}
	return useless, complete
}

func (w *spanWindow) sums() ([pathset.Max]uint32, uint32) { return w.short.rewards, w.short.packets }

func (w *spanWindow) began() int64 { return max(w.first, w.last-w.short.slots+1) * w.step }

func (w *spanWindow) reset() {
	clear(w.slots)
	w.short.slot, w.long.slot = slot{}, slot{}
	w.empty = true
}
