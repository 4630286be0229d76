package sound

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// place adds a chirp to pcm, delayed by a fraction of a sample after at.
func place(pcm []float32, at float64, gain float32) {
	const length = float64(chirpSamples) / sampleRate
	for i := range chirpSamples {
		t := (float64(i+int(math.Ceil(at))) - at) / sampleRate
		if t >= length {
			break
		}
		phase := 2 * math.Pi * (lowest*t + (highest-lowest)*t*t/(2*length))
		edge := min(1, t*sampleRate/edgeSamples, (length-t)*sampleRate/edgeSamples)
		pcm[int(math.Ceil(at))+i] += gain * float32(amplitude*edge*math.Sin(phase))
	}
}

func TestFindChirps(t *testing.T) {
	for _, c := range []struct {
		name  string
		noise float64 // standard deviation
		gain  float32
		snr   float64 // dB, at least
	}{{"clean", 0, 1, 28}, {"noise", 0.02, 1, 20}, {"soft", 0.002, 0.1, 18}} {
		t.Run(c.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(2, 3))
			pcm := make([]float32, 4*sampleRate)
			for i := range pcm {
				pcm[i] = float32(c.noise * random.NormFloat64())
			}
			want := []float64{20_000, 70_000.5, 130_000.25, 180_000.75}
			for _, at := range want {
				place(pcm, at, c.gain)
			}
			got := findChirps(pcm)
			if len(got) != len(want) {
				t.Fatalf("%d chirps, want %d", len(got), len(want))
			}
			for i, f := range got {
				if math.Abs(f.at-want[i]) > 0.2 || snr(f.correlation) < c.snr {
					t.Errorf("chirp %d at %.2f with %.1f dB, want %.2f with %.0f", i, f.at, snr(f.correlation), want[i], c.snr)
				}
			}
		})
	}
}

// TestCutChirp checks that a chirp is found from which time stretching has cut 5 ms.
func TestCutChirp(t *testing.T) {
	for cut := 0; cut < chirpSamples-240; cut += 16 {
		pcm := make([]float32, sampleRate)
		whole := chirp()
		copy(pcm[10_000:], whole[:cut])
		copy(pcm[10_000+cut:], whole[cut+240:])
		if got := findChirps(pcm); len(got) != 1 {
			t.Errorf("cut at %d: %v", cut, got)
		}
	}
}

// TestOtherSounds checks that silence, noise, clicks and tones contain no chirp.
func TestOtherSounds(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 5))
	for name, sound := range map[string]func(i int) float64{
		"silence": func(int) float64 { return 0 },
		"noise":   func(int) float64 { return 0.1 * random.NormFloat64() },
		"clicks": func(i int) float64 {
			if i%sampleRate == 0 {
				return 1
			}
			return 0
		},
		"tone": func(i int) float64 { return 0.5 * math.Sin(float64(i)*2*math.Pi*3000/sampleRate) },
	} {
		pcm := make([]float32, 2*sampleRate)
		for i := range pcm {
			pcm[i] = float32(sound(i))
		}
		if got := findChirps(pcm); len(got) > 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := findChirps(nil); got != nil {
		t.Errorf("nothing: %v", got)
	}
}

// recorded reads s16 as a recorder does whose chunks of 5 ms arrive latency after their end, and up
// to 30 ms late.
func recorded(t *testing.T, pcm []float32, latency time.Duration) *recording {
	t.Helper()
	var b []byte
	for _, v := range pcm {
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(v*(1<<15-1))))
	}
	const samples = sampleRate / 200
	random := rand.New(rand.NewPCG(6, 7))
	var r recording
	for at := 0; at < len(pcm); at += samples {
		end := min(at+samples, len(pcm))
		arrived := time.Duration(end)*time.Second/sampleRate + latency
		if at%(20*samples) != 0 {
			arrived += time.Duration(random.IntN(30)) * time.Millisecond
		}
		if err := r.record(bytes.NewReader(b[2*at:2*end]), func() time.Duration { return arrived }); err != nil {
			t.Fatal(err)
		}
	}
	return &r
}

// TestCompare measures known delays, with one chirp missing and one too late.
func TestCompare(t *testing.T) {
	mouth, ear := make([]float32, 12*sampleRate), make([]float32, 12*sampleRate)
	for i := range 11 {
		at := float64(sampleRate*i + sampleRate/10)
		place(mouth, at, 1)
		delay := 0.050 + 0.001*float64(i)
		switch i {
		case 3:
			continue
		case 7:
			delay = 0.7
		}
		place(ear, at+delay*sampleRate, 0.5)
	}
	var r Figures
	r.compare(recorded(t, mouth, 7*time.Millisecond), recorded(t, ear, 7*time.Millisecond))
	if r.Spoken != 11 || r.Heard != 9 || r.P50 != 55 || r.Worst != 60 || r.Spread != 0 || r.SNR < 28 {
		t.Errorf("%+v", r)
	}
}

func TestDelays(t *testing.T) {
	chirps := func(at ...int) (list []timed) {
		for _, ms := range at {
			list = append(list, timed{time.Duration(ms) * time.Millisecond, 1})
		}
		return list
	}
	for _, c := range []struct {
		name          string
		spoken, heard []timed
		want          []int
	}{
		{"nothing", nil, nil, nil},
		{"nothing heard", chirps(0, 1000), nil, nil},
		{"nothing spoken", nil, chirps(10), nil},
		{"all", chirps(0, 1000, 1900), chirps(80, 1090, 2000), []int{80, 90, 100}},
		{"one missing", chirps(0, 1000, 1900), chirps(80, 2000), []int{80, 100}},
		{"before any", chirps(100, 1000), chirps(50, 180), []int{80}},
		{"too late", chirps(0, 1000), chirps(599, 1600), []int{599}},
		{"twice", chirps(0, 1000), chirps(80, 120, 1080), []int{80, 80}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _ := delays(c.spoken, c.heard)
			if len(got) != len(c.want) {
				t.Fatalf("%v, want %v ms", got, c.want)
			}
			for i, d := range got {
				if d != time.Duration(c.want[i])*time.Millisecond {
					t.Errorf("%v, want %v ms", got, c.want)
				}
			}
		})
	}
}

// TestSpeech checks that all chirps to speak are found, at their distances.
func TestSpeech(t *testing.T) {
	var r recording
	if err := r.record(bytes.NewReader(speech(sampleRate, 10*sampleRate)), func() time.Duration { return 0 }); err != nil {
		t.Fatal(err)
	}
	list := findChirps(r.pcm)
	if len(list) < 9 || math.Abs(list[0].at-sampleRate) > 0.1 {
		t.Fatalf("%v", list)
	}
	for i := 1; i < len(list); i++ {
		if d := list[i].at - list[i-1].at; d < 0.8*sampleRate-1 || d > 1.2*sampleRate+1 {
			t.Errorf("chirps are %.0f samples apart", d)
		}
	}
}
