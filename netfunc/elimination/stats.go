package elimination

import (
	"holocast/netfunc/pathset"
)

// Stats holds counters since New.
type Stats struct {
	// Packets counts packets with at least one arrival.
	Packets uint64
	// Evicted counts packets forgotten before Memory passed, because Capacity was exceeded. Their
	// later replicas may have counted as first ones.
	Evicted uint64
	// Unknown counts arrivals on a path outside 1 to pathset.Max.
	Unknown uint64
	// Remembered is the number of packets remembered now.
	Remembered int
	// Paths is P, and Generation is its generation.
	Paths      pathset.Set
	Generation uint64
	// Latent is the set of paths of P that lost at least LatentLoss of their replicas in the last
	// LatentPeriod. Duplication hides these losses.
	Latent pathset.Set
	// Window is the number of packets in the window for removals.
	Window uint32
	// PerPath has path 1 first.
	PerPath [pathset.Max]PathStats
}

// PathStats counts the replicas on a path.
type PathStats struct {
	Arrived  uint64 // all arrivals on the path
	First    uint64 // before any other replica
	Rewarded uint64 // within α of the first
	Late     uint64 // later than α
	Lost     uint64 // not within Memory
	Stray    uint64 // arrived on a path outside P
	Repeated uint64 // repeated on the same path
	Reward   uint32 // N_i: rewards in the window
}

// Stats returns the counters.
func (f *Flow) Stats() Stats {
	s := f.totals
	s.Remembered = int(f.packets.end - f.packets.oldest)
	s.Paths, s.Generation = f.paths, f.generation
	s.Latent = f.latent.found & f.paths
	s.PerPath = f.stats
	var rewards [pathset.Max]uint32
	rewards, s.Window = f.window.sums(false)
	for i, n := range rewards {
		s.PerPath[i].Reward = n
	}
	return s
}
