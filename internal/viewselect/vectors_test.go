package viewselect

import (
	"encoding/json"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"holocast/internal/camera"
)

var update = flag.Bool("update", false, "write testdata")

const vectorsFile = "testdata/vectors.json"

// The vectors are the expected results of every implementation; numbers agree to 1e-9.
type vectors struct {
	Surfaces []surfaceCase `json:"surfaces"`
	Worths   []worthCase   `json:"worths"`
	Choices  []choiceCase  `json:"choices"`
}

type surfaceCase struct {
	Rays    [][2]float32     `json:"rays"` // [] of a pixel without a ray is [1e9, 0]
	Width   int              `json:"width"`
	Depth   []uint16         `json:"depth"`
	Pose    camera.Transform `json:"pose"`
	Stride  int              `json:"stride"`
	Samples [][11]float32    `json:"samples"` // point, normal, area, facing, sensor
}

type worthCase struct {
	Cameras [][][11]float32 `json:"cameras"`
	Views   []viewCase      `json:"views"`
	Worth   []float64       `json:"worth"`
}

type viewCase struct {
	Eye      camera.Transform `json:"eye"`
	TanX     float64          `json:"tanX"`
	TanY     float64          `json:"tanY"`
	Velocity [3]float64       `json:"velocity"`
	Turn     float64          `json:"turn"`
	After    float64          `json:"after"`
}

type choiceCase struct {
	Worth   []float64   `json:"worth"`
	Rates   [][]float64 `json:"rates"`
	Errors  [][]float64 `json:"errors"`
	Budget  float64     `json:"budget"`
	Current []int       `json:"current"`
	Choice  []int       `json:"choice"`
}

const noRay = 1e9

func flat(samples []Sample) [][11]float32 {
	out := [][11]float32{}
	for _, s := range samples {
		out = append(out, [11]float32{
			s.Point[0], s.Point[1], s.Point[2], s.Normal[0], s.Normal[1], s.Normal[2], s.Area, s.Facing,
			s.Sensor[0], s.Sensor[1], s.Sensor[2],
		})
	}
	return out
}

func unflat(list [][11]float32) (samples []Sample) {
	for _, v := range list {
		samples = append(samples, Sample{[3]float32(v[0:3]), [3]float32(v[3:6]), v[6], v[7], [3]float32(v[8:11])})
	}
	return samples
}

func (c *surfaceCase) compute() {
	rays := camera.RayTable{Width: c.Width, Height: len(c.Rays) / c.Width}
	for _, r := range c.Rays {
		if r[0] == noRay {
			r[0] = float32(math.NaN())
		}
		rays.X, rays.Y = append(rays.X, r[0]), append(rays.Y, r[1])
	}
	c.Samples = flat(Surface(nil, &rays, c.Depth, &c.Pose, c.Stride))
}

func (c *worthCase) compute() {
	var s Scene
	var cameras [][]Sample
	for _, list := range c.Cameras {
		cameras = append(cameras, unflat(list))
	}
	var views []View
	for _, v := range c.Views {
		views = append(views, Ahead(View{v.Eye, v.TanX, v.TanY}, v.Velocity, v.Turn, v.After)...)
	}
	c.Worth = make([]float64, len(cameras))
	s.Worth(c.Worth, cameras, views...)
}

func (c *choiceCase) compute() {
	var ch Chooser
	options := make([][]Option, len(c.Worth))
	for i := range options {
		for q := range c.Rates[i] {
			options[i] = append(options[i], Option{c.Rates[i][q], c.Errors[i][q]})
		}
	}
	c.Choice = make([]int, len(c.Worth))
	ch.Choose(c.Choice, c.Worth, options, c.Budget, c.Current)
}

// cases returns the inputs, from a fixed seed.
func cases() (v vectors) {
	r := rand.New(rand.NewPCG(3, 1))
	small := camera.Intrinsics{Width: 32, Height: 24, Fx: 25, Fy: 25, Cx: 15.5, Cy: 11.5}
	rays := small.RayTable()
	var pairs [][2]float32
	for i := range rays.X {
		pairs = append(pairs, [2]float32{rays.X[i], rays.Y[i]})
	}
	pairs[40][0] = noRay
	depth := make([]uint16, len(pairs))
	for i := range depth {
		switch x := i % 32; {
		case x < 6:
		case x < 20:
			depth[i] = uint16(1500 + 10*x + r.IntN(8))
		default:
			depth[i] = uint16(2500 - 15*x + r.IntN(8))
		}
	}
	for _, stride := range []int{1, 3} {
		v.Surfaces = append(v.Surfaces, surfaceCase{
			Rays: pairs, Width: 32, Depth: depth, Pose: around(0.7*float64(stride), 2000), Stride: stride,
		})
	}
	var cameras [][][11]float32
	t := lens.RayTable()
	for i := range 4 {
		pose := around(float64(i)*math.Pi/2, 2000)
		cameras = append(cameras, flat(Surface(nil, &t, sphere(pose, 500), &pose, 16)))
	}
	for i := range 6 {
		var views []viewCase
		for range 1 + i%2 {
			views = append(views, viewCase{
				Eye: around(6*r.Float64(), 1000+2000*r.Float64()).Inverse(), TanX: 0.5 + r.Float64(), TanY: 0.5,
				Velocity: [3]float64{1000 * r.NormFloat64(), 0, 1000 * r.NormFloat64()}, Turn: r.Float64(), After: 0.4,
			})
		}
		v.Worths = append(v.Worths, worthCase{Cameras: cameras, Views: views})
	}
	for i := range 12 {
		c := choiceCase{Budget: 2e6 + 16e6*r.Float64()}
		for range 1 + i%5 {
			c.Worth = append(c.Worth, r.Float64())
			a, e := 1e6+6e6*r.Float64(), 5+10*r.Float64()
			c.Rates = append(c.Rates, []float64{a, a / 2, a / 4})
			c.Errors = append(c.Errors, []float64{e, 2.2 * e, 6 * e})
			if i%3 == 0 {
				c.Current = append(c.Current, r.IntN(3))
			}
		}
		v.Choices = append(v.Choices, c)
	}
	return v
}

func TestVectors(t *testing.T) {
	want := cases()
	for i := range want.Surfaces {
		want.Surfaces[i].compute()
	}
	for i := range want.Worths {
		want.Worths[i].compute()
	}
	for i := range want.Choices {
		want.Choices[i].compute()
	}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(vectorsFile, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err = os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	for i, c := range v.Surfaces {
		want := c.Samples
		c.compute()
		if !slices.EqualFunc(c.Samples, want, func(a, b [11]float32) bool {
			return slices.EqualFunc(a[:], b[:], func(x, y float32) bool {
				return math.Abs(float64(x-y)) <= 1e-6*max(1, math.Abs(float64(y)))
			})
		}) {
			t.Errorf("surface %d differs", i)
		}
	}
	for i, c := range v.Worths {
		want := c.Worth
		c.compute()
		if !slices.EqualFunc(c.Worth, want, func(a, b float64) bool { return math.Abs(a-b) <= 1e-9 }) {
			t.Errorf("worth %d: %v, want %v", i, c.Worth, want)
		}
	}
	for i, c := range v.Choices {
		want := c.Choice
		c.compute()
		if !slices.Equal(c.Choice, want) {
			t.Errorf("choice %d: %v, want %v", i, c.Choice, want)
		}
	}
}
