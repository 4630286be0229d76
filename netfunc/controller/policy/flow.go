package policy

import (
	"net/netip"
	"time"

	"holocast/netfunc/api"
	"holocast/netfunc/pathset"
)

// source distinguishes the viewers behind one address, and the edges that see them.
type source struct {
	edge   string
	viewer netip.AddrPort
}

// maxSources is how many viewers of one address are watched.
const maxSources = 64

// flow is the traffic to one destination.
type flow struct {
	api.Flow
	set    bool // by an operator, so never forgotten
	meters map[source]*meter
	seen   time.Time // the last uplink packet, or when the flow was made
	began  time.Time // State, on our clock
	moved  time.Time // the last start or move
	// The path set before the elimination that left one, until that is undone or outlives
	// the re-arm time.
	before pathset.Set
	// The trimmed set that the last start added paths to, until the elimination has judged
	// them, and how often running it took them all out again, up to maxIdle.
	tried pathset.Set
	vain  int
	// When each path was last removed as one that does not carry the flow.
	lossy [pathset.Max]time.Time
	// Whether the last start helped: Trigger.Live good intervals running were seen, or
	// the trigger fired though all paths were in use.
	helped, useless bool
	idle            int // starts running that did not help, up to maxIdle

	noop  uint64 // generation for which a trigger without effect was logged
	stale uint64 // generation for which a refused elimination was logged

	// What was signalled to the sender.
	signalled time.Time // the first signalling packet with Paths
	resent    time.Time // the last one
	nonce     uint64    // of the first one; 0 = any that is reported will do
	reported  bool      // that the sender does not answer
}

// viewing is what the rest of the world sees of the flow.
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

// maxIdle bounds how often the re-arm time is doubled.
const maxIdle = 6

// rearm is how long a flow stays in the state Single. Where duplication did not help,
// time after time, it is not the paths that are to blame.
func (f *flow) rearm(c Config) time.Duration { return c.Rearm << f.idle }

// rest is how long a trimmed set is kept before paths are added again. Where they were removed
// again, time after time, they cost bytes and processors, and bring nothing.
func (f *flow) rest(c Config) time.Duration { return c.Rearm << f.vain }

// restLossy is how often longer paths rest that do not carry the flow.
const restLossy = 16

// unfit are the paths that were found not to carry the flow a while ago.
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
		m.run = 0
	}
}

// signalDue is when to signal the sender again; zero = not at all. A lost sender is
// signalled slowly: its kernel program may still run.
func (f *flow) signalDue(r Resend, sender *edge) time.Time {
	switch {
	case f.Applied || sender == nil:
		return time.Time{}
	case f.signalled.IsZero():
		return f.began // at once
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
