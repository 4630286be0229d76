package synthetic

import (
	"math"
	"time"

	"holocast/capture-server/source"
	"holocast/capture-server/source/pace"
)

// SoundRate is the sample rate of Sound in Hz.
const SoundRate = 48000

// SoundName is the name of the studio's microphone.
const SoundName = "synthetic-microphone"

// SoundPosition is the place of the performer's hands when they clap, in studio space in millimetres.
var SoundPosition = [3]float64{0, 1250, 400}

// ClapThreshold is a level that only claps reach, relative to full scale. A clap begins within 1 ms
// of the first sample above it, or within 5 ms after Opus coding, which spreads the clap to earlier
// samples.
const ClapThreshold = 0.2

const (
	humLevel  = 0.04 // of each of two tones
	clapLevel = 0.8
	clapDecay = 0.02 // s
	clapTime  = 0.15 // s
)

// Sound is the performer's sound: a quiet hum, and claps at the times at which the hands meet.
type Sound struct {
	clock  *pace.Clock
	frames int64 // of the loop
	clap   int64 // frame of the loop in which the hands meet
}

func newSound(clock *pace.Clock, frames int) *Sound {
	return &Sound{clock: clock, frames: int64(frames), clap: int64(math.Round(ClapPhase * float64(frames)))}
}

// SoundOf returns the sound of a camera's studio, synchronized with its frames, or nil if the
// camera is not from a Studio.
func SoundOf(camera source.Source) *Sound {
	if s, ok := camera.(*sensor); ok {
		return s.sound
	}
	return nil
}

// Start returns the local time of sample 0, which is that of the cameras' first frame.
func (s *Sound) Start() time.Time { return s.clock.Start() }

// Clap returns the time of clap n, from 0, since Start. It is the capture time of the frame in which
// the hands meet.
func (s *Sound) Clap(n int64) time.Duration { return s.clock.Offset(n*s.frames + s.clap) }

// Fill computes mono samples, full scale ±1, from sample from on.
func (s *Sound) Fill(dst []float32, from int64) {
	loop := s.clock.Offset(s.frames).Seconds()
	for i := range dst {
		at := float64(from+int64(i)) / SoundRate
		x := humLevel * (math.Sin(2*math.Pi*110*at) + math.Sin(2*math.Pi*165*at))
		n := int64(math.Floor(at / loop))
		for _, k := range [2]int64{n - 1, n} { // a clap may last into the next loop
			since := at - s.Clap(k).Seconds()
			if k >= 0 && since >= 0 && since < clapTime {
				x += clapLevel * crackle(uint64(since*SoundRate+0.5)) * math.Exp(-since/clapDecay)
			}
		}
		dst[i] = float32(x)
	}
}

// crackle returns sample i of a fixed noise from −1 to 1, which begins at full level.
func crackle(i uint64) float64 {
	if i == 0 {
		return 1
	}
	i *= 0x9e3779b97f4a7c15
	i ^= i >> 32
	i *= 0xd6e8feb86659fd93
	i ^= i >> 32
	return float64(int64(i)) / (1 << 63)
}
