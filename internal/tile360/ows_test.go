package tile360

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomProblem returns an encoder-like problem: bytes grow and distortion shrinks with quality, by
// factors that differ between tiles. Some qualities are not offered, and some are no better than a
// cheaper one.
func randomProblem(r *rand.Rand, tiles, qualities int) *Problem {
	p := &Problem{Qualities: qualities}
	total := 0.0
	for t := range tiles {
		seen := math.Pow(r.Float64(), 4)
		if r.IntN(4) == 0 {
			seen = 0
		}
		p.Seen = append(p.Seen, seen)
		bytes, distortion := 200+2000*r.Float64(), 50+500*r.Float64()
		p.Miss = append(p.Miss, distortion*(1+r.Float64()))
		for q := range qualities {
			p.Bytes = append(p.Bytes, math.Round(bytes))
			p.Distortion = append(p.Distortion, distortion)
			bytes *= 1.1 + r.Float64()
			distortion *= 0.4 + 0.65*r.Float64()
			switch i := t*qualities + q; r.IntN(40) {
			case 0:
				p.Bytes[i] = 0
			case 1:
				p.Distortion[i] = math.NaN()
			}
			total += p.Bytes[t*qualities+q]
		}
	}
	p.Budget = math.Round(total / float64(qualities) * 1.5 * r.Float64())
	for range 10 {
		p.Capacity = append(p.Capacity, p.Budget*(0.9+r.Float64()))
	}
	slices.Sort(p.Capacity)
	return p
}

// brute returns the minimum loss within the budget, by exhaustive search.
func brute(p *Problem) float64 {
	best := math.Inf(1)
	var try func(t int, bytes, loss float64)
	try = func(t int, bytes, loss float64) {
		if bytes > p.Budget {
			return
		}
		if t == len(p.Seen) {
			best = min(best, loss)
			return
		}
		try(t+1, bytes, loss+p.Seen[t]*p.Miss[t])
		for q := range p.Qualities {
			if i := t*p.Qualities + q; p.offered(i) {
				try(t+1, bytes+p.Bytes[i], loss+p.Seen[t]*p.Distortion[i])
			}
		}
	}
	try(0, 0, 0)
	return best
}

// checkPlan checks the invariants of plans.
func checkPlan(t testing.TB, p *Problem, plan *Plan) {
	t.Helper()
	bytes, loss := 0.0, 0.0
	sent := map[int]bool{}
	for _, tile := range plan.Order {
		q := plan.Quality[tile]
		if q < 0 || !p.offered(tile*p.Qualities+q) || sent[tile] {
			t.Fatalf("tile %d is sent at quality %d, again: %v", tile, q, sent[tile])
		}
		sent[tile] = true
		bytes += p.Bytes[tile*p.Qualities+q]
	}
	for tile, q := range plan.Quality {
		d := p.Miss[tile]
		if q >= 0 {
			d = p.Distortion[tile*p.Qualities+q]
		}
		if loss += p.Seen[tile] * d; (q >= 0) != sent[tile] {
			t.Fatalf("tile %d of quality %d is missing in the order", tile, q)
		}
	}
	if bytes != plan.Bytes || !near(loss, plan.Loss) {
		t.Fatalf("%g bytes, loss %g; the plan says %g, %g", bytes, loss, plan.Bytes, plan.Loss)
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

func TestOWSIsOptimalForFewTiles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	greedy, refined := &Solver{}, &Solver{Refine: DefaultRefine}
	var a, b Plan
	better := 0
	for range 400 {
		p := randomProblem(r, 1+r.IntN(6), 1+r.IntN(4))
		want := brute(p)
		greedy.OWS(p, &a)
		refined.OWS(p, &b)
		checkPlan(t, p, &a)
		checkPlan(t, p, &b)
		if !near(b.Loss, want) || !near(b.Bound, want) {
			t.Fatalf("loss %g, bound %g, want %g", b.Loss, b.Bound, want)
		}
		if a.Bound > want*(1+1e-9) || a.Loss < want*(1-1e-9) {
			t.Fatalf("greedy: loss %g, bound %g, the optimum is %g", a.Loss, a.Bound, want)
		}
		if a.Loss > want*(1+1e-9) {
			better++
		}
	}
	if better == 0 {
		t.Error("the search never had anything to improve: the test does not test it")
	}
}

func TestOWSKeepsBudgetAndBound(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	s := &Solver{Refine: DefaultRefine}
	var plan, other Plan
	ratio := map[string]float64{}
	for i := range 1500 {
		p := randomProblem(r, 1+r.IntN(64), 1+r.IntN(8))
		if i%50 == 0 {
			p = randomProblem(r, 1024, 8)
		}
		s.OWS(p, &plan)
		checkPlan(t, p, &plan)
		if plan.Bytes > p.Budget {
			t.Fatalf("%g bytes of %g", plan.Bytes, p.Budget)
		}
		if plan.Bound > plan.Loss || plan.Gap() < 0 {
			t.Fatalf("loss %g below its bound %g", plan.Loss, plan.Bound)
		}
		for name, solve := range baselines(s) {
			solve(p, &other)
			checkPlan(t, p, &other)
			if other.Bytes > p.Budget {
				continue // exceeds the budget even at the smallest quality
			}
			if plan.Loss > other.Loss*(1+1e-9) {
				t.Errorf("%d tiles × %d: loss %g, %s has %g", len(p.Seen), p.Qualities, plan.Loss, name, other.Loss)
			}
			// OWS chooses qualities before the order, so with lateness another choice may be
			// slightly better.
			if len(p.Seen) >= 16 && name != "greedy" && plan.Expected > other.Expected*1.05 {
				t.Errorf("%d tiles × %d: expected loss %g, %s has %g", len(p.Seen), p.Qualities, plan.Expected, name,
					other.Expected)
			}
			ratio[name] += math.Log(max(plan.Expected, 1e-9) / max(other.Expected, 1e-9))
			if plan.Bound > other.Loss*(1+1e-9) {
				t.Errorf("bound %g above the loss of %s, %g", plan.Bound, name, other.Loss)
			}
		}
	}
	for name, sum := range ratio {
		if sum >= 0 {
			t.Errorf("expected loss is not below that of %s on average", name)
		}
	}
}

func baselines(s *Solver) map[string]func(*Problem, *Plan) {
	return map[string]func(*Problem, *Plan){
		"whole":    s.Whole,
		"viewport": s.Viewport,
		"fixed":    s.Fixed,
		"paper":    func(p *Problem, plan *Plan) { s.Paper(p, 10, plan) },
		"greedy":   (&Solver{}).OWS,
	}
}

// Exact ties, and extreme values.
func TestOWSOfOddProblems(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		name string
		p    Problem
		want []int
	}{
		{"no tiles", Problem{Qualities: 3, Budget: 10}, []int{}},
		{"no qualities", Problem{Seen: []float64{1}, Miss: []float64{9}, Budget: 10}, []int{-1}},
		{"no budget", Problem{
			Qualities: 1, Seen: []float64{1}, Miss: []float64{9}, Bytes: []float64{1},
			Distortion: []float64{1},
		}, []int{-1}},
		{"negative budget", Problem{
			Qualities: 1, Seen: []float64{1}, Miss: []float64{9}, Bytes: []float64{1},
			Distortion: []float64{1}, Budget: -5,
		}, []int{-1}},
		{"unlimited", Problem{
			Qualities: 2, Seen: []float64{1}, Miss: []float64{9}, Bytes: []float64{1, 2},
			Distortion: []float64{2, 1}, Budget: inf,
		}, []int{1}},
		{"not offered", Problem{
			Qualities: 3, Seen: []float64{1}, Miss: []float64{9}, Bytes: []float64{inf, 2, -1},
			Distortion: []float64{0, nan, 0}, Budget: 10,
		}, []int{-1}},
		{"worse than nothing", Problem{
			Qualities: 1, Seen: []float64{1}, Miss: []float64{1}, Bytes: []float64{1},
			Distortion: []float64{2}, Budget: 10,
		}, []int{-1}},
		{"not seen", Problem{
			Qualities: 1, Seen: []float64{0}, Miss: []float64{9}, Bytes: []float64{1},
			Distortion: []float64{2}, Budget: 10,
		}, []int{-1}},
		{"equal tiles", Problem{
			Qualities: 1, Seen: []float64{1, 1, 1}, Miss: []float64{9, 9, 9},
			Bytes: []float64{1, 1, 1}, Distortion: []float64{1, 1, 1}, Budget: 2,
		}, []int{0, 0, -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var plan Plan
			(&Solver{Refine: DefaultRefine}).OWS(&c.p, &plan)
			checkPlan(t, &c.p, &plan)
			if !slices.Equal(plan.Quality, c.want) || plan.Bytes > max(0, c.p.Budget) {
				t.Errorf("qualities %v, want %v", plan.Quality, c.want)
			}
		})
	}
}

// TestPaperAsPrinted shows the faults of the printed algorithm listed in OWS's comment.
func TestPaperAsPrinted(t *testing.T) {
	p := &Problem{
		Qualities: 2, Seen: []float64{0.1, 0.9}, Miss: []float64{100, 100},
		Bytes: []float64{10, 20, 10, 20}, Distortion: []float64{50, 20, 50, 20},
		Budget: 30, Capacity: []float64{5, 15, 25, 35},
	}
	var plan, more, ours Plan
	s := &Solver{}
	s.Paper(p, 1, &plan)
	s.Paper(p, 50, &more)
	if !slices.Equal(plan.Quality, []int{0, 1}) || !slices.Equal(more.Quality, plan.Quality) {
		t.Errorf("rates %v, after more rounds %v", plan.Quality, more.Quality)
	}
	if plan.Order[0] != 0 {
		t.Errorf("order %v: ascending loss sends what matters least first", plan.Order)
	}
	if s.OWS(p, &ours); ours.Order[0] != 1 || ours.Expected >= plan.Expected {
		t.Errorf("ours: order %v, expected loss %g, as printed %g", ours.Order, ours.Expected, plan.Expected)
	}
}

func TestOWSDoesNotAllocate(t *testing.T) {
	p := randomProblem(rand.New(rand.NewPCG(3, 3)), 1024, 8)
	s := &Solver{Refine: DefaultRefine}
	var plan Plan
	if n := testing.AllocsPerRun(10, func() { s.OWS(p, &plan) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func FuzzOWS(f *testing.F) {
	f.Add(uint64(1), uint8(3), uint8(3), 1000.0, 3.0)
	f.Add(uint64(2), uint8(32), uint8(8), -1.0, math.Inf(1))
	f.Fuzz(func(t *testing.T, seed uint64, tiles, qualities uint8, budget, odd float64) {
		r := rand.New(rand.NewPCG(seed, 0))
		p := randomProblem(r, int(tiles%64), int(qualities%9))
		p.Budget = budget
		if math.IsNaN(odd) {
			odd = math.Inf(1)
		}
		if n := len(p.Bytes); n > 0 {
			p.Bytes[r.IntN(n)], p.Distortion[r.IntN(n)] = odd, odd
		}
		var plan Plan
		for _, refine := range []int{0, 512} {
			s := &Solver{Refine: refine}
			s.OWS(p, &plan)
			if plan.Bytes > max(0, budget) || math.IsNaN(budget) && plan.Bytes > 0 {
				t.Fatalf("%g bytes of %g", plan.Bytes, budget)
			}
			for _, solve := range baselines(s) {
				solve(p, &plan)
			}
		}
	})
}

func BenchmarkOWS(b *testing.B) {
	for _, size := range [][2]int{{32, 3}, {128, 8}, {1024, 8}} {
		for _, refine := range []int{0, DefaultRefine} {
			b.Run(fmt.Sprintf("%dx%d/refine=%d", size[0], size[1], refine), func(b *testing.B) {
				p := randomProblem(rand.New(rand.NewPCG(4, 4)), size[0], size[1])
				s := &Solver{Refine: refine}
				var plan Plan
				b.ReportAllocs()
				for b.Loop() {
					s.OWS(p, &plan)
				}
				b.ReportMetric(100*plan.Gap(), "gap_%")
			})
		}
	}
}
