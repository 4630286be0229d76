package moqt

import (
	"slices"

	"holocast/internal/moqt/wire"
)

// requestIDs checks the peer's request IDs (§10.1): of its parity and never twice.
// Streams overtake one another, so IDs arrive out of order, and one whose stream was
// reset before it was delivered never arrives. The gaps that this leaves are
// remembered up to a bound; beyond it the lowest is taken as it may come.
type requestIDs struct {
	parity uint64
	next   uint64 // one step above the largest ID seen
	floor  uint64 // IDs below may have been seen or not
	gaps   []gap  // IDs from floor on that were not seen, ascending
}

// gap is the IDs from first up to next that were not seen.
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

// find returns the index of the gap that id is in, -1 when it was seen.
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

// seen reports whether an ID of the peer's parity was seen, or may have been.
func (r *requestIDs) seen(id uint64) bool { return id < r.next && r.find(id) < 0 }

// firstUnseen is the lowest ID that is known not to have been seen.
func (r *requestIDs) firstUnseen() uint64 {
	if len(r.gaps) > 0 {
		return r.gaps[0].first
	}
	return r.next
}
