package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"holocast/netfunc/pathset"
)

// usable returns the paths that can carry f now: paths that are up at both ends, have recent probe
// answers and are allowed by the operator. If no path has answers, probing itself has failed, and all
// paths that are up count.
func (e *Engine) usable(f *flow) pathset.Set {
	if f.Allowed != 0 {
		return e.alive(f, f.Allowed)
	}
	return e.alive(f, ^pathset.Set(0))
}

// alive is like usable, but restricted to the paths in among rather than to those that the operator
// allows.
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

// stranded explains why plain routing loses f's packets. It returns "" if no packets are lost or
// this is unknown. It tests the state of the paths rather than a change because no trigger can fire
// if the controller started after the flow's last uplink packet.
func (e *Engine) stranded(now time.Time, f *flow) string {
	s := e.edges[f.Sender]
	if s == nil || s.Lost || e.settling(f) || !now.Before(f.seen.Add(e.conf.End)) {
		return "" // without a viewer nothing is lost
	}
	switch r := s.routes[f.Destination]; {
	case r.Unreachable:
		return fmt.Sprintf("edge %s has no route to it", s.Name)
	case r.Path != 0 && !e.alive(f, ^pathset.Set(0)).Has(r.Path):
		return fmt.Sprintf("plain routing takes path %d, which is dead", r.Path)
	}
	return ""
}

// minLost is the minimum number of lost probes, among the newest 128, for a path to count as
// strained.
const minLost = 3

// strain returns the state of the paths that carry f, as measured by its sender's probes. Of
// several paths, the best one counts.
func (e *Engine) strain(f *flow) (best strain) {
	s := e.edges[f.Sender]
	if s == nil || s.Lost {
		return strain{}
	}
	set := f.Paths
	if set == 0 && s.routes[f.Destination].Path != 0 {
		set = pathset.Of(s.routes[f.Destination].Path)
	}
	for _, i := range set.Indices() {
		p, _ := s.path(i)
		if p.MinRTT == 0 && p.Loss == 0 {
			continue // not probed
		}
		one := strain{known: true, mute: p.Silent || p.Loss >= 1 || !p.Up, lossy: p.Lost >= minLost}
		if p.MinRTT > 0 {
			one.excess = time.Duration(max(0, p.RTT-p.MinRTT) * float64(time.Millisecond))
		}
		switch {
		case one.mute:
			one.path = fmt.Sprintf("path %d does not answer", i)
		case one.lossy:
			one.path = fmt.Sprintf("path %d lost %d of its last probes", i, p.Lost)
		default:
			one.path = fmt.Sprintf("path %d is %.0f ms above its floor, %.0f ms", i, p.RTT-p.MinRTT, p.MinRTT)
		}
		if !best.known || one.less(best) {
			best = one
		}
	}
	return best
}

// less reports whether a path is less strained than another.
func (s strain) less(o strain) bool {
	if s.mute != o.mute {
		return o.mute
	}
	if s.lossy != o.lossy {
		return o.lossy
	}
	return s.excess < o.excess
}

// receiver returns the edge that removes f's duplicates, or nil if no such edge is working.
func (e *Engine) receiver(f *flow) *edge {
	if r := e.edges[f.Receiver]; r != nil && !r.Lost && !r.leaving {
		return r
	}
	return nil
}

// prepared reports whether the receiver has confirmed that it eliminates f's replicas.
func (e *Engine) prepared(f *flow) bool {
	r := e.receiver(f)
	return r != nil && r.ready[f.Destination]
}

// held reports whether the flow's path set must wait for its receiver, since a sender never
// duplicates packets whose replicas no receiver eliminates.
func (e *Engine) held(f *flow) bool { return f.Paths.Len() > 1 && !e.prepared(f) }

// due returns the time of the next signal to f's sender, or zero if none is due.
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

// holdAgain is the interval between stop signals while a flow is held, in multiples of
// Resend.First.
const holdAgain = 5

// replicates reports whether the flow's sender last reported several paths in force.
func (e *Engine) replicates(f *flow) bool {
	s := e.edges[f.Sender]
	return s != nil && s.policies[f.Destination].Paths.Len() > 1
}

// settling reports whether an edge of f registered so recently that its missing paths do not count as
// lost yet.
func (e *Engine) settling(f *flow) bool {
	s, r := e.edges[f.Sender], e.receiver(f)
	return (s != nil && !s.settled) || (r != nil && !r.settled)
}

// rtt returns a path's RTT in ms as measured by the flow's sender, or infinity if unknown.
func (e *Engine) rtt(f *flow, index int) float64 {
	if s := e.edges[f.Sender]; s != nil {
		if p, ok := s.path(index); ok && p.RTT > 0 {
			return p.RTT
		}
	}
	return math.Inf(1)
}

// least returns the path in set with the least RTT, or 0 for an empty set.
func (e *Engine) least(f *flow, set pathset.Set) int {
	if set == 0 {
		return 0
	}
	return slices.MinFunc(set.Indices(), func(a, b int) int {
		return cmp.Or(cmp.Compare(e.rtt(f, a), e.rtt(f, b)), cmp.Compare(a, b))
	})
}

// better reports whether moving a flow from one path to the other gains enough, and describes the
// gain.
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

// pair assigns edges to a flow. It keeps a current edge unless the edge has left, is lost and can be
// replaced, or another edge matches with a longer prefix.
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

// candidate returns the highest-ranked edge that is not lost or, if all are lost, the highest-ranked
// one. Among equals it prefers the current edge.
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
