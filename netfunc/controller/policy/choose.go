package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"holocast/netfunc/pathset"
)

// usable are the paths that packets of f can take now: up at both ends, answered
// probes lately, allowed by the operator. Where no probe is answered on any path, it
// is the probing that fails, and paths that are up are used.
func (e *Engine) usable(f *flow) pathset.Set {
	if f.Allowed != 0 {
		return e.alive(f, f.Allowed)
	}
	return e.alive(f, ^pathset.Set(0))
}

// alive is usable among some paths, whatever the operator allows.
func (e *Engine) alive(f *flow, among pathset.Set) pathset.Set {
	s := e.edges[f.Sender]
	if s == nil {
		return 0
	}
	up := s.up() & among
	if r := e.receiver(f); r != nil && len(r.Paths) > 0 {
		up &= r.up()
	}
	alive := up
	for _, p := range s.Paths {
		if p.Loss >= 1 {
			alive &^= pathset.Of(p.Index)
		}
	}
	if alive == 0 {
		return up
	}
	return alive
}

// stranded returns why plain routing loses packets of f, "" where they are not or
// nobody knows. Such a flow sees no trigger where this program started after its last uplink
// packet, so it is the paths' state that counts and not their change.
func (e *Engine) stranded(now time.Time, f *flow) string {
	s := e.edges[f.Sender]
	if s == nil || s.Lost || e.settling(f) || !now.Before(f.seen.Add(e.conf.End)) {
		return "" // without a viewer there is nothing to lose
	}
	switch r := s.routes[f.Destination]; {
	case r.Unreachable:
		return fmt.Sprintf("edge %s has no route to it", s.Name)
	case r.Path != 0 && !e.alive(f, ^pathset.Set(0)).Has(r.Path):
		return fmt.Sprintf("plain routing takes path %d, which is dead", r.Path)
	}
	return ""
}

// receiver is the edge that removes duplicates of f, nil when there is none that
// works.
func (e *Engine) receiver(f *flow) *edge {
	if r := e.edges[f.Receiver]; r != nil && !r.Lost && !r.leaving {
		return r
	}
	return nil
}

// prepared reports whether the receiver has confirmed that it eliminates the replicas of f.
func (e *Engine) prepared(f *flow) bool {
	r := e.receiver(f)
	return r != nil && r.ready[f.Destination]
}

// held reports that the flow's path set has to wait for its receiver: a sender never duplicates what
// nobody eliminates.
func (e *Engine) held(f *flow) bool { return f.Paths.Len() > 1 && !e.prepared(f) }

// due is when to signal the sender of f again; zero = not at all.
func (e *Engine) due(f *flow) time.Time {
	s := e.edges[f.Sender]
	switch {
	case !e.held(f):
		return f.signalDue(e.conf.Signal, s)
	case e.replicates(f) && !s.Lost:
		return f.resent.Add(holdAgain * e.conf.Signal.First)
	case e.replicates(f):
		return f.resent.Add(e.conf.Signal.Slow)
	}
	return time.Time{} // until the receiver reports
}

// holdAgain is how much more slowly a sender is told to stop while its flow is held.
const holdAgain = 5

// replicates reports whether the flow's sender said last that it sends several replicas.
func (e *Engine) replicates(f *flow) bool {
	s := e.edges[f.Sender]
	return s != nil && s.policies[f.Destination].Paths.Len() > 1
}

// settling reports that an edge of f said hello a moment ago: paths that it does not
// report up yet are not lost.
func (e *Engine) settling(f *flow) bool {
	s, r := e.edges[f.Sender], e.receiver(f)
	return (s != nil && !s.settled) || (r != nil && !r.settled)
}

// rtt of a path as the flow's sender measures it; infinite while unknown.
func (e *Engine) rtt(f *flow, index int) float64 {
	if s := e.edges[f.Sender]; s != nil {
		if p, ok := s.path(index); ok && p.RTT > 0 {
			return p.RTT
		}
	}
	return math.Inf(1)
}

// least is the path of set with the least RTT, 0 for an empty set.
func (e *Engine) least(f *flow, set pathset.Set) int {
	if set == 0 {
		return 0
	}
	return slices.MinFunc(set.Indices(), func(a, b int) int {
		return cmp.Or(cmp.Compare(e.rtt(f, a), e.rtt(f, b)), cmp.Compare(a, b))
	})
}

// better reports whether path to gains enough over path from to move a flow,
// and says so in words.
func (e *Engine) better(f *flow, from, to int) (string, bool) {
	a, b := e.rtt(f, from), e.rtt(f, to)
	switch {
	case to == from || math.IsInf(b, 1):
		return "", false
	case math.IsInf(a, 1):
		return fmt.Sprintf("path %d has the least RTT, %.1f ms", to, b), true
	}
	gain := float64(e.conf.Redirect.Gain) / float64(time.Millisecond)
	return fmt.Sprintf("path %d has the least RTT, %.1f ms instead of %.1f ms", to, b, a),
		b < a*(1-e.conf.Redirect.Margin) && b <= a-gain
}

// pair finds the edges of a flow. Those that it has are kept, unless one is gone, or
// is lost and another could take its place, or another has a longer prefix.
func (e *Engine) pair(f *flow) (changed bool) {
	was := [2]string{f.Sender, f.Receiver}
	f.Sender = e.candidate(f.Sender, func(c *edge) int {
		if !c.Role.Sends() {
			return -1
		}
		return covers(c.Towards, f.Destination)
	})
	s := e.edges[f.Sender]
	f.Receiver = e.candidate(f.Receiver, func(c *edge) int {
		if s == nil || c.leaving || !c.Role.Receives() || !paired(s, c) {
			return -1
		}
		return covers(c.Behind, f.Destination)
	})
	return was != [2]string{f.Sender, f.Receiver}
}

// candidate returns the edge with the highest rank that is not lost, the one that is
// there already before others of the same, and a lost one only for want of others.
func (e *Engine) candidate(now string, rank func(*edge) int) string {
	best, found := "", -1
	for _, name := range e.names() {
		c := e.edges[name]
		r := rank(c)
		if r < 0 {
			continue
		}
		r = 2 * r
		if name == now {
			r++
		}
		if !c.Lost {
			r += 1000
		}
		if r > found {
			best, found = name, r
		}
	}
	return best
}
