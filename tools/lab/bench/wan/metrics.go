package wan

import (
	"math"

	"holocast/internal/pointcloud"
	"holocast/internal/qoe"
)

// stray is the depth error in mm of a point that belongs to no surface.
const stray = 50

// depthErrors is the distribution of depth errors over points with an exact depth.
type depthErrors struct {
	bins   [10*stray + 1]int // by tenth; the last one holds the strays
	points int
	sum    float64 // mm, without the strays
	astray int     // strays, and points without a surface
}

// add compares decoded depth in mm with exact depth in units of tenth, where among is true or nil.
func (e *depthErrors) add(exact, decoded []uint16, among []bool) {
	for i, d := range decoded {
		if d == 0 || among != nil && !among[i] {
			continue
		}
		e.points++
		off := math.Abs(float64(d) - tenth*float64(exact[i]))
		if exact[i] == 0 || off >= stray {
			e.astray++
			e.bins[len(e.bins)-1]++
			continue
		}
		e.sum += off
		e.bins[int(off/tenth+0.5)]++
	}
}

// Errors summarize the depth errors of many points.
type Errors struct {
	MeanMm float64 `json:"mean_mm"` // without strays
	P99Mm  float64 `json:"p99_mm"`  // at most 50
	// Stray is the percentage of points 50 mm or more from the surface at their pixel.
	Stray  float64 `json:"stray_percent"`
	Points int     `json:"points"`
}

func (e *depthErrors) summary() Errors {
	if e.points == 0 {
		return Errors{}
	}
	below, p99 := 0, 0
	for p99 = range e.bins {
		if below += e.bins[p99]; 100*below >= 99*e.points {
			break
		}
	}
	return Errors{
		MeanMm: qoe.Round(e.sum/float64(max(1, e.points-e.astray)), 3), P99Mm: qoe.Round(float64(p99)*tenth, 1),
		Stray: qoe.Round(100*float64(e.astray)/float64(e.points), 3), Points: e.points,
	}
}

// moving marks the pixels whose exact depth differs from the previous frame's by more than the
// jitter.
func moving(exact, previous []uint16) []bool {
	out := make([]bool, len(exact))
	for i, e := range exact {
		z := tenth * float64(e)
		out[i] = e != 0 && math.Abs(z-tenth*float64(previous[i])) > max(2, sigma(z))
	}
	return out
}

// colorError is a mean squared colour error.
type colorError struct {
	sum     float64
	samples int
}

// add compares the colours of pixels that have a point in both grids.
func (e *colorError) add(from, decoded *pointcloud.Grid) {
	sum := 0
	for i, d := range decoded.Depth {
		if d == 0 || from.Depth[i] == 0 {
			continue
		}
		for k := 3 * i; k < 3*i+3; k++ {
			d := int(from.Color[k]) - int(decoded.Color[k])
			sum += d * d
		}
		e.samples += 3
	}
	e.sum += float64(sum)
}

func (e *colorError) psnr() float64 {
	if e.samples == 0 {
		return 0
	}
	return psnr(255*255, e.sum/float64(e.samples))
}

// lossless is the PSNR in dB reported for equal data.
const lossless = 99.99

// psnr returns the ratio of a peak's square to a mean squared error in dB.
func psnr(peak, mse float64) float64 {
	if mse <= 0 {
		return lossless
	}
	return qoe.Round(min(lossless, 10*math.Log10(peak/mse)), 2)
}
