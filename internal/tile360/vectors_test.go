package tile360_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"holocast/internal/tile360"
)

// The vectors in testdata are the expected results of every implementation; testdata/README.md
// describes them. -update rewrites them.

type (
	direction [3]float64

	geometry struct {
		Directions []directionCase `json:"directions"`
		Grids      []gridCase      `json:"grids"`
		Viewports  []viewportCase  `json:"viewports"`
		Eyes       []eyeCase       `json:"eyes"`
	}
	directionCase struct {
		Direction direction  `json:"direction"`
		Yaw       float64    `json:"yaw"`
		Pitch     float64    `json:"pitch"`
		Picture   [2]float64 `json:"picture"`
	}
	grid struct {
		Columns int `json:"columns"`
		Rows    int `json:"rows"`
		Width   int `json:"width"`
		Height  int `json:"height"`
	}
	gridCase struct {
		grid
		Rects       [][4]int  `json:"rects"`
		SolidAngles []float64 `json:"solidAngles"`
		Tiles       []int     `json:"tiles"` // of the directions in geometry.directions
	}
	viewportCase struct {
		grid
		FieldOfView [2]float64 `json:"fieldOfView"` // degrees
		Samples     int        `json:"samples"`
		Looks       []look     `json:"looks"`
		Share       []float64  `json:"share"`
		Seen        []float64  `json:"seen"`
	}
	look struct {
		Direction direction `json:"direction"`
		P         float64   `json:"p"`
	}
	eyeCase struct {
		Layout string     `json:"layout"`
		Eye    int        `json:"eye"`
		Rect   [4]float64 `json:"rect"`
	}

	prediction struct {
		Samples []sample     `json:"samples"`
		Crowd   *crowd       `json:"crowd,omitempty"`
		Ahead   []aheadCase  `json:"ahead"`
		grid                 // for Ahead's shares
		View    viewOfVector `json:"view"`
	}
	viewOfVector struct {
		FieldOfView [2]float64 `json:"fieldOfView"`
		Samples     int        `json:"samples"`
	}
	sample struct {
		T    float64   `json:"t"`
		Gaze direction `json:"gaze"`
	}
	crowd struct {
		Rate    float64       `json:"rate"`
		Viewers [][]direction `json:"viewers"`
	}
	aheadCase struct {
		Seconds float64   `json:"seconds"`
		Linear  direction `json:"linear"`
		Predict direction `json:"predict"`
		Share   []float64 `json:"share"` // of Looks(seconds, 1)
	}

	owsCase struct {
		Name       string          `json:"name"`
		Qualities  int             `json:"qualities"`
		Seen       []float64       `json:"seen"`
		Miss       []float64       `json:"miss"`
		Bytes      []float64       `json:"bytes"`
		Distortion []float64       `json:"distortion"`
		Budget     float64         `json:"budget"`
		Capacity   []float64       `json:"capacity"`
		Plans      map[string]plan `json:"plans"`
	}
	plan struct {
		Quality  []int   `json:"quality"`
		Order    []int   `json:"order"`
		Bytes    float64 `json:"bytes"`
		Loss     float64 `json:"loss"`
		Bound    float64 `json:"bound"`
		Expected float64 `json:"expected"`
	}

	plannerCase struct {
		grid
		View      viewOfVector  `json:"view"`
		Qualities int           `json:"qualities"`
		Latency   float64       `json:"latency"`
		Crowd     *crowd        `json:"crowd,omitempty"`
		Steps     []plannerStep `json:"steps"`
	}
	plannerStep struct {
		Samples  []sample   `json:"samples"` // added first
		Rates    []float64  `json:"rates"`   // added first, bytes per second
		Mean     float64    `json:"mean"`
		P10      float64    `json:"p10"`
		GoPs     []gop      `json:"gops"`
		Seconds  float64    `json:"seconds"`
		Pending  float64    `json:"pending"`
		Budget   float64    `json:"budget"`
		Requests [][3]int   `json:"requests"`
		Chosen   planFigure `json:"chosen"`
	}
	planFigure struct {
		Loss     float64 `json:"loss"`
		Bound    float64 `json:"bound"`
		Expected float64 `json:"expected"`
	}
	gop struct {
		Start      float64   `json:"start"`
		Duration   float64   `json:"duration"`
		Miss       []float64 `json:"miss"`
		Bytes      []float64 `json:"bytes"`
		Distortion []float64 `json:"distortion"`
		Have       []int     `json:"have,omitempty"`
	}
)

func vecOf(d direction) tile360.Vec { return tile360.Vec{X: d[0], Y: d[1], Z: d[2]} }

func dirOf(v tile360.Vec) direction { return direction{v.X, v.Y, v.Z} }

func (g grid) of() tile360.Grid {
	return tile360.Grid{Columns: g.Columns, Rows: g.Rows, Width: g.Width, Height: g.Height}
}

func (c *crowd) of() *tile360.Crowd {
	if c == nil {
		return nil
	}
	out := &tile360.Crowd{Rate: c.Rate}
	for _, v := range c.Viewers {
		var viewer []tile360.Vec
		for _, d := range v {
			viewer = append(viewer, vecOf(d))
		}
		out.Viewers = append(out.Viewers, viewer)
	}
	return out
}

func TestGeometryVectors(t *testing.T) {
	checkVectors(t, "geometry.json", makeGeometry, func(g *geometry) {
		for i := range g.Directions {
			c := &g.Directions[i]
			v := vecOf(c.Direction)
			c.Yaw, c.Pitch = v.Angles()
			c.Picture[0], c.Picture[1] = v.Equirect()
		}
		for i := range g.Grids {
			c := &g.Grids[i]
			c.Rects, c.SolidAngles, c.Tiles = nil, nil, nil
			for tile := range c.of().Tiles() {
				r := c.of().Rect(tile)
				c.Rects = append(c.Rects, [4]int{r.Min.X, r.Min.Y, r.Dx(), r.Dy()})
				c.SolidAngles = append(c.SolidAngles, c.of().SolidAngle(tile))
			}
			for _, d := range g.Directions {
				c.Tiles = append(c.Tiles, c.of().Tile(vecOf(d.Direction)))
			}
		}
		for i := range g.Viewports {
			c := &g.Viewports[i]
			view := tile360.NewView(c.of(), tile360.Degrees(c.FieldOfView[0], c.FieldOfView[1]), c.Samples)
			var looks []tile360.Look
			for _, l := range c.Looks {
				looks = append(looks, tile360.Look{Gaze: vecOf(l.Direction), P: l.P})
			}
			c.Share, c.Seen = make([]float64, c.of().Tiles()), make([]float64, c.of().Tiles())
			view.Expect(looks, c.Share, c.Seen)
		}
		for i := range g.Eyes {
			c := &g.Eyes[i]
			l, err := tile360.ParseLayout(c.Layout)
			if err != nil {
				t.Fatal(err)
			}
			r := l.Eye(c.Eye)
			c.Rect = [4]float64{r.X0, r.Y0, r.X1, r.Y1}
		}
	})
}

func makeGeometry() *geometry {
	g := &geometry{}
	for _, d := range [][2]float64{
		{0, 0},
		{90, 0},
		{-90, 0},
		{179, 0},
		{-179, 0},
		{0, 89},
		{0, -89},
		{33, 21},
		{-140, -56},
		{45, 0},
		{1, 45},
	} {
		g.Directions = append(g.Directions,
			directionCase{Direction: dirOf(tile360.Direction(d[0]*math.Pi/180, d[1]*math.Pi/180))})
	}
	for _, d := range []direction{{0, 1, 0}, {0, -1, 0}, {0, 0, -1}} {
		g.Directions = append(g.Directions, directionCase{Direction: d})
	}
	for _, c := range []grid{{8, 4, 1920, 960}, {8, 4, 1920, 540}, {7, 3, 1000, 500}, {1, 1, 100, 50}} {
		g.Grids = append(g.Grids, gridCase{grid: c})
		for _, fov := range [][2]float64{{90, 90}, {100, 70}} {
			v := viewportCase{grid: c, FieldOfView: fov, Samples: 12}
			for i, d := range g.Directions {
				if i%2 == int(fov[0])%4/2 {
					v.Looks = append(v.Looks, look{d.Direction, 0.125})
				}
			}
			g.Viewports = append(g.Viewports, v,
				viewportCase{grid: c, FieldOfView: fov, Samples: 16, Looks: []look{{g.Directions[8].Direction, 1}}})
		}
	}
	for _, l := range []tile360.Layout{tile360.Mono, tile360.TopBottom, tile360.SideBySide} {
		for eye := range 2 {
			g.Eyes = append(g.Eyes, eyeCase{Layout: l.String(), Eye: eye})
		}
	}
	return g
}

func TestPredictionVectors(t *testing.T) {
	checkVectors(t, "prediction.json", makePredictions, func(all *[]prediction) {
		for i := range *all {
			p := &(*all)[i]
			g := tile360.Gaze{Crowd: p.Crowd.of()}
			for _, s := range p.Samples {
				g.Add(tile360.Sample{T: s.T, Gaze: vecOf(s.Gaze)})
			}
			view := tile360.NewView(p.of(), tile360.Degrees(p.View.FieldOfView[0], p.View.FieldOfView[1]),
				p.View.Samples)
			for k := range p.Ahead {
				a := &p.Ahead[k]
				a.Linear, a.Predict = dirOf(g.Linear(a.Seconds)), dirOf(g.Predict(a.Seconds))
				a.Share = make([]float64, p.of().Tiles())
				view.Expect(g.Looks(a.Seconds, 1, nil), a.Share, nil)
			}
		}
	})
}

// walk returns a moving head's samples, with yaw and pitch in radians, at 10 Hz from t on.
func walk(r *rand.Rand, t float64, n int) []sample {
	yaw, pitch, speed := (2*r.Float64()-1)*math.Pi, (r.Float64()-0.5)*0.8, (r.Float64()-0.5)*2
	var s []sample
	for i := range n {
		d := dirOf(tile360.Direction(yaw, pitch))
		for k := range d {
			d[k] = math.Round(d[k]*1e4) / 1e4
		}
		s = append(s, sample{math.Round((t+float64(i)/10)*1000) / 1000, d})
		yaw += speed/10 + (r.Float64()-0.5)*0.03
		pitch += (r.Float64() - 0.5) * 0.04
	}
	return s
}

func makeCrowd(r *rand.Rand, viewers, samples int) *crowd {
	c := &crowd{Rate: 10}
	for range viewers {
		var v []direction
		for _, s := range walk(r, 0, samples) {
			v = append(v, s.Gaze)
		}
		c.Viewers = append(c.Viewers, v)
	}
	return c
}

func makePredictions() *[]prediction {
	r := rand.New(rand.NewPCG(5, 5))
	ahead := func() (a []aheadCase) {
		for _, s := range []float64{0, 0.1, 0.5, 1, 1.25, 2, 5} {
			a = append(a, aheadCase{Seconds: s})
		}
		return a
	}
	base := prediction{grid: grid{8, 4, 1920, 960}, View: viewOfVector{[2]float64{90, 90}, 8}}
	var all []prediction
	for i, samples := range [][]sample{
		nil, walk(r, 2, 1), walk(r, 0, 9), walk(r, 1, 12),
		{{0, direction{0, 0, -1}}, {0.1, direction{0.05, 0, -1}}, {0.2, direction{-0.05, 0, -1}}},
		append(walk(r, 5, 4), walk(r, 1, 4)...),
		{{0, direction{0, 1, 0}}, {0.3, direction{0.1, 1, 0.1}}},
	} {
		p := base
		p.Samples, p.Ahead = samples, ahead()
		all = append(all, p)
		if i%2 == 1 {
			p.Ahead = ahead()
			p.Crowd = makeCrowd(r, 5, 30)
			p.Crowd.Viewers[0] = p.Crowd.Viewers[0][:12]
			all = append(all, p)
		}
	}
	return &all
}

func TestOWSVectors(t *testing.T) {
	checkVectors(t, "ows.json", makeOWS, func(all *[]owsCase) {
		for i := range *all {
			c := &(*all)[i]
			p := &tile360.Problem{
				Qualities:  c.Qualities,
				Seen:       c.Seen,
				Miss:       c.Miss,
				Bytes:      c.Bytes,
				Distortion: c.Distortion,
				Budget:     c.Budget,
				Capacity:   c.Capacity,
			}
			greedy, s := &tile360.Solver{}, &tile360.Solver{Refine: tile360.DefaultRefine}
			c.Plans = map[string]plan{}
			for name, solve := range map[string]func(*tile360.Problem, *tile360.Plan){
				"ows": s.OWS, "greedy": greedy.OWS, "fixed": s.Fixed, "whole": s.Whole, "viewport": s.Viewport,
				"paper": func(p *tile360.Problem, plan *tile360.Plan) { s.Paper(p, 3, plan) },
			} {
				var got tile360.Plan
				solve(p, &got)
				c.Plans[name] = plan{
					notNil(got.Quality),
					notNil(got.Order),
					got.Bytes,
					got.Loss,
					got.Bound,
					got.Expected,
				}
			}
		}
	})
}

func notNil(v []int) []int { return append([]int{}, v...) }

// makeTiles returns encoder-like bytes and distortions.
func makeTiles(r *rand.Rand, tiles, qualities int) (miss, bytes, distortion []float64) {
	for range tiles {
		b, d := 300+3000*r.Float64(), 10+200*r.Float64()
		miss = append(miss, math.Round(d*(1+r.Float64())*10)/10)
		for range qualities {
			bytes, distortion = append(bytes, math.Round(b)), append(distortion, math.Round(d*100)/100)
			b *= 1.2 + r.Float64()
			d *= 0.35 + 0.6*r.Float64()
		}
	}
	return miss, bytes, distortion
}

func makeOWS() *[]owsCase {
	r := rand.New(rand.NewPCG(6, 6))
	var all []owsCase
	for _, c := range []struct {
		name             string
		tiles, qualities int
		budget           float64 // fraction of all tiles at middle quality
	}{
		{"one tile", 1, 3, 1},
		{"few", 5, 3, 0.6},
		{"8×4×3, narrow", 32, 3, 0.2},
		{"8×4×3", 32, 3, 0.6},
		{"8×4×3, all fits", 32, 3, 9},
		{"8×4×3, nothing fits", 32, 3, 0},
		{"8×4×8", 32, 8, 0.4},
		{"two GoPs", 64, 4, 0.3},
		{"16×10×3", 160, 3, 0.3},
	} {
		o := owsCase{Name: c.name, Qualities: c.qualities}
		o.Miss, o.Bytes, o.Distortion = makeTiles(r, c.tiles, c.qualities)
		sum := 0.0
		for t := range c.tiles {
			seen := math.Round(math.Pow(r.Float64(), 4)*1e4) / 1e4
			if t%4 == 3 {
				seen = 0
			}
			o.Seen = append(o.Seen, seen)
			sum += o.Bytes[t*c.qualities+c.qualities/2]
		}
		o.Budget = math.Round(sum * c.budget)
		for i := range 10 {
			o.Capacity = append(o.Capacity, math.Round(o.Budget*(0.8+0.2*float64(i))))
		}
		all = append(all, o)
	}
	all = append(all,
		owsCase{
			Name: "equal tiles", Qualities: 2, Seen: []float64{0.25, 0.25, 0.25, 0.25}, Miss: []float64{90, 90, 90, 90},
			Bytes: []float64{
				100, 200, 100, 200, 100, 200, 100, 200,
			}, Distortion: []float64{40, 20, 40, 20, 40, 20, 40, 20}, Budget: 500, Capacity: []float64{250, 500, 1000},
		},
		owsCase{
			Name: "not all offered, not all better", Qualities: 3, Seen: []float64{0.5, 0.3, 0.2},
			Miss: []float64{90, 15, 90},
			Bytes: []float64{
				100, 0, 300, 100, 90, 300, 100, 100, 300,
			}, Distortion: []float64{40, 20, 30, 20, 20, 10, 40, 30, 80}, Budget: 700, Capacity: []float64{},
		},
	)
	return &all
}

func TestPlannerVectors(t *testing.T) {
	checkVectors(t, "planner.json", makePlanner, func(all *[]plannerCase) {
		for i := range *all {
			c := &(*all)[i]
			p := &tile360.Planner{
				View: tile360.NewView(c.of(), tile360.Degrees(c.View.FieldOfView[0], c.View.FieldOfView[1]),
					c.View.Samples),
				Qualities: c.Qualities, Latency: c.Latency,
				Gaze:   tile360.Gaze{Crowd: c.Crowd.of()},
				Solver: tile360.Solver{Refine: tile360.DefaultRefine},
			}
			for k := range c.Steps {
				s := &c.Steps[k]
				for _, x := range s.Samples {
					p.Gaze.Add(tile360.Sample{T: x.T, Gaze: vecOf(x.Gaze)})
				}
				for _, r := range s.Rates {
					p.Capacity.Add(r)
				}
				var gops []tile360.GoP
				for _, g := range s.GoPs {
					gops = append(
						gops,
						tile360.GoP{
							Start:      g.Start,
							Duration:   g.Duration,
							Miss:       g.Miss,
							Bytes:      g.Bytes,
							Distortion: g.Distortion,
							Have:       g.Have,
						},
					)
				}
				s.Mean, s.P10 = p.Capacity.Mean(), p.Capacity.Percentile(tile360.BudgetPercentile)
				s.Budget = s.P10*s.Seconds - s.Pending
				s.Requests = [][3]int{}
				for _, r := range p.Plan(gops, s.Seconds, s.Pending) {
					s.Requests = append(s.Requests, [3]int{r.GoP, r.Tile, r.Quality})
				}
				s.Chosen = planFigure{p.Chosen().Loss, p.Chosen().Bound, p.Chosen().Expected}
			}
		}
	})
}

func makePlanner() *[]plannerCase {
	r := rand.New(rand.NewPCG(7, 7))
	makeGoP := func(start float64) gop {
		g := gop{Start: start, Duration: 1}
		g.Miss, g.Bytes, g.Distortion = makeTiles(r, 32, 3)
		return g
	}
	var all []plannerCase
	for i := range 2 {
		c := plannerCase{
			grid:      grid{8, 4, 1920, 960},
			View:      viewOfVector{[2]float64{90, 90}, 8},
			Qualities: 3,
			Latency:   0.1,
		}
		if i == 1 {
			c.Crowd = makeCrowd(r, 4, 60)
		}
		w := walk(r, 0, 40)
		now := makeGoP(0)
		now.Have = make([]int, 32)
		for t := range now.Have {
			now.Have[t] = t%4 - 1
		}
		next, after := makeGoP(1), makeGoP(2)
		have := next
		have.Have = make([]int, 32)
		for t := range have.Have {
			have.Have[t] = (t+1)%3 - 1
		}
		c.Steps = []plannerStep{
			{
				Samples: w[:1],
				GoPs:    []gop{next},
				Seconds: 1,
			}, // no known rate: no requests
			{
				Samples: w[1:4],
				Rates:   []float64{50000},
				GoPs:    []gop{now, next},
				Seconds: 0.7,
				Pending: 3000,
			}, // both GoPs
			{
				Samples: w[4:8],
				Rates:   []float64{60000, 45000, 90000, 2000},
				GoPs:    []gop{now, next},
				Seconds: 0.3,
			}, // the first GoP has almost ended
			{
				Samples: w[8:16],
				Rates:   []float64{70000, 80000},
				GoPs:    []gop{have, after},
				Seconds: 1.5,
				Pending: 1000,
			}, // upgrades
			{
				Samples: w[16:17],
				Rates:   []float64{0},
				GoPs:    []gop{have, after},
				Seconds: 1,
			}, // the network stalled
			{
				Samples: w[17:22],
				Rates:   []float64{90000, 90000, 90000},
				GoPs:    []gop{after},
				Seconds: 0.25,
				Pending: 100000,
			}, // more pending than fits
		}
		all = append(all, c)
	}
	return &all
}

// checkVectors reads a vector file, recomputes its results and compares.
func checkVectors[T any](t *testing.T, name string, inputs func() *T, compute func(*T)) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		v := inputs()
		compute(v)
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.ReplaceAll(text, []byte("},{\""), []byte("},\n{\""))
		if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, got := new(T), new(T)
	for _, v := range []*T{want, got} {
		if err := json.Unmarshal(text, v); err != nil {
			t.Fatal(err)
		}
	}
	compute(got)
	if err := differ(reflect.ValueOf(*want), reflect.ValueOf(*got), name); err != nil {
		t.Error(err)
	}
}

// differ compares numbers to 10⁻⁹ and everything else exactly.
func differ(a, b reflect.Value, at string) error {
	switch a.Kind() {
	case reflect.Float64:
		if math.Abs(a.Float()-b.Float()) > 1e-9*max(1, math.Abs(a.Float())) {
			return fmt.Errorf("%s: %v, want %v", at, b, a)
		}
	case reflect.Pointer:
		if !a.IsNil() {
			return differ(a.Elem(), b.Elem(), at)
		}
	case reflect.Struct:
		for i := range a.NumField() {
			if err := differ(a.Field(i), b.Field(i), at+"."+a.Type().Field(i).Name); err != nil {
				return err
			}
		}
	case reflect.Slice, reflect.Array:
		if a.Len() != b.Len() {
			return fmt.Errorf("%s: %v, want %v", at, b, a)
		}
		for i := range a.Len() {
			if err := differ(a.Index(i), b.Index(i), fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case reflect.Map:
		for _, k := range a.MapKeys() {
			if err := differ(a.MapIndex(k), b.MapIndex(k), fmt.Sprintf("%s[%v]", at, k)); err != nil {
				return err
			}
		}
	default:
		if !a.Equal(b) {
			return fmt.Errorf("%s: %v, want %v", at, b, a)
		}
	}
	return nil
}
