package pointvideo

import "math"

const (
	segment   = 220            // levels of a segment
	maxLevel  = segment * 247  // of the last segment
	maxDepth  = math.MaxUint16 // mm
	levelUnit = 1 << 16
)

// noise is a sensor's depth noise and the quantizer's step.
type noise struct {
	sigma0, sigma2 uint16 // standard deviation in µm at 0 m, and its growth in µm per m²
	step           uint8  // in 1/16 standard deviation
}

// values returns v(z) of the specification for z in 0 … maxDepth.
func (n noise) values() []uint64 {
	v := make([]uint64, maxDepth+1)
	for z := range uint64(maxDepth) {
		s := uint64(n.sigma0) + uint64(n.sigma2)*z*z/1000000
		v[z+1] = v[z] + 1048576000/(uint64(n.step)*s)
	}
	return v
}

// depths returns D(l) for l in 0 … maxLevel.
func (n noise) depths() []uint16 {
	v := n.values()
	d := make([]uint16, maxLevel+1)
	z := 1
	for l := range d {
		want := uint64(l) * levelUnit
		for z < maxDepth && distance(v[z+1], want) < distance(v[z], want) {
			z++
		}
		d[l] = uint16(z)
	}
	return d
}

func distance(a, b uint64) uint64 { return max(a, b) - min(a, b) }

// levels returns the level of each depth, with one more entry for interpolation.
func (n noise) levels() []float32 {
	levels := make([]float32, maxDepth+2)
	for z, v := range n.values() {
		levels[z] = float32(float64(v) / levelUnit)
	}
	levels[maxDepth+1] = levels[maxDepth]
	return levels
}
