package moqt

import (
	"slices"

	"holocast/internal/moqt/wire"
)

// requestIDs checks the peer's request IDs (§10.1) for parity and reuse. IDs arrive out of order,
// because streams do, and IDs of streams reset before delivery never arrive. The number of
// remembered gaps is bounded. At the bound, the lowest gap is forgotten and its IDs are no longer
// checked.
type requestIDs struct {
	parity uint64
	next   uint64 // largest ID seen + 2
	floor  uint64 // IDs below are not checked
	gaps   []gap  // unseen IDs from floor on, ascending
}

// gap is a range of unseen IDs, from first up to but excluding next.
type gap struct{ first, next uint64 }

func (r *requestIDs) check(id uint64) error {
	if id&1 != r.parity {
		return &wire.Error{Code: wire.InvalidRequestID, Msg: "request ID of the wrong parity"}
	}
	switch {
	case id < r.floor:
		return nil
	case id >= r.next:
		if id > r.next {
			r.gaps = append(r.gaps, gap{r.next, id})
		}
		r.next = id + 2
	default:
		i := r.find(id)
		if i < 0 {
			return &wire.Error{Code: wire.InvalidRequestID, Msg: "request ID used twice"}
		}
		g := r.gaps[i]
		var rest []gap
		if g.first < id {
			rest = append(rest, gap{g.first, id})
		}
		if id+2 < g.next {
			rest = append(rest, gap{id + 2, g.next})
		}
		r.gaps = slices.Replace(r.gaps, i, i+1, rest...)
	}
	if len(r.gaps) > maxRequestGaps {
		r.floor = r.gaps[0].next
		r.gaps = slices.Delete(r.gaps, 0, 1)
	}
	return nil
}

// find returns the index of the gap that contains id, or -1 if id was seen.
func (r *requestIDs) find(id uint64) int {
	i, found := slices.BinarySearchFunc(r.gaps, id, func(g gap, id uint64) int {
		switch {
		case g.next <= id:
			return -1
		case g.first > id:
			return 1
		}
		return 0
	})
	if !found {
		return -1
	}
	return i
}

// seen reports whether an ID of the peer's parity was seen or is below floor.
func (r *requestIDs) seen(id uint64) bool { return id < r.next && r.find(id) < 0 }

// firstUnseen returns the lowest ID known to be unseen.
func (r *requestIDs) firstUnseen() uint64 {
	if len(r.gaps) > 0 {
		return r.gaps[0].first
	}
	return r.next
}
