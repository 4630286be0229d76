package jitter

import "slices"

// Lengths of splices, in samples at 48 kHz.
const (
	shortest  = 96  // period, 2 ms
	longest   = 240 // period, 5 ms
	crossFade = 240
)

// splicer joins decoded packets without clicks. It removes or repeats one period of the sound, where
// the signal is most similar to itself a period later.
type splicer struct {
	channels int
	past     []float32 // the last longest samples of the output, interleaved
}

func newSplicer(channels int) *splicer {
	return &splicer{channels: channels, past: make([]float32, longest*channels)}
}

// note remembers output.
func (s *splicer) note(x []float32) {
	n := len(s.past)
	if len(x) >= n {
		copy(s.past, x[len(x)-n:])
		return
	}
	copy(s.past, s.past[len(x):])
	copy(s.past[n-len(x):], x)
}

// shorten removes a period from x and returns the period's length. x has at least longest + crossFade
// samples.
func (s *splicer) shorten(x []float32) ([]float32, int) {
	period := s.period(x, func(p int) []float32 { return x[p*s.channels:] })
	if period == 0 {
		return x, 0
	}
	out := x[period*s.channels:]
	from := slices.Clone(x[:crossFade*s.channels]) // overlaps out
	s.fade(out, from, out)
	return out, period
}

// lengthen repeats the last period of the past before x and returns the period's length. x has at
// least crossFade samples.
func (s *splicer) lengthen(x []float32) ([]float32, int) {
	both := slices.Concat(s.past, x)
	period := s.period(x, func(p int) []float32 { return both[len(s.past)-p*s.channels:] })
	if period == 0 {
		return x, 0
	}
	out := both[len(s.past)-period*s.channels:]
	s.fade(out, x, out)
	return out, period
}

// period returns the period for which shifted differs least from x, or 0 if x is too short.
func (s *splicer) period(x []float32, shifted func(period int) []float32) (best int) {
	n := crossFade * s.channels
	if len(x) < n+longest*s.channels {
		return 0
	}
	closest := float32(-1)
	for p := shortest; p <= longest; p++ {
		y := shifted(p)
		if len(y) < n {
			continue
		}
		difference := float32(0)
		for i := range n {
			d := x[i] - y[i]
			difference += d * d
		}
		if closest < 0 || difference < closest {
			closest, best = difference, p
		}
	}
	return best
}

// fade writes a transition from the beginning of from to the beginning of to. out may be to.
func (s *splicer) fade(out, from, to []float32) {
	for i := range crossFade {
		w := (float32(i) + 0.5) / crossFade
		for c := range s.channels {
			j := i*s.channels + c
			out[j] = from[j]*(1-w) + to[j]*w
		}
	}
}

// join makes x continue the past: the mirrored past fades out while x fades in.
func (s *splicer) join(x []float32) {
	n := min(len(x)/s.channels, crossFade, longest)
	for i := range n {
		w := (float32(i) + 0.5) / float32(n)
		for c := range s.channels {
			j := i*s.channels + c
			x[j] = x[j]*w + s.past[len(s.past)-(i+1)*s.channels+c]*(1-w)
		}
	}
}
