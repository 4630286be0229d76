package elimination

import "holocast/netfunc/pathset"

// latentTest compares the number of arrivals on each path with the expected number. IEEE Std
// 802.1CB-2017 section 7.4.4 counts discarded duplicates and detects only that some path is failing;
// this receiver can tell the paths apart and identifies the failing one.
type latentTest struct {
	since   int64 // start of the period, ns
	packets uint32
	lost    [pathset.Max]uint32
	found   pathset.Set
}

// leastTested is the number of packets a period needs for a meaningful test.
const leastTested = 100

// over counts a packet's missing replicas when it is forgotten.
func (f *Flow) over(p *packet) {
	if !p.counted {
		return
	}
	test := &f.latent
	test.packets++
	for s := p.paths & f.paths &^ p.arrived; s != 0; s &= s - 1 {
		f.stats[s.First()-1].Lost++
		test.lost[s.First()-1]++
	}
	if f.conf.LatentPeriod <= 0 || f.now-test.since < int64(f.conf.LatentPeriod) || test.packets < leastTested {
		return
	}
	*test = latentTest{since: f.now, found: test.judge(f.conf.LatentLoss)}
}

// lossy returns the paths found in the last period, plus the paths that the current period would find
// if it ended now.
func (t *latentTest) lossy(share float64) pathset.Set {
	if t.packets < leastTested {
		return t.found
	}
	return t.found | t.judge(share)
}

// judge returns the paths that lost at least share of their replicas.
func (t *latentTest) judge(share float64) (found pathset.Set) {
	for i, lost := range t.lost {
		if lost > 0 && float64(lost) >= share*float64(t.packets) {
			found |= 1 << i
		}
	}
	return found
}
