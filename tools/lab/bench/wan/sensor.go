package wan

import (
	"math"
	"math/rand/v2"

	"holocast/internal/pointcloud"
)

// The sensor's jitter, measured between consecutive frames of four Azure Kinects in NFOV unbinned
// mode (LiveScan3D's test data), at 30 frames per second.
const (
	sigma0      = 1.8  // standard deviation of depth at 0 m, mm
	sigma2      = 0.15 // its growth, mm per m²
	neighbors   = 0.65 // correlation between neighboring pixels
	sigmaColor  = 1.3  // standard deviation of colour, of 255
	edgeStep    = 50   // mm between neighbors at an edge
	flickerRate = 1. / 500
)

// flickerBand is the probability of no reading by distance from an edge, in pixels.
var flickerBand = [3]float32{0.5, 0.3, 0.1}

// tenth is the unit of exact depth, in mm.
const tenth = 0.1

// sigma returns the jitter's standard deviation at depth z, both in mm.
func sigma(z float64) float64 { return sigma0 + sigma2*z*z*1e-6 }

// sensor adds jitter to exact frames of one camera.
type sensor struct {
	width, height int
	rng           *rand.Rand
	field         []float32
}

func newSensor(width, height int, seed uint64) *sensor {
	return &sensor{
		width: width, height: height, rng: rand.New(rand.NewPCG(seed, 0x77616e)), field: make([]float32, width*height),
	}
}

// noise fills the field with values of mean 0 and variance 1 whose neighbors correlate.
func (s *sensor) noise() []float32 {
	const keep = neighbors
	fresh := float32(math.Sqrt(1 - keep*keep))
	for y := range s.height {
		row := s.field[y*s.width : (y+1)*s.width]
		for x := range row {
			row[x] = float32(s.rng.NormFloat64())
			if x > 0 {
				row[x] = keep*row[x-1] + fresh*row[x]
			}
		}
		if y == 0 {
			continue
		}
		above := s.field[(y-1)*s.width : y*s.width]
		for x := range row {
			row[x] = keep*above[x] + fresh*row[x]
		}
	}
	return s.field
}

// sense writes a reading of the exact depth, in mm. Pixels at edges flicker.
func (s *sensor) sense(depth, exact []uint16, absent []float32) {
	noise := s.noise()
	for i, e := range exact {
		depth[i] = 0
		if e == 0 || s.rng.Float32() < absent[i] {
			continue
		}
		z := float64(e) * tenth
		depth[i] = uint16(max(1, math.Round(z+sigma(z)*float64(noise[i]))))
	}
}

// tint adds jitter to the colour of the grid's points.
func (s *sensor) tint(g *pointcloud.Grid) {
	noise := s.noise()
	for i, d := range g.Depth {
		if d == 0 {
			continue
		}
		shift := int(math.Round(sigmaColor * float64(noise[i])))
		for k := 3 * i; k < 3*i+3; k++ {
			g.Color[k] = uint8(min(max(int(g.Color[k])+shift, 0), 255))
		}
	}
}

// flicker returns each pixel's probability of no reading.
func flicker(exact []uint16, width int) []float32 {
	absent := make([]float32, len(exact))
	distance := make([]int, len(exact)) // 0 = none yet
	for i := range exact {
		absent[i] = flickerRate
		x, y := i%width, i/width
		for _, j := range [4]int{i - 1, i + 1, i - width, i + width} {
			inside := j >= 0 && j < len(exact) && (j%width == x || j/width == y)
			if exact[i] == 0 || !inside {
				continue
			}
			if exact[j] == 0 || math.Abs(float64(exact[i])-float64(exact[j]))*tenth > edgeStep {
				distance[i] = 1
			}
		}
	}
	for d, p := range flickerBand {
		for i := range exact {
			if distance[i] != d+1 {
				continue
			}
			absent[i] = p
			for _, j := range [4]int{i - 1, i + 1, i - width, i + width} {
				if j >= 0 && j < len(exact) && distance[j] == 0 && exact[j] != 0 {
					distance[j] = d + 2
				}
			}
		}
	}
	return absent
}
