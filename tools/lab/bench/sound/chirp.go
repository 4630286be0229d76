package sound

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
)

const (
	sampleRate   = 48000
	chirpSamples = sampleRate / 50 // 20 ms
	edgeSamples  = sampleRate / 500
	lowest       = 1000 // Hz
	highest      = 6000
	amplitude    = 0.5
)

// chirp returns a tone that rises from lowest to highest.
func chirp() []float32 {
	x := make([]float32, chirpSamples)
	const length = float64(chirpSamples) / sampleRate
	for i := range x {
		t := float64(i) / sampleRate
		phase := 2 * math.Pi * (lowest*t + (highest-lowest)*t*t/(2*length))
		edge := min(1, float64(min(i, chirpSamples-i))/edgeSamples)
		x[i] = float32(amplitude * edge * math.Sin(phase))
	}
	return x
}

// speech returns the samples to speak, s16: silence, then a chirp every 0.8 to 1.2 s for a number of
// samples.
func speech(silence, samples int) []byte {
	pcm := make([]byte, 2*(silence+samples))
	random := rand.New(rand.NewPCG(1, 1))
	for at := silence; at+chirpSamples < silence+samples; at += sampleRate*8/10 + random.IntN(sampleRate*4/10) {
		for i, v := range chirp() {
			binary.LittleEndian.PutUint16(pcm[2*(at+i):], uint16(int16(math.Round(float64(v)*math.MaxInt16))))
		}
	}
	return pcm
}

// found is a chirp in a recording.
type found struct {
	at          float64 // samples from the recording's start to the chirp's
	correlation float64 // with the chirp, at most 1
}

const (
	block = sampleRate / 1000
	// loud is the power from which a block may begin a chirp, relative to the median block, and at
	// least quiet.
	loud  = 8
	quiet = 1e-5
	// similar is the smallest correlation of a chirp; one from which the player cuts 5 ms has over 0.42.
	similar = 0.4
)

// findChirps returns the chirps in a recording, in order.
func findChirps(pcm []float32) (list []found) {
	power := make([]float64, len(pcm)/block)
	for i := range power {
		for _, v := range pcm[i*block : (i+1)*block] {
			power[i] += float64(v) * float64(v) / block
		}
	}
	if len(power) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(power))
	threshold := max(quiet, loud*sorted[len(sorted)/2])
	want := chirp()
	for i := 0; i < len(power); i++ {
		if power[i] < threshold {
			continue
		}
		f, ok := match(pcm, want, (i-25)*block, (i+5)*block)
		if ok {
			list = append(list, f)
			i = int(f.at)/block + 2*chirpSamples/block
		}
	}
	return list
}

// match finds want in pcm, beginning in [from, to), to a fraction of a sample.
func match(pcm, want []float32, from, to int) (f found, ok bool) {
	from, to = max(from, 1), min(to, len(pcm)-len(want)-1)
	best := -1
	for at := from; at < to; at++ {
		if c := correlation(pcm[at:], want); c > f.correlation {
			best, f.correlation = at, c
		}
	}
	if best < 0 || f.correlation < similar {
		return f, false
	}
	before, after := correlation(pcm[best-1:], want), correlation(pcm[best+1:], want)
	// A cosine through the three: near its peak, a chirp's correlation is one.
	f.at = float64(best)
	if w := math.Acos((before + after) / (2 * f.correlation)); w > 0 && w < math.Pi/2 {
		phase := math.Atan((after - before) / (2 * f.correlation * math.Sin(w)))
		f.at += phase / w
		f.correlation = min(f.correlation/math.Cos(phase), 1)
	}
	return f, true
}

// correlation returns the correlation coefficient of x's beginning and y.
func correlation(x, y []float32) float64 {
	var xy, xx, yy float64
	for i, v := range y {
		xy += float64(x[i]) * float64(v)
		xx += float64(x[i]) * float64(x[i])
		yy += float64(v) * float64(v)
	}
	return xy / math.Sqrt(max(xx*yy, 1e-12))
}

// snr returns the signal-to-noise ratio in dB of sound that has a correlation coefficient with the
// original.
func snr(r float64) float64 {
	r = min(r*r, 1-1e-6)
	return 10 * math.Log10(r/(1-r))
}
