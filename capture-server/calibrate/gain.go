package calibrate

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"holocast/capture-server/depthmap"
	"holocast/internal/camera"
	"holocast/internal/srgb"
)

// ColorResidual measures how well the colours of surfaces seen by several cameras agree.
type ColorResidual struct {
	// Before and After are the median differences of a channel (0–255) with and without the gains.
	Before, After float64
	Pairs         int // places that two cameras see, in usable light
}

const (
	// A colour is compared if all its channels are in this range: darker ones are noise, brighter ones
	// saturated.
	minLevel, maxLevel = 20, 245

	colorGate     = 25  // millimetres between two cameras' readings of one place
	minColorPairs = 200 // minimum number of places to compare two cameras

	// minGain and maxGain bound gains. Beyond them noise or saturation shows.
	minGain, maxGain = 0.5, 2
)

// tolerances are the scales of the Cauchy weights in each iteration, as natural logarithms of ratios
// of linear light.
var tolerances = []float64{1, 0.5, 0.25, 0.1, 0.1, 0.1, 0.1}

// MatchColors returns gains that make the cameras agree on the colours of surfaces that they share.
// Their geometric mean is 1 in each group of cameras that are connected by shared surfaces, so no
// camera's exposure decides. A camera that shares none has gain 1.
//
// A gain per channel in linear light predicts the colours of cameras in a real studio best: gains of
// sRGB values leave more error, and gains with offsets do not extend to pairs of cameras left out of
// the solution.
func MatchColors(views []View, poses []camera.Transform) ([]depthmap.Gain, ColorResidual) {
	pairs := colorPairs(views, poses)
	gains := make([]depthmap.Gain, len(views))
	for c := range 3 {
		logs := balance(pairs, len(views), c)
		for i := range gains {
			gains[i][c] = min(max(math.Exp(logs[i]), minGain), maxGain)
		}
	}
	return gains, colorResidual(pairs, gains)
}

// colorPair is the colour of one place as views i and j see it, as natural logarithms of linear light.
type colorPair struct {
	i, j int
	a, b [3]float64
}

func colorPairs(views []View, poses []camera.Transform) []colorPair {
	surfaces := make([]*surface, len(views))
	for i := range views {
		surfaces[i] = newSurface(&views[i])
	}
	var pairs []colorPair
	shared := map[[2]int]int{}
	match(surfaces, poses, colorGate, func(p pair) {
		a, fine := views[p.i].light(p.from)
		b, ok := views[p.j].light(p.to)
		if fine && ok {
			pairs = append(pairs, colorPair{p.i, p.j, a, b})
			shared[[2]int{min(p.i, p.j), max(p.i, p.j)}]++
		}
	})
	return slices.DeleteFunc(pairs, func(p colorPair) bool {
		return shared[[2]int{min(p.i, p.j), max(p.i, p.j)}] < minColorPairs
	})
}

// light returns the logarithm of the linear light of the mean of the 3×3 pixels around pixel k, which is not
// at the image's border. ok is false in bad light or where the colour camera sees too little.
func (v *View) light(k int) (light [3]float64, ok bool) {
	if len(v.Color) != 3*len(v.Depth) {
		return light, false
	}
	w := v.Calibration.Depth.Width
	var mean [3]float64
	for _, row := range [3]int{k - w, k, k + w} {
		for _, at := range [3]int{row - 1, row, row + 1} {
			for c, level := range v.Color[3*at : 3*at+3] {
				if level < minLevel || level > maxLevel {
					return light, false
				}
				mean[c] += float64(level) / (9 * 255)
			}
		}
	}
	for c := range light {
		light[c] = math.Log(srgb.Linear(mean[c]))
	}
	return light, true
}

// balance solves the logarithms of n views' gains for channel c by robust least squares.
func balance(pairs []colorPair, n, c int) []float64 {
	x := make([]float64, n)
	for _, tolerance := range tolerances {
		h, g := mat.NewSymDense(n, nil), mat.NewVecDense(n, nil)
		for i := range n {
			h.SetSym(i, i, 1e-6) // the mean is free
		}
		for _, p := range pairs {
			ratio := p.a[c] - p.b[c]
			r := (ratio + x[p.i] - x[p.j]) / tolerance
			weight := 1 / (1 + r*r)
			h.SetSym(p.i, p.i, h.At(p.i, p.i)+weight)
			h.SetSym(p.j, p.j, h.At(p.j, p.j)+weight)
			h.SetSym(p.i, p.j, h.At(p.i, p.j)-weight)
			g.SetVec(p.i, g.AtVec(p.i)-weight*ratio)
			g.SetVec(p.j, g.AtVec(p.j)+weight*ratio)
		}
		var chol mat.Cholesky
		var solved mat.VecDense
		if !chol.Factorize(h) || chol.SolveVecTo(&solved, g) != nil {
			return make([]float64, n) // not reached: h is positive definite
		}
		copy(x, solved.RawVector().Data)
	}
	center(x, pairs)
	return x
}

// center makes the mean 0 of each group of connected views.
func center(x []float64, pairs []colorPair) {
	group := make([]int, len(x))
	for i := range group {
		group[i] = i
	}
	for _, p := range pairs {
		if from, to := group[p.i], group[p.j]; from != to {
			for i := range group {
				if group[i] == from {
					group[i] = to
				}
			}
		}
	}
	sum, size := make([]float64, len(x)), make([]float64, len(x))
	for i, g := range group {
		sum[g], size[g] = sum[g]+x[i], size[g]+1
	}
	for i, g := range group {
		x[i] -= sum[g] / size[g]
	}
}

func colorResidual(pairs []colorPair, gains []depthmap.Gain) ColorResidual {
	var before, after []float64
	for _, p := range pairs {
		for c := range 3 {
			a, b := math.Exp(p.a[c]), math.Exp(p.b[c])
			before = append(before, 255*math.Abs(srgb.Encode(a)-srgb.Encode(b)))
			after = append(after, 255*math.Abs(srgb.Encode(a*gains[p.i][c])-srgb.Encode(b*gains[p.j][c])))
		}
	}
	r := ColorResidual{Pairs: len(pairs)}
	if len(pairs) > 0 {
		slices.Sort(before)
		slices.Sort(after)
		r.Before, r.After = before[len(before)/2], after[len(after)/2]
	}
	return r
}
