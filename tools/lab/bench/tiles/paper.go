package tiles

import (
	"math"
	"runtime"
	"time"

	"holocast/internal/tile360"
)

// PaperStep is one scheme in the paper's setting.
type PaperStep struct {
	Name string    `json:"name"`
	PSNR []float64 `json:"psnr_mean"` // by condition, dB
}

// condition is a channel condition of the paper, with the mean throughput of FBDT and MPTCP in
// Mbit/s. The figures are from Section 6.2 for the first two conditions, and from FBDT's published
// logs for mobility.
type condition struct {
	name        string
	fbdt, mptcp float64

	// variation is the exponent applied to the walking trace's relative changes from second to
	// second. The result stands in for a throughput series of the condition, which the paper does
	// not give.
	variation float64
}

func conditions() []condition {
	return []condition{
		{"LoS", 1920, 1550, 0.2},
		{"nLoS", 1300, 930, 0.4},
		{"mobility", 1381, 981, 0.7},
	}
}

// ConditionNames returns the names of the paper's channel conditions.
func ConditionNames() (names []string) {
	for _, c := range conditions() {
		names = append(names, c.name)
	}
	return names
}

// paperSetting simulates Section 6.3. There, missing tiles are blank, the crowd's gaze is known but
// the viewer's is not, and the baseline (FIX on MPTCP) uses rates chosen for FBDT's capacity. Each
// step from that setting to ours changes one thing.
func paperSetting(c *clip, walking network, traces []trace, seconds int) []PaperStep {
	best := c.bytes(c.qualities - 1)
	all := []struct {
		name        string
		scheme      scheme
		fbdt        bool // the transport
		predictFBDT bool // basis of the capacity prediction
		predicted   bool
	}{
		{"FIX on MPTCP, budget for FBDT (the paper's baseline)", scheme{
			percentile: mean, seen: observed,
			gaze: crowdMap, choose: fixed,
		}, false, true, false},
		{"OWS as printed on FBDT (the paper's result)", scheme{
			percentile: mean, seen: observed, gaze: crowdMap,
			choose: printed,
		}, true, true, false},
		{"FIX on MPTCP, budget for MPTCP", scheme{
			percentile: tile360.BudgetPercentile, seen: observed, gaze: crowdMap,
			choose: fixed,
		}, false, false, false},
		{"printed rates, our order on MPTCP", scheme{
			percentile: tile360.BudgetPercentile, seen: observed,
			gaze: crowdMap, choose: printedRates,
		}, false, false, false},
		{"our rates and order on MPTCP", scheme{
			percentile: tile360.BudgetPercentile, gaze: crowdMap, choose: ows,
			leftover: true,
		}, false, false, false},
		{"gaze predicted, on MPTCP", scheme{
			percentile: tile360.BudgetPercentile, gaze: spread, choose: ows,
			leftover: true,
		}, false, false, false},
		{
			"on FBDT",
			scheme{percentile: tile360.BudgetPercentile, gaze: spread, choose: ows, leftover: true},
			true, true,
			false,
		},
	}
	var out []PaperStep
	for _, a := range all {
		s := PaperStep{Name: a.name}
		for _, cond := range conditions() {
			scale := best / conditions()[0].fbdt
			varied := network{cond.name, nil}
			for i, r := range walking.rate {
				before := (walking.rate[(i+len(walking.rate)-1)%len(walking.rate)] + r + 1) / 2
				varied.rate = append(varied.rate, math.Pow(max(0.02, min(3, r/before)), cond.variation))
			}
			fbdt, mptcp := varied.scaled(cond.fbdt*scale, seconds), varied.scaled(cond.mptcp*scale, seconds)
			carries, predicted := mptcp, mptcp
			if a.fbdt {
				carries = fbdt
			}
			if a.predictFBDT {
				predicted = fbdt
			}
			sum, n := 0.0, 0
			for _, t := range traces {
				o := simulate(c, carries, t, a.scheme, seconds, &predicted, true)
				for _, p := range o.psnr {
					sum += p
					n++
				}
			}
			s.PSNR = append(s.PSNR, sum/float64(n))
		}
		out = append(out, s)
	}
	return out
}

// owsTime returns the time in ms that OWS takes for 1024 tiles at 8 qualities, the minimum of many
// runs, and its certified gap.
func owsTime() (ms, gap float64) {
	const tiles, qualities = 1024, 8
	p := tile360.Problem{Qualities: qualities}
	seed := uint64(1)
	random := func() float64 {
		seed = seed*6364136223846793005 + 1442695040888963407
		return float64(seed>>11) / (1 << 53)
	}
	for range tiles {
		p.Seen = append(p.Seen, math.Pow(random(), 4))
		bytes, d := 200+2000*random(), 50+500*random()
		p.Miss = append(p.Miss, d*(1+random()))
		for range qualities {
			p.Bytes, p.Distortion = append(p.Bytes, bytes), append(p.Distortion, d)
			p.Budget += bytes / qualities / 2
			bytes *= 1.1 + random()
			d *= 0.4 + 0.55*random()
		}
	}
	s := tile360.Solver{Refine: tile360.DefaultRefine}
	var plan tile360.Plan
	least := time.Hour
	runtime.GC()
	for range 300 {
		began := time.Now()
		s.OWS(&p, &plan)
		least = min(least, time.Since(began))
	}
	return float64(least) / 1e6, plan.Gap()
}
