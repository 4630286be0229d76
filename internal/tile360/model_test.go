package tile360_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/format"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"holocast/internal/gazetrace"
	"holocast/internal/tile360"
)

var update = flag.Bool("update", false, "rewrite the vectors and, if the data is available, the gaze model")

// headTraces returns the recorded head movements, or skips the test if they are missing.
func headTraces(t *testing.T) []gazetrace.Trace {
	t.Helper()
	dir := os.Getenv("HOLOCAST_DATA")
	if dir == "" {
		dir = "../../../shared/data"
	}
	path := filepath.Join(dir, "head_traces", "all_10hz.csv.gz")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no recorded head movements (HOLOCAST_DATA): %v", err)
	}
	traces, err := gazetrace.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return traces
}

const trained = 15 // viewers per video used to fit the model

// moment is a viewer's state at one time and the viewer's later gaze.
type moment struct {
	gaze           *tile360.Gaze
	right, up      float64 // speed
	crowdX, crowdY []float64
	actual         []tile360.Vec // later gaze, by horizon
	x, y           []float64     // offset of actual from the last gaze
}

// moments feeds each viewer's trace to a predictor and calls visit for every seventh sample, except in
// the last three seconds.
func moments(viewers []gazetrace.Trace, crowd func(viewer int) *tile360.Crowd, visit func(m *moment)) {
	for i, v := range viewers {
		c := crowd(i)
		g := &tile360.Gaze{Crowd: c}
		for k, s := range v.Samples {
			g.Add(s)
			end := v.Samples[len(v.Samples)-1].T
			if k%7 != 6 || s.T+3 > end {
				continue
			}
			m := &moment{gaze: g}
			m.right, m.up = g.Velocity()
			for _, h := range tile360.Horizons {
				a := v.At(s.T + h)
				x, y := s.Gaze.Offset(a)
				cx, cy := 0.0, 0.0
				if mean, ok := c.Mean(s, s.T+h); ok {
					cx, cy = s.Gaze.Offset(mean)
				}
				m.actual = append(m.actual, a)
				m.x, m.y = append(m.x, x), append(m.y, y)
				m.crowdX, m.crowdY = append(m.crowdX, cx), append(m.crowdY, cy)
			}
			visit(m)
		}
	}
}

// split divides each video's viewers into training and test sets.
func split(traces []gazetrace.Trace) (train, test [][]gazetrace.Trace) {
	for _, video := range gazetrace.Videos(traces) {
		of := gazetrace.Of(traces, video)
		train, test = append(train, of[:trained]), append(test, of[trained:])
	}
	return train, test
}

func others(viewers []gazetrace.Trace) func(int) *tile360.Crowd {
	all := gazetrace.Crowd(viewers, 10)
	return func(i int) *tile360.Crowd {
		return &tile360.Crowd{Rate: all.Rate, Viewers: slices.Concat(all.Viewers[:i], all.Viewers[i+1:])}
	}
}

// regression computes the weights a, b that minimize Σ (z − a·x − b·y)².
type regression struct{ xx, xy, yy, xz, yz float64 }

func (r *regression) add(x, y, z float64) {
	r.xx += x * x
	r.xy += x * y
	r.yy += y * y
	r.xz += x * z
	r.yz += y * z
}

func (r *regression) solve() (a, b float64) {
	det := r.xx*r.yy - r.xy*r.xy
	if math.Abs(det) < 1e-12 {
		return 0, 0
	}
	return (r.xz*r.yy - r.yz*r.xy) / det, (r.yz*r.xx - r.xz*r.xy) / det
}

func round(v float64) float64 { return math.Round(v*1000) / 1000 }

// TestModel fits the model and compares it with model_data.go.
func TestModel(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	train, _ := split(headTraces(t))
	blends, spreads, rings := tile360.Model()
	before := fmt.Sprint(*blends, *spreads, *rings)
	n := len(tile360.Horizons)

	// Fit the weights of the viewer's motion and the crowd's.
	both, alone := make([][2]regression, n), make([][2]regression, n)
	for _, viewers := range train {
		moments(viewers, others(viewers), func(m *moment) {
			for h, ahead := range tile360.Horizons {
				ox, oy := m.right*ahead, m.up*ahead
				if l := math.Hypot(ox, oy); l > math.Pi/2 {
					ox, oy = ox*math.Pi/2/l, oy*math.Pi/2/l
				}
				both[h][0].add(ox, m.crowdX[h], m.x[h])
				both[h][1].add(oy, m.crowdY[h], m.y[h])
				alone[h][0].add(ox, 0, m.x[h])
				alone[h][1].add(oy, 0, m.y[h])
			}
		})
	}
	for h := range n {
		ox, cx := both[h][0].solve()
		oy, cy := both[h][1].solve()
		ax := alone[h][0].xz / max(1e-12, alone[h][0].xx)
		ay := alone[h][1].xz / max(1e-12, alone[h][1].xx)
		blends[h] = tile360.NewBlend(round(ox), round(oy), round(cx), round(cy), round(ax), round(ay))
	}
	blends[0] = tile360.NewBlend(0, 0, 0, 0, 0, 0)

	// Measure the remaining errors.
	var radii []float64
	for pass := range 2 {
		sums := [2][len(tile360.Speeds) + 1][len(tile360.Horizons)][3]float64{}
		for _, viewers := range train {
			moments(viewers, others(viewers), func(m *moment) {
				class := classOf(math.Hypot(m.right, m.up))
				crowd := m.gaze.Crowd
				for with := range 2 {
					if with == 0 {
						m.gaze.Crowd = nil
					}
					for h, ahead := range tile360.Horizons {
						x, y := m.gaze.Predict(ahead).Offset(m.actual[h])
						if pass == 0 {
							s := &sums[with][class][h]
							s[0] += math.Abs(x)
							s[1] += math.Abs(y)
							s[2]++
						} else if v := spreads[with][class][h].Values(); h > 0 {
							radii = append(radii, math.Hypot(x/v[0], y/v[1]))
						}
					}
					m.gaze.Crowd = crowd
				}
			})
		}
		if pass == 0 {
			for with := range sums {
				for class := range sums[with] {
					for h, s := range sums[with][class] {
						spreads[with][class][h] = tile360.NewSpread(round(s[0]/s[2]), round(s[1]/s[2]), 0)
					}
				}
			}
		}
	}
	slices.Sort(radii)
	for i := range rings {
		rings[i] = round(radii[len(radii)*(2*i+1)/(2*len(rings))])
	}

	// Choose the crowd's probability that maximizes the likelihood of the viewport's actual
	// position.
	view := tile360.NewView(tile360.Grid{Columns: 16, Rows: 8, Width: 1920, Height: 960}, tile360.Degrees(90, 90), 6)
	shares := []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7}
	tiles := view.Grid.Tiles()
	actual, own, attention := make([]float64, tiles), make([]float64, tiles), make([]float64, tiles)
	for class := range len(tile360.Speeds) + 1 {
		for h := range n {
			score := make([]float64, len(shares))
			visited := 0
			for _, viewers := range train {
				moments(viewers, others(viewers), func(m *moment) {
					if classOf(math.Hypot(m.right, m.up)) != class {
						return
					}
					if visited++; visited%60 != 0 {
						return
					}
					ahead := tile360.Horizons[h]
					set := func(share float64) {
						v := spreads[1][class][h].Values()
						spreads[1][class][h] = tile360.NewSpread(v[0], v[1], share)
					}
					view.Shares(m.actual[h], actual)
					set(0)
					view.Expect(m.gaze.Looks(ahead, 1, nil), own, nil)
					set(1)
					view.Expect(m.gaze.Looks(ahead, 1, nil), attention, nil)
					for i, share := range shares {
						for tile, a := range actual {
							score[i] += a * math.Log((1-share)*own[tile]+share*attention[tile]+1e-3)
						}
					}
				})
			}
			best := 0
			for i := range shares {
				if score[i] > score[best] {
					best = i
				}
			}
			v := spreads[1][class][h].Values()
			spreads[1][class][h] = tile360.NewSpread(v[0], v[1], shares[best])
		}
	}
	if after := fmt.Sprint(*blends, *spreads, *rings); after != before {
		if !*update {
			t.Errorf("the traces give another model:\n%s\nthan model.go has:\n%s", after, before)
			return
		}
		writeModel(t)
	}
}

func classOf(speed float64) int {
	class := 0
	for class < len(tile360.Speeds) && speed > tile360.Speeds[class] {
		class++
	}
	return class
}

func writeModel(t *testing.T) {
	blends, spreads, rings := tile360.Model()
	var b bytes.Buffer
	b.WriteString("// Code generated by go test -run TestModel -update. DO NOT EDIT.\n\npackage tile360\n\n")
	b.WriteString("var blends = [len(horizons)]blend{\n")
	for _, v := range blends {
		b.WriteString("{" + list(v.Values()) + "},\n")
	}
	b.WriteString(
		"}\n\n// spreads without and with a crowd, by class of speed and horizon.\nvar spreads = [2][len(speeds) + " +
			"1][len(horizons)]spread{\n",
	)
	for _, with := range spreads {
		b.WriteString("{\n")
		for _, class := range with {
			b.WriteString("{")
			for i, v := range class {
				if i > 0 {
					b.WriteString(", ")
				}
				v := v.Values()
				fmt.Fprintf(&b, "{%g, %g, %g}", v[0], v[1], v[2])
			}
			b.WriteString("},\n")
		}
		b.WriteString("},\n")
	}
	b.WriteString(
		"}\n\n// errorRings are radii, in spreads. Each represents a sixth of the errors and is their median.\nvar " +
			"errorRings = [...]float64{",
	)
	for i, r := range rings {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%g", r)
	}
	b.WriteString("}\n")
	text, err := format.Source(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("model_data.go", text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func list(v [6]float64) (s string) {
	for i, x := range v {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprint(x)
	}
	return s
}

// TestPredictionErrors measures angular errors for test viewers, with the training viewers as the
// crowd.
func TestPredictionErrors(t *testing.T) {
	train, test := split(headTraces(t))
	horizons := map[float64]int{0.5: 2, 1: 3, 2: 5}
	kinds := []string{"last position", "linear regression", "crowd", "blend, alone", "blend"}
	mean, count := map[float64]map[string][]float64{}, 0
	for h := range horizons {
		mean[h] = map[string][]float64{}
	}
	for i, viewers := range test {
		crowd := gazetrace.Crowd(train[i], 10)
		moments(viewers, func(int) *tile360.Crowd { return crowd }, func(m *moment) {
			count++
			last := m.gaze.Last()
			for ahead, h := range horizons {
				add := func(kind string, v tile360.Vec) {
					mean[ahead][kind] = append(mean[ahead][kind], tile360.Angle(v, m.actual[h])*180/math.Pi)
				}
				add("last position", last.Gaze)
				add("linear regression", m.gaze.Linear(ahead))
				c, _ := crowd.Mean(last, last.T+ahead)
				add("crowd", c)
				add("blend", m.gaze.Predict(ahead))
				m.gaze.Crowd = nil
				add("blend, alone", m.gaze.Predict(ahead))
				m.gaze.Crowd = crowd
			}
		})
	}
	average := func(v []float64) float64 {
		sum := 0.0
		for _, x := range v {
			sum += x
		}
		return sum / float64(len(v))
	}
	for _, kind := range kinds {
		line := fmt.Sprintf("%-18s", kind)
		for _, ahead := range []float64{0.5, 1, 2} {
			v := slices.Sorted(slices.Values(mean[ahead][kind]))
			line += fmt.Sprintf("  %g s: mean %5.2f°, p50 %5.2f°, p90 %5.2f°", ahead, average(v), v[len(v)/2],
				v[len(v)*9/10])
		}
		t.Log(line)
	}
	t.Logf("%d predictions of %d videos", count, len(test))
	for ahead := range horizons {
		blend := average(mean[ahead]["blend"])
		for _, kind := range kinds[:3] {
			if other := average(mean[ahead][kind]); blend > other {
				t.Errorf("%g s ahead the blend is wrong by %.2f°, %s by %.2f°", ahead, blend, kind, other)
			}
		}
	}
}
