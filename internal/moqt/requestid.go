package moqt

import "holocast/internal/moqt/wire"

// requestIDs checks the peer's request IDs (§10.1): of its parity and never
// twice. Streams overtake one another, so IDs arrive out of order; those ahead of
// a missing one are remembered up to a bound.
type requestIDs struct {
	parity uint64
	next   uint64 // the smallest ID not seen
	ahead  map[uint64]struct{}
}

func (r *requestIDs) check(id uint64) error {
	invalid := func(msg string) error { return &wire.Error{Code: wire.InvalidRequestID, Msg: msg} }
	if id&1 != r.parity {
		return invalid("request ID of the wrong parity")
	}
	if _, seen := r.ahead[id]; seen || id < r.next {
		return invalid("request ID used twice")
	}
	if id != r.next {
		if len(r.ahead) == maxRequestGaps {
			return invalid("too many request IDs are missing")
		}
		if r.ahead == nil {
			r.ahead = map[uint64]struct{}{}
		}
		r.ahead[id] = struct{}{}
		return nil
	}
	r.next += 2
	for {
		if _, ok := r.ahead[r.next]; !ok {
			return nil
		}
		delete(r.ahead, r.next)
		r.next += 2
	}
}
