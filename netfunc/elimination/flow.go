package elimination

import (
	"math"
	"time"

	"holocast/netfunc/pathset"
)

// Flow runs the algorithm for one destination. It is not safe for concurrent use.
type Flow struct {
	conf       Config
	paths      pathset.Set // P
	generation uint64
	packets    packets
	window     window
	n          uint64 // packets settled and counted since the last restart

	now      int64              // latest time seen, ns
	count    int64              // packets first seen at or after this time count
	heard    int64              // last arrival
	lastSeen [pathset.Max]int64 // last arrival per path

	decision Decision // pending decision
	decided  bool

	ended   int64 // time of the last stop; 0 = none since the last restart
	doubted bool  // a new generation soon after a stop showed that it was wrong

	stats  [pathset.Max]PathStats
	totals Stats
	latent latentTest
}

// Decision is a removal of paths from P.
type Decision struct {
	// Generation of the path set that the decision is about.
	Generation uint64
	// Removed is the set of paths removed; Remaining is P without them.
	Removed, Remaining pathset.Set
	// Silent is the subset of Removed on which nothing arrived during the window.
	Silent pathset.Set
	// Lossy is the subset of Removed whose paths lost at least the fraction LatentLoss of their
	// replicas in the last test period, or so far in the current one. Such paths are bottlenecks or
	// broken.
	Lossy pathset.Set
	// Single means that one path is left. The algorithm has stopped until SetPaths sets a new
	// generation.
	Single bool
	// Complete is the path i that suffices alone (line 13 of Algorithm 1), or 0 if paths were
	// removed for lack of rewards.
	Complete int
	// Packet is n, and At is T_min(n), for the deciding packet.
	Packet uint64
	At     time.Duration
	// Rewards is N_i(n) over the last Window packets, path 1 first.
	Rewards [pathset.Max]uint32
	Window  uint32
}

// New returns a flow without paths, which SetPaths adds. The error names the invalid field.
func New(c Config) (*Flow, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return &Flow{conf: c, packets: newPackets(c.Capacity), window: newWindow(c)}, nil
}

// SetPaths sets the path set that the sender uses or is about to use. The controller's generation
// increases when paths are added; within a generation, paths are only removed.
//
//   - An older generation is ignored.
//   - The same generation only removes paths. A message that crossed a decision does not
//     restore the paths that the decision removed. If other paths were removed, the window
//     restarts, since T_min(n) changes.
//   - A newer generation restarts with the given set. If it adds no path to those in use and the
//     algorithm has not stopped, it is treated like the same generation.
//
// SetPaths reports whether P changed. After a restart, earlier packets and packets that arrive within
// Guard are remembered but do not count. Arrivals may still be on their way to Observe.
func (f *Flow) SetPaths(generation uint64, paths pathset.Set, now time.Duration) bool {
	if generation < f.generation {
		return false
	}
	anew := generation > f.generation && (paths&^f.paths != 0 || f.stopped())
	f.generation = generation
	if !anew {
		paths &= f.paths
	}
	changed := paths != f.paths
	f.paths = paths
	if anew {
		if f.ended > 0 && int64(now)-f.ended <= int64(f.conf.Regret) {
			f.doubted = true
		}
		f.ended = 0
		f.start(int64(now), f.conf.Guard)
		f.decision, f.decided = Decision{}, false
	} else if changed {
		f.start(int64(now), 0)
	}
	return changed
}

// Reset forgets everything except P and its generation, as after a restart at now.
func (f *Flow) Reset(now time.Duration) {
	f.packets.clear()
	f.start(int64(now), f.conf.Guard)
}

// Paths returns P and its generation.
func (f *Flow) Paths() (paths pathset.Set, generation uint64) { return f.paths, f.generation }

// Observe reports the arrival of a replica of packet key on a path. Call it in order of arrival times;
// reordering of some 10 µs, as between the CPUs of a machine, is harmless. It returns the decision, if
// any.
func (f *Flow) Observe(key uint64, path int, at time.Duration) (Decision, bool) {
	t := f.advance(int64(at))
	i := path - 1
	if i < 0 || i >= pathset.Max {
		f.totals.Unknown++
		return f.decide()
	}
	if f.conf.Silence > 0 && f.now-f.heard > int64(f.conf.Silence) {
		f.packets.clear()
		f.start(f.now, 0)
	}
	f.heard, f.lastSeen[i] = f.now, f.now
	f.stats[i].Arrived++
	switch bit := pathset.Set(1) << i; {
	case f.paths&bit == 0:
		f.stats[i].Stray++
	case !f.stopped():
		f.replica(key, bit, t)
		f.settle()
	}
	return f.decide()
}

// Advance moves time forward without an arrival, to settle packets with missing replicas. Arrivals
// from before now must not reach Observe afterwards, since they would count as lost. It returns the
// decision, if any.
func (f *Flow) Advance(now time.Duration) (Decision, bool) {
	f.advance(int64(now))
	return f.decide()
}

// stopped reports whether P has at most one path left.
func (f *Flow) stopped() bool { return f.paths&(f.paths-1) == 0 }

// advance moves time forward, settles and forgets packets that are due, and returns t clamped to
// the range of a packet's gaps.
func (f *Flow) advance(t int64) int64 {
	t = max(t, 0)
	f.now = max(f.now, t)
	f.settle()
	for f.packets.oldest != f.packets.next {
		p := f.packets.at(f.packets.oldest)
		if f.now-p.base <= int64(f.conf.Memory) {
			break
		}
		f.over(p)
		f.packets.forget()
	}
	return max(t, f.now-int64(maxGap))
}

// start restarts the windows at now. Neither packets in flight nor packets that arrive within guard
// count.
func (f *Flow) start(now int64, guard time.Duration) {
	now = max(now, f.now)
	f.window.reset(f.doubted)
	f.latent = latentTest{since: now}
	f.n = 0
	f.count = max(f.count, now+int64(guard))
	for n := f.packets.next; n != f.packets.end; n++ {
		f.packets.at(n).counted = false
	}
}

// replica records T_i(n) = t for packet key.
func (f *Flow) replica(key uint64, bit pathset.Set, t int64) {
	i := bit.First() - 1
	p := f.packets.find(key)
	switch {
	case p == nil:
		f.makeRoom()
		p = f.packets.add(key)
		p.base, p.gap[i], p.arrived = t, 0, bit
		p.paths, p.settled, p.counted = f.paths, false, t >= f.count
		f.totals.Packets++
	case p.arrived&bit != 0:
		f.stats[i].Repeated++
	default:
		p.gap[i] = int32(min(t-p.base, math.MaxInt32))
		p.arrived |= bit
		if p.settled {
			f.stats[i].Late++
		}
	}
}

// makeRoom evicts the oldest packet if there is no room for another.
func (f *Flow) makeRoom() {
	if !f.packets.full() {
		return
	}
	if f.packets.oldest == f.packets.next {
		f.settleNext()
	}
	f.packets.forget()
	f.totals.Evicted++
}

// settle settles the packets whose replicas have arrived or timed out.
func (f *Flow) settle() {
	for f.packets.next != f.packets.end {
		p := f.packets.at(f.packets.next)
		if f.paths&^p.arrived != 0 && f.now-p.base < int64(f.conf.Timeout) && !f.stopped() {
			break
		}
		f.settleNext()
	}
}

// decide returns and clears the pending decision.
func (f *Flow) decide() (Decision, bool) {
	if !f.decided {
		return Decision{}, false
	}
	d := f.decision
	f.decision, f.decided = Decision{}, false
	d.Generation, d.Remaining, d.Single = f.generation, f.paths, f.stopped()
	return d, true
}

// settleNext is the body of Algorithm 1's outer loop. A packet does not count if, after a removal, it
// has no arrival on a path of P.
func (f *Flow) settleNext() {
	p := f.packets.at(f.packets.next)
	f.packets.next++
	p.settled = true
	in := p.arrived & f.paths
	if in == 0 || f.stopped() {
		return
	}
	first := in.First() - 1 // path of its first arrival
	for s := in & (in - 1); s != 0; s &= s - 1 {
		if i := s.First() - 1; p.gap[i] < p.gap[first] {
			first = i
		}
	}
	earliest := int64(p.gap[first]) // T_min(n), relative to base
	var reward pathset.Set          // R_i(n)
	for s := in; s != 0; s &= s - 1 {
		i := s.First() - 1
		if int64(p.gap[i])-earliest < int64(f.conf.Alpha) {
			reward |= s & -s
			f.stats[i].Rewarded++
		} else {
			f.stats[i].Late++
		}
	}
	f.stats[first].First++
	if !p.counted {
		return
	}
	f.n++
	at := p.base + earliest
	if f.window.add(at, reward) {
		f.judge(at)
	}
}

// judge applies the two rules (lines 9–10 and 12–13 of Algorithm 1).
func (f *Flow) judge(at int64) {
	removed, complete := f.window.judge(f.paths)
	d := &f.decision
	if complete != 0 {
		removed = f.paths &^ (complete & -complete)
		d.Complete = complete.First()
	}
	// As printed, P cannot become empty, because packet n rewarded one of its paths. With Slack it
	// could, if all rewards were earned by paths that are removed.
	if removed == 0 || removed == f.paths {
		return
	}
	f.paths &^= removed
	f.decided = true
	d.Removed |= removed
	d.Lossy |= removed & f.latent.lossy(f.conf.LatentLoss)
	d.Packet, d.At = f.n, time.Duration(at)
	last := f.stopped() && complete == 0
	d.Rewards, d.Window = f.window.sums(last)
	for s := removed; s != 0; s &= s - 1 {
		if f.lastSeen[s.First()-1] < f.window.began(last) {
			d.Silent |= s & -s
		}
	}
	if f.stopped() {
		f.ended, f.doubted = f.now, false
	}
}
