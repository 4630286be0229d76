package sound

import (
	"fmt"
	"math"
	"time"
)

// Report describes the sound.
type Report struct {
	Microphones int `json:"microphones"`
	// DelayMS is the time from capture to sound on the session's clock, averaged over about a
	// second.
	DelayMS float64 `json:"delay_ms"`
	// BufferMS is the delay that loses at most 1 % of the packets.
	BufferMS float64 `json:"jitter_buffer_ms"`
	// LipOffsetMS is the delay of sound minus the delay of pictures, averaged over about a second;
	// positive if sound is late. It is nil without pictures.
	LipOffsetMS *float64 `json:"lip_offset_ms,omitempty"`
	HeldMS      float64  `json:"pictures_held_ms"` // delay of pictures that waits for sound
	ConcealedMS float64  `json:"concealed_ms"`     // without a packet or its error correction
	CorrectedMS float64  `json:"corrected_ms"`     // by in-band error correction
	PlayedS     float64  `json:"played_s"`
	Packets     int      `json:"packets"`
	Repeated    int      `json:"packets_repeated"` // played from the copy in the next packet
	Late        int      `json:"packets_late"`
	Refused     int      `json:"packets_refused"` // contradict the track or the clock
	Overflowed  int      `json:"packets_overflowed"`
	Jumps       int      `json:"jumps"`           // of the delay, without stretching
	Error       string   `json:"error,omitempty"` // the newest reason to refuse packets

	lip, delay float64 // ms, smoothed
	measured   bool
}

// smoothing is the weight of a new measurement. There is one per block of 10 ms.
const smoothing = 0.01

// note updates the measurements after a block. The caller holds m.mu.
func (m *Mixer) note() {
	s := &m.stats
	for _, name := range m.names {
		v := m.tracks[name].voice
		delay, playing := v.Delay()
		if !playing {
			continue
		}
		d := float64(delay) / 1000
		pictures, some := m.pictures.median()
		lip := d - float64(pictures+m.hold())/1000
		if !s.measured {
			s.delay, s.lip, s.measured = d, lip, true
		}
		s.delay += smoothing * (d - s.delay)
		s.lip += smoothing * (lip - s.lip)
		if some {
			s.LipOffsetMS = new(s.lip)
		}
		return // of the first microphone that plays
	}
}

// Report returns the measurements so far.
func (m *Mixer) Report() Report {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.stats
	r.Microphones = len(m.tracks)
	r.DelayMS, r.BufferMS, r.HeldMS = round(r.delay), round(float64(m.own)/1000), round(float64(m.hold())/1000)
	if r.LipOffsetMS != nil {
		r.LipOffsetMS = new(round(r.lip))
	}
	for _, t := range m.tracks {
		s := t.voice.Stats()
		r.ConcealedMS += float64(s.Concealed) / 1000
		r.CorrectedMS += float64(s.Corrected) / 1000
		r.PlayedS += (time.Duration(s.Played*t.samples) * time.Second / SampleRate).Seconds()
		r.Packets += s.Received
		r.Repeated += s.Repeated
		r.Late += s.Late
		r.Overflowed += s.Overflowed
		r.Jumps += s.Jumps
	}
	r.PlayedS = round(r.PlayedS)
	return r
}

func round(v float64) float64 { return math.Round(v*10) / 10 }

// String returns the report for the live line.
func (r Report) String() string {
	s := fmt.Sprintf("sound %.0f ms (buffer %.0f)", r.DelayMS, r.BufferMS)
	if r.LipOffsetMS != nil {
		s += fmt.Sprintf("  lip %+.0f ms", *r.LipOffsetMS)
	}
	s += fmt.Sprintf("  concealed %.0f ms", r.ConcealedMS)
	if r.Error != "" {
		s += "  " + r.Error
	}
	return s
}
