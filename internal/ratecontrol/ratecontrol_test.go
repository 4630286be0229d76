package ratecontrol

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

const (
	fps  = 30
	tick = time.Second / fps
)

// lab encodes imaginary streams: frame sizes fall by half every `halves` quantizer steps, and vary
// at random.
type lab struct {
	c       *Controller
	streams []*Stream
	bits    []float64 // size of a delta frame at quantizer 20
	extra   int
	halves  float64
	noise   *rand.Rand
	sent    []float64 // bits per tick
	qp      [][]int   // per tick and stream
}

func newLab(target float64, cameras int) *lab {
	l := &lab{c: New(target, fps, 1), halves: 6, extra: 40_000, noise: rand.New(rand.NewPCG(1, 2))}
	for i := range cameras {
		for j, offset := range []float64{-2, 2} { // depth, color
			l.streams = append(l.streams, l.c.Add(offset))
			l.bits = append(l.bits, 40_000+20_000*float64(i)+10_000*float64(j))
		}
	}
	return l
}

// run encodes ticks frames of each stream. Key frames of the cameras take turns.
func (l *lab) run(ticks int) {
	for range ticks {
		t := len(l.sent)
		now := time.Duration(t) * tick
		sum, qps := 0.0, []int{}
		for i, s := range l.streams {
			key := t%fps == (i/2*7)%fps || t == 0
			qp := s.QP(now, key)
			size := l.bits[i] * math.Exp2((20-float64(qp))/l.halves) * math.Exp(0.15*l.noise.NormFloat64())
			extra := 0
			if i%2 == 0 {
				extra = l.extra
			}
			if key {
				size *= 5
			}
			s.Sent(now, key, qp, int(size), extra)
			sum += size + float64(extra)
			qps = append(qps, qp)
		}
		l.sent, l.qp = append(l.sent, sum), append(l.qp, qps)
	}
}

// worst returns the largest and smallest rate over any second from tick from on.
func (l *lab) worst(from int) (least, most float64) {
	least = math.Inf(1)
	for i := from; i+fps <= len(l.sent); i++ {
		sum := 0.0
		for _, b := range l.sent[i : i+fps] {
			sum += b
		}
		least, most = min(least, sum), max(most, sum)
	}
	return least, most
}

func TestAnySecond(t *testing.T) {
	tests := map[string]struct {
		target float64
		halves float64
	}{
		"16 Mbit/s":                     {16e6, 6},
		"8 Mbit/s":                      {8e6, 6},
		"24 Mbit/s":                     {24e6, 6},
		"sizes react less than assumed": {12e6, 8},
		"sizes react more":              {12e6, 4.5},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLab(c.target, 4)
			l.halves = c.halves
			l.run(20 * fps)
			least, most := l.worst(2 * fps)
			if least < 0.9*c.target || most > 1.1*c.target {
				t.Errorf("%.2f to %.2f of the target over any second", least/c.target, most/c.target)
			}
		})
	}
}

// TestStep checks that the rate follows the target from 500 ms after it is halved, and within five
// seconds after it is restored.
func TestStep(t *testing.T) {
	l := newLab(16e6, 4)
	l.run(5 * fps)
	l.c.SetTarget(8e6)
	l.run(5 * fps)
	from := 5*fps + fps/2
	if _, most := l.worst(from); most > 1.1*8e6 {
		t.Errorf("%.2f Mbit/s from 500 ms after the step to 8", most/1e6)
	}
	l.c.SetTarget(16e6)
	l.run(5 * fps)
	if least, _ := l.worst(len(l.sent) - fps); least < 0.9*16e6 {
		t.Errorf("%.2f Mbit/s five seconds after the step back to 16", least/1e6)
	}
}

func TestSceneChange(t *testing.T) {
	l := newLab(12e6, 4)
	l.run(5 * fps)
	for i := range l.bits {
		l.bits[i] *= 4
	}
	l.run(5 * fps)
	if _, most := l.worst(5*fps + fps/2); most > 1.1*12e6 {
		t.Errorf("%.2f Mbit/s from 500 ms after everything moves, want at most 13.2", most/1e6)
	}
}

// TestContent checks that a static camera leaves its rate to the others.
func TestContent(t *testing.T) {
	l := newLab(12e6, 4)
	l.run(3 * fps)
	mean := func() (sum float64) {
		for _, qps := range l.qp[len(l.qp)-fps:] {
			sum += float64(qps[2]) / fps
		}
		return sum
	}
	before := mean()
	l.bits[0], l.bits[1] = 2_000, 2_000
	l.run(5 * fps)
	if after := mean(); after > before-0.5 {
		t.Errorf("quantizer %.1f of another camera after the first one stands still, %.1f before", after, before)
	}
	if least, _ := l.worst(len(l.sent) - fps); least < 0.9*12e6 {
		t.Errorf("%.2f Mbit/s, want 12", least/1e6)
	}
	l.c.Remove(l.streams[2])
	l.streams, l.bits = append(l.streams[:2], l.streams[3:]...), append(l.bits[:2], l.bits[3:]...)
	l.run(5 * fps)
	if least, _ := l.worst(len(l.sent) - fps); least < 0.9*12e6 {
		t.Errorf("%.2f Mbit/s after a stream has left, want 12", least/1e6)
	}
}

func TestBounds(t *testing.T) {
	for name, target := range map[string]float64{"nothing": 1, "plenty": 1e12} {
		t.Run(name, func(t *testing.T) {
			l := newLab(target, 1)
			l.run(3 * fps)
			for _, qps := range l.qp {
				for _, qp := range qps {
					if qp < MinQP || qp > MaxQP {
						t.Fatalf("quantizer %d", qp)
					}
				}
			}
		})
	}
}
