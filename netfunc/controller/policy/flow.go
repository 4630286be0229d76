package policy

import (
	"net/netip"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
)

// source identifies a viewer behind an address, as observed by one edge.
type source struct {
	edge   string
	viewer netip.AddrPort
}

// maxSources limits the viewers watched per address.
const maxSources = 64

// flow is the traffic to one destination.
type flow struct {
	api.Flow
	set    bool // set by an operator, and thus never forgotten
	meters map[source]*meter
	seen   time.Time // time of the last uplink packet, or of the creation
	began  time.Time // start of State
	moved  time.Time // the last start or move
	// before is the path set before the elimination that left one path. It is kept until the
	// elimination is undone or the re-arm time has passed.
	before pathset.Set
	// tried is the trimmed set to which the last start added paths, kept until elimination has
	// judged them. vain counts consecutive eliminations that removed them all again, up to maxIdle.
	tried pathset.Set
	vain  int
	// lossy holds the time at which each path was last removed for not carrying the flow.
	lossy [pathset.Max]time.Time
	// helped means that Trigger.Live good intervals in a row were seen after the last start; useless
	// means that the trigger fired although all paths were in use.
	helped, useless bool
	idle            int // consecutive starts that did not help, up to maxIdle

	noop  uint64 // generation + 1 of the last logged trigger without effect
	stale uint64 // generation of the last logged refusal of an elimination

	// State of signalling to the sender.
	signalled time.Time // the first signalling packet with Paths
	resent    time.Time // the last one
	nonce     uint64    // nonce of the first one; 0 = any reported nonce acknowledges
	reported  bool      // logged that the sender does not answer
}

// viewing returns the public view of the flow.
func (f *flow) viewing() api.Flow {
	out := f.Flow
	var latest time.Time
	for _, m := range f.meters {
		if m.seen.After(latest) && m.interval > 0 {
			latest, out.Interval = m.seen, float64(m.interval)/float64(time.Millisecond)
		}
	}
	return out
}

// maxIdle is the maximum number of doublings in rearm and rest.
const maxIdle = 6

// rearm returns the duration of state Single. It doubles each time duplication does not help, since
// the cause then lies elsewhere.
func (f *flow) rearm(c Config) time.Duration { return c.Rearm << f.idle }

// rest returns the minimum age of a trimmed set before paths are added again. It doubles each time
// added paths are removed again, since they waste bandwidth and CPU time.
func (f *flow) rest(c Config) time.Duration { return c.Rearm << f.vain }

// restLossy is the time for which paths that failed to carry the flow stay unused, in re-arm times.
const restLossy = 16

// unfit returns the paths that recently did not carry the flow.
func (f *flow) unfit(c Config, now time.Time) (set pathset.Set) {
	for i, at := range f.lossy {
		if !at.IsZero() && now.Sub(at) < restLossy*c.Rearm {
			set |= pathset.Of(i + 1)
		}
	}
	return set
}

// calm restarts the count of long intervals.
func (f *flow) calm() {
	for _, m := range f.meters {
		m.calm()
	}
}

// signalDue returns the time of the next signal to the sender, or zero if none is due. A lost sender
// is signalled at a low rate, as its kernel program may still be running.
func (f *flow) signalDue(r Resend, sender *edge) time.Time {
	switch {
	case f.Applied || sender == nil:
		return time.Time{}
	case f.signalled.IsZero():
		return f.began // immediately
	}
	wait := r.First
	switch age := f.resent.Sub(f.signalled); {
	case sender.Lost || age >= 5*r.Slow:
		wait = r.Slow
	case age >= r.Slow:
		wait = min(10*r.First, r.Slow)
	}
	return f.resent.Add(wait)
}
