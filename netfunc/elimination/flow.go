package elimination

import (
	"math"
	"time"

	"holocast/netfunc/pathset"
)

// Flow runs the algorithm for the packets to one destination. It is for one goroutine.
type Flow struct {
	conf       Config
	paths      pathset.Set // P
	generation uint64
	packets    packets
	window     window
	n          uint64 // packets settled and counted since the last start

	now      int64              // the latest time seen, ns
	count    int64              // packets that come from then on count
	heard    int64              // when the last replica arrived
	lastSeen [pathset.Max]int64 // the same of each path

	decision Decision // under way
	decided  bool

	ended   int64 // when it last stopped by itself; 0 = not since it started over
	doubted bool  // a new generation showed soon that it should not have

	stats  [pathset.Max]PathStats
	totals Stats
	latent latentTest
}

// Decision is that paths were removed from P.
type Decision struct {
	// Generation of the path set that was decided about.
	Generation uint64
	// Removed are the paths removed, Remaining is P without them.
	Removed, Remaining pathset.Set
	// Silent are those of Removed on which nothing at all came during the window.
	Silent pathset.Set
	// Lossy are those of Removed that lost LatentLoss of their replicas or more, as far as
	// is known by then: they do not carry the flow.
	Lossy pathset.Set
	// Single says that one path is left: the algorithm has stopped, until
	// SetPaths gives it a new generation.
	Single bool
	// Complete is the path i that sufficed alone (line 13 of Algorithm 1); 0 when the
	// others were removed for want of rewards.
	Complete int
	// Packet is n, and At T_min(n), of the packet that decided.
	Packet uint64
	At     time.Duration
	// Rewards are N_i(n), path 1 first, of the last Window packets.
	Rewards [pathset.Max]uint32
	Window  uint32
}

// New returns a flow without paths: give it some by SetPaths. The error names what is
// wrong in the configuration.
func New(c Config) (*Flow, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return &Flow{conf: c, packets: newPackets(c.Capacity), window: newWindow(c)}, nil
}

// SetPaths sets the path set that the sender has or is about to have. Generations are
// those of the controller: they grow when paths are added, and within one paths are only
// taken away.
//
//   - A generation older than the last is not believed.
//   - The same generation can only take paths away: what the algorithm removed is not
//     brought back by a message that crossed its decision. Where the paths taken are others than
//     those it removed itself, the window starts over, for T_min(n) is another now.
//   - A newer generation starts over with the given set, unless it adds no path
//     to those that are under way: then it is as the same.
//
// It returns whether P changed. Starting over, packets from before now are remembered but do
// not count, nor do those that come within Guard. Arrivals may still be on their way to
// Observe.
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

// Reset forgets everything but P and its generation, as after a restart at now.
func (f *Flow) Reset(now time.Duration) {
	f.packets.clear()
	f.start(int64(now), f.conf.Guard)
}

// Paths returns P and its generation.
func (f *Flow) Paths() (paths pathset.Set, generation uint64) { return f.paths, f.generation }

// Observe reports that a replica of the packet with a key came on path i. Arrivals should be
// told in the order of their times; some 10 µs of disorder, as between the processors of a
// machine, do no harm. It returns whether there is a decision.
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

// Advance gives the time when there are no arrivals, so that packets with missing replicas
// are settled. No arrival from before now may reach Observe afterwards: it
// would count as lost. It returns whether there is a decision.
func (f *Flow) Advance(now time.Duration) (Decision, bool) {
	f.advance(int64(now))
	return f.decide()
}

// stopped reports that there is no path to choose from.
func (f *Flow) stopped() bool { return f.paths&(f.paths-1) == 0 }

// advance moves the time on, settles and forgets what is due, and returns t within the range
// of a packet's gaps.
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

// start starts the windows over at now. What is in flight does not count, nor does what comes
// within guard.
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

// replica records T_i(n) = t of the packet with a key.
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

// makeRoom forgets the oldest packet before its time if there is no room for another.
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

// settle settles the packets whose replicas have come, or need not be waited for.
func (f *Flow) settle() {
	for f.packets.next != f.packets.end {
		p := f.packets.at(f.packets.next)
		if f.paths&^p.arrived != 0 && f.now-p.base < int64(f.conf.Timeout) && !f.stopped() {
			break
		}
		f.settleNext()
	}
}

// decide returns the decision that was made, if any.
func (f *Flow) decide() (Decision, bool) {
	if !f.decided {
		return Decision{}, false
	}
	d := f.decision
	f.decision, f.decided = Decision{}, false
	d.Generation, d.Remaining, d.Single = f.generation, f.paths, f.stopped()
	return d, true
}

// settleNext is the body of Algorithm 1's outer loop. A packet that came by no path of P,
// as one of them was removed meanwhile, does not count.
func (f *Flow) settleNext() {
	p := f.packets.at(f.packets.next)
	f.packets.next++
	p.settled = true
	in := p.arrived & f.paths
	if in == 0 || f.stopped() {
		return
	}
	first := in.First() - 1 // of the paths that it came by, the one it came by first
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

// judge applies the two rules: lines 9–10 and 12–13 of Algorithm 1.
func (f *Flow) judge(at int64) {
	removed, complete := f.window.judge(f.paths)
	d := &f.decision
	if complete != 0 {
		removed = f.paths &^ (complete & -complete)
		d.Complete = complete.First()
	}
	// As printed P cannot become empty: packet n rewarded one of its paths. With Slack
	// that may not be enough, where rewards were of paths that are gone.
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
