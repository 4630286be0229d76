package elimination

import "holocast/netfunc/pathset"

// latentTest compares what came on each path with what should have come. IEEE Std
// 802.1CB-2017, 7.4.4, counts what was discarded as a duplicate and reports that some path
// fails; here the paths are known, and so is the failing one.
type latentTest struct {
	since   int64 // when the period began, ns
	packets uint32
	lost    [pathset.Max]uint32
	found   pathset.Set
}

// leastTested is how many packets a period must have for the test to mean something.
const leastTested = 100

// over counts the replicas of a packet that never came, when it is forgotten.
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

// lossy are the paths that were found, and those that the period under way would find if it ended now.
func (t *latentTest) lossy(share float64) pathset.Set {
	if t.packets < leastTested {
		return t.found
	}
	return t.found | t.judge(share)
}

// judge returns the paths that lost a share of their replicas or more.
func (t *latentTest) judge(share float64) (found pathset.Set) {
	for i, lost := range t.lost {
		if lost > 0 && float64(lost) >= share*float64(t.packets) {
			found |= 1 << i
		}
	}
	return found
}
