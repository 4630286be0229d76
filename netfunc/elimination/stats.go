package elimination

import (
	"holocast/netfunc/pathset"
)

// Stats counts since New.
type Stats struct {
	// Packets of which a first replica came.
	Packets uint64
	// Evicted packets were forgotten before Memory had passed, for want of Capacity:
	// their replicas may since have been taken for first ones.
	Evicted uint64
	// Unknown arrivals were on a path outside 1 to pathset.Max.
	Unknown uint64
	// Remembered is how many packets are remembered now.
	Remembered int
	// Paths is P, Generation its generation.
	Paths      pathset.Set
	Generation uint64
	// Latent are the paths of P that lost LatentLoss of their replicas or more in the
	// last LatentPeriod, which duplication hid.
	Latent pathset.Set
	// Window is how many packets the window for removals holds.
	Window uint32
	// Path 1 first.
	PerPath [pathset.Max]PathStats
}

// PathStats counts the replicas on a path.
type PathStats struct {
	Arrived  uint64 // on the path, whatever P is
	First    uint64 // before all others
	Rewarded uint64 // within α of the first
	Late     uint64 // after that
	Lost     uint64 // not within Memory
	Stray    uint64 // came though the path is not in P
	Repeated uint64 // came on the same path again
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
