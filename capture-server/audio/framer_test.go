package audio

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"holocast/internal/opus"
)

// simulated is a microphone whose clock differs from the local clock. It clicks once per second of
// true time.
type simulated struct {
	rate  int
	drift float64 // relative to true time
	at    int64
	sent  time.Time // true time of sample 0
	clock sampleClock
	rng   *rand.Rand
}

// clickTime is the width of a click.
const clickTime = 0.0005

func (s *simulated) trueTime(sample int64) float64 {
	return float64(sample) / float64(s.rate) / (1 + s.drift)
}

// next returns 10 ms of sound that arrives up to 3 ms late, occasionally 100 ms.
func (s *simulated) next() Block {
	n := int64(s.rate / 100)
	b := Block{Rate: s.rate}
	for i := range n {
		_, second := math.Modf(s.trueTime(s.at + i))
		var x float32
		if d := (second - 0.5) / clickTime; math.Abs(d) < 6 {
			x = float32(0.9 * math.Exp(-d*d))
		}
		b.Samples = append(b.Samples, x)
	}
	s.at += n
	delay := 3 * s.rng.Float64() * s.rng.Float64() / 1000
	if s.rng.IntN(200) == 0 {
		delay += 0.1
	}
	device := time.Duration(float64(s.at) / float64(s.rate) * float64(time.Second))
	arrived := time.Duration((s.trueTime(s.at) + delay) * float64(time.Second))
	b.Lost = s.clock.observe(device, arrived)
	b.Time = s.sent.Add(s.clock.local(device) - 10*time.Millisecond)
	return b
}

// TestDrift runs a microphone with a fast or slow clock for up to ten minutes against a relay whose
// clock drifts too. Clicks must keep their times, without dropouts.
func TestDrift(t *testing.T) {
	for _, tt := range []struct {
		name         string
		rate         int
		drift, relay float64
		seconds      int
	}{
		{"equal", 48000, 0, 0, 30},
		{"fast by 100 ppm", 48000, 100e-6, 0, 600},
		{"slow by 100 ppm", 48000, -100e-6, 40e-6, 60},
		{"44.1 kHz", 44100, 100e-6, 0, 60},
		{"96 kHz", 96000, -60e-6, 0, 30},
	} {
		t.Run(tt.name, func(t *testing.T) {
			began := time.UnixMicro(1790000000000000)
			s := simulated{rate: tt.rate, drift: tt.drift, sent: began, rng: rand.New(rand.NewPCG(1, 2))}
			onRelay := func(local time.Time) time.Time {
				return local.Add(time.Hour + time.Duration(tt.relay*float64(local.Sub(began))))
			}
			f := framer{channels: 1, toRelay: onRelay}
			out := packet{samples: make([]float32, opus.PacketSamples)}
			if underRace {
				tt.seconds = min(tt.seconds, 30)
			}
			clicks, worst, number := 0, 0.0, int64(0)
			var peak float32
			var at time.Time
			for s.trueTime(s.at) < float64(tt.seconds) {
				b := s.next()
				f.push(&b)
				for f.read(&out) {
					if out.lost || out.number != number {
						t.Fatalf("packet %d after %d, lost %v", out.number, number, out.lost)
					}
					number++
					for i, x := range out.samples {
						if x > peak {
							peak, at = x, out.time.Add(time.Duration(i)*time.Second/opus.SampleRate)
						}
					}
					// A click ends when silence follows.
					if peak > 0.3 && out.samples[len(out.samples)-1] < 0.01 && out.time.Sub(at) > 0 {
						want := onRelay(began.Add(time.Duration(clicks)*time.Second + time.Second/2))
						if off := at.Sub(want).Seconds(); clicks > 10 {
							worst = max(worst, math.Abs(off))
						}
						clicks, peak = clicks+1, 0
					}
				}
			}
			if clicks < tt.seconds-1 || worst > 0.001 {
				t.Errorf("%d clicks, at most %.2f ms from their times", clicks, 1000*worst)
			}
			t.Logf("at most %.3f ms off; drift %.1f ppm", 1000*worst, 1e6*s.clock.drift)
		})
	}
}

// sine returns n samples of a tone.
func sine(n int, frequency float64, rate int) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = float32(0.5 * math.Sin(2*math.Pi*frequency*float64(i)/float64(rate)))
	}
	return s
}

// TestInterruption checks that after an interruption packets skip the lost numbers and stay on the
// 10 ms grid.
func TestInterruption(t *testing.T) {
	began := time.UnixMicro(1790000000000000)
	var step time.Duration // of the relay's clock
	f := framer{channels: 1, toRelay: func(at time.Time) time.Time { return at.Add(step) }}
	out := packet{samples: make([]float32, opus.PacketSamples)}
	var numbers []int64
	var lost []bool
	play := func(from time.Duration, gap bool) {
		for i := range 10 {
			b := Block{
				Rate: 48000, Samples: sine(480, 440, 48000), Lost: gap && i == 0,
				Time: began.Add(from + time.Duration(i)*packetTime),
			}
			f.push(&b)
			for f.read(&out) {
				numbers, lost = append(numbers, out.number), append(lost, out.lost)
				if got := out.time.Sub(f.origin); got != time.Duration(out.number)*packetTime {
					t.Errorf("packet %d at %v", out.number, got)
				}
			}
		}
	}
	play(0, false)
	first := len(numbers)
	play(1003*time.Millisecond, true)
	if numbers[first] != 101 || !lost[first] || lost[first+1] {
		t.Errorf("after an interruption: %v, lost %v", numbers[first:], lost[first:])
	}
	// Packet numbers must not repeat if the relay's clock is set back by an hour.
	last, count := numbers[len(numbers)-1], len(numbers)
	step = -time.Hour
	play(1103*time.Millisecond, false)
	if numbers[count] != last+1 || !lost[count] {
		t.Errorf("after a step back: %v after %d", numbers[count:], last)
	}
	step = time.Hour
	count = len(numbers)
	play(1203*time.Millisecond, false)
	if numbers[count] < numbers[count-1]+2*360000-20 || !lost[count] {
		t.Errorf("after a step forward: %v", numbers[count-1:])
	}
}

// TestResample checks the gain and purity of a resampled tone.
func TestResample(t *testing.T) {
	for _, rate := range []int{16000, 44100, 48000, 96000} {
		r := newResampler(1, rate, opus.SampleRate)
		r.push(sine(rate, 3000, rate))
		out := make([]float32, opus.PacketSamples)
		var signal, noise float64
		for k := 0; r.read(out, float64(rate)/opus.SampleRate); k++ {
			for i, x := range out {
				want := 0.5 * math.Sin(2*math.Pi*3000*float64(k*len(out)+i)/opus.SampleRate)
				if k > 1 {
					signal += want * want
					noise += (float64(x) - want) * (float64(x) - want)
				}
			}
		}
		if snr := 10 * math.Log10(signal/noise); snr < 70 {
			t.Errorf("%d Hz: SNR %.1f dB", rate, snr)
		}
	}
}

// TestSampleClockLoss checks that an unreported loss of samples restarts the clock.
func TestSampleClockLoss(t *testing.T) {
	var c sampleClock
	losses := 0
	for i := range 2000 {
		device, arrived := time.Duration(i)*packetTime, time.Duration(i)*packetTime
		if i >= 1000 {
			arrived += 50 * time.Millisecond
		}
		if c.observe(device, arrived) {
			losses++
		}
		if i > 1200 {
			if got := c.local(device); (got - arrived).Abs() > time.Millisecond {
				t.Fatalf("after the loss: %v, want %v", got, arrived)
			}
		}
	}
	if losses != 1 {
		t.Errorf("%d losses", losses)
	}
}
