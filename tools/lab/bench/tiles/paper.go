package tiles

import (
	"math"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

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
			fbdt, mptcp := cond.rates(walking, best, 1, seconds)
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

// rates returns the condition's throughput of FBDT and MPTCP, with the shape of a trace's changes
// raised to the power of variation × exponent. FBDT's mean in the first condition carries best bytes
// per second.
func (cond condition) rates(trace network, best, exponent float64, seconds int) (fbdt, mptcp network) {
	scale := best / conditions()[0].fbdt
	varied := network{cond.name, nil}
	for i, r := range trace.rate {
		before := (trace.rate[(i+len(trace.rate)-1)%len(trace.rate)] + r + 1) / 2
		varied.rate = append(varied.rate, math.Pow(max(0.02, min(3, r/before)), exponent*cond.variation))
	}
	return varied.scaled(cond.fbdt*scale, seconds), varied.scaled(cond.mptcp*scale, seconds)
}

// Cross separates order from transport in the paper's setting. Each transport has a budget of its own
// rate.
type Cross struct {
	Name string `json:"name"` // how the rates are known, and how much they vary

	// Mean PSNR by condition, dB: the paper's FIX and OWS on MPTCP and on FBDT.
	FixMPTCP []float64 `json:"fix_mptcp"`
	OWSMPTCP []float64 `json:"ows_mptcp"`
	FixFBDT  []float64 `json:"fix_fbdt"`
	OWSFBDT  []float64 `json:"ows_fbdt"`
}

// orderAndTransport simulates both orders over both transports with all clips, head movements and
// networks.
func orderAndTransport(clips []*clip, traces [][]trace, nets []network, seconds int) []Cross {
	var out []Cross
	for _, x := range []struct {
		name     string
		known    bool
		exponent float64
	}{
		{"rates predicted", false, 1},
		{"rates known, as in the paper", true, 1},
		{"rates predicted, exponents halved", false, 0.5},
		{"rates predicted, exponents doubled", false, 2},
	} {
		cross := Cross{Name: x.name}
		for _, cond := range conditions() {
			var sums [4]float64
			var shown int
			var mu sync.Mutex
			var work errgroup.Group
			work.SetLimit(runtime.NumCPU())
			for i, c := range clips {
				for _, net := range nets {
					fbdt, mptcp := cond.rates(net, c.bytes(c.qualities-1), x.exponent, seconds)
					for _, t := range traces[i] {
						work.Go(func() error {
							var psnr [4]float64
							slots := 0
							for k, choose := range []func(*tile360.Solver, *tile360.Problem, *tile360.Plan){
								fixed, printed, fixed, printed,
							} {
								carries := mptcp
								if k >= 2 {
									carries = fbdt
								}
								o := simulate(c, carries, t, scheme{
									percentile: mean, known: x.known, seen: observed, gaze: crowdMap, choose: choose,
								}, seconds, nil, true)
								for _, p := range o.psnr {
									psnr[k] += p
								}
								slots = len(o.psnr)
							}
							mu.Lock()
							defer mu.Unlock()
							for k := range sums {
								sums[k] += psnr[k]
							}
							shown += slots
							return nil
						})
					}
				}
			}
			_ = work.Wait() // never fails
			for k, to := range []*[]float64{&cross.FixMPTCP, &cross.OWSMPTCP, &cross.FixFBDT, &cross.OWSFBDT} {
				*to = append(*to, sums[k]/float64(shown))
			}
		}
		out = append(out, cross)
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
