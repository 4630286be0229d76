package schedulers

import (
	"slices"
	"time"

	"holocast/internal/fbdt"
)

// duplicate sends every piece over every path, oldest first, until it arrives over one.
type duplicate struct {
	*inOrder
	pieces []*piece // not acknowledged
}

func (s *duplicate) Next(index int, _ time.Duration) (fbdt.Segment, bool) {
	p := s.paths[index]
	if p == nil || !p.usable() {
		return fbdt.Segment{}, false
	}
	s.pieces = slices.DeleteFunc(s.pieces, func(c *piece) bool { return len(c.segments) == 0 && !c.queued })
	for _, c := range s.pieces {
		if slices.ContainsFunc(c.segments, func(n uint64) bool { return s.sent[n].path == p }) {
			continue
		}
		if c.queued { // lost
			c.queued = false
			s.again = slices.DeleteFunc(s.again, func(q *piece) bool { return q == c })
		}
		return s.send(p, c), true
	}
	if len(s.order) == 0 || s.unacked >= s.options.Unacked {
		return fbdt.Segment{}, false
	}
	c := s.cut(p)
	s.pieces = append(s.pieces, c)
	return s.send(p, c), true
}
