package audio

import "math"

// resampler interpolates interleaved samples at any position with a windowed sinc. Positions and
// lengths are in samples per channel.
type resampler struct {
	channels int
	table    []float32 // the filter at each phase, and at phase 1 for interpolation
	in       []float32
	at       float64 // position of the next output in in
}

const (
	reach  = 24 // input samples on each side of an output
	taps   = 2 * reach
	phases = 256
	// passband is the cutoff relative to the lower of the two Nyquist frequencies.
	passband = 0.94
	beta     = 8 // of the Kaiser window: about 80 dB of attenuation
)

// newResampler returns a resampler for input of the given rate.
func newResampler(channels, from, to int) *resampler {
	r := &resampler{channels: channels, table: make([]float32, (phases+1)*taps)}
	cutoff := passband * min(1, float64(to)/float64(from))
	for p := range phases + 1 {
		row, sum := r.table[p*taps:(p+1)*taps], 0.0
		for i := range row {
			x := float64(i-reach+1) - float64(p)/phases // from the output to the input sample
			row[i] = float32(cutoff * sinc(cutoff*x) * kaiser(x/reach))
			sum += float64(row[i])
		}
		for i := range row { // unity gain at every phase
			row[i] /= float32(sum)
		}
	}
	r.clear()
	return r
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	return math.Sin(math.Pi*x) / (math.Pi * x)
}

// kaiser returns the Kaiser window at x, which is from −1 to 1.
func kaiser(x float64) float64 {
	if x < -1 || x > 1 {
		return 0
	}
	return bessel(beta*math.Sqrt(1-x*x)) / bessel(beta)
}

// bessel is the modified Bessel function of the first kind, order 0.
func bessel(x float64) float64 {
	sum, term := 1.0, 1.0
	for k := 1; term > 1e-12*sum; k++ {
		term *= x * x / float64(4*k*k)
		sum += term
	}
	return sum
}

// clear replaces the buffered input with silence.
func (r *resampler) clear() {
	r.in = append(r.in[:0], make([]float32, reach*r.channels)...)
	r.at = reach
}

// push appends input.
func (r *resampler) push(samples []float32) { r.in = append(r.in, samples...) }

// available returns the length of the input from the next output's position to its end.
func (r *resampler) available() float64 { return float64(len(r.in)/r.channels) - r.at }

// read fills out with samples that are step input samples apart. It reports false, and does nothing, if
// there is too little input.
func (r *resampler) read(out []float32, step float64) bool {
	n := len(out) / r.channels
	if last := r.at + float64(n)*step; int(last)+reach >= len(r.in)/r.channels {
		return false
	}
	for i := range n {
		position := r.at + float64(i)*step
		whole := int(position)
		phase := (position - float64(whole)) * phases
		p := int(phase)
		mix := float32(phase - float64(p))
		a, b := r.table[p*taps:(p+1)*taps], r.table[(p+1)*taps:(p+2)*taps]
		from := (whole - reach + 1) * r.channels
		for c := range r.channels {
			in := r.in[from+c:]
			var sum float32
			for k, weight := range a {
				sum += (weight + mix*(b[k]-weight)) * in[k*r.channels]
			}
			out[i*r.channels+c] = sum
		}
	}
	r.at += float64(n) * step
	if drop := int(r.at) - reach; drop > 0 {
		r.in = append(r.in[:0], r.in[drop*r.channels:]...)
		r.at -= float64(drop)
	}
	return true
}
