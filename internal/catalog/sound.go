package catalog

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Sound is the JSON object in the field "hcau" of a microphone's track (docs/spec/sound.md).
type Sound struct {
	Microphone     int    `json:"microphone"`     // index in the session, as in the track's name
	MicrophoneName string `json:"microphoneName"` // the device's name
	// Position is where the sound comes from: x, y, z in studio space in millimetres, or nil.
	Position []float64 `json:"position,omitempty"`
	// Delivery is DeliveryStream or DeliveryDatagram. Empty means DeliveryStream.
	Delivery string `json:"delivery,omitempty"`
	Packet   int    `json:"packet"` // milliseconds
}

const (
	// CodecOpus is the codec of sound.
	CodecOpus = "opus"
	// SoundRate is the sample rate of sound in Hz.
	SoundRate = 48000
	// SoundPacket is the duration of a packet in milliseconds.
	SoundPacket = 10
	// maxPosition bounds a coordinate of Sound.Position, in millimetres.
	maxPosition = 1e6
)

// SoundTrack returns the name of a microphone's track.
func SoundTrack(microphone int) string { return fmt.Sprintf("audio/%d", microphone) }

// Channels returns the number of channels of a sound track, or 0 if it is neither mono nor stereo.
func (t *Track) Channels() int {
	switch t.ChannelConfig {
	case "1":
		return 1
	case "2":
		return 2
	}
	return 0
}

// Sounds returns the microphones' tracks in the session's namespace, ordered by microphone.
func (c *Catalog) Sounds() []Track {
	var tracks []Track
	for _, t := range c.Tracks {
		if t.Sound != nil && t.Namespace == "" {
			tracks = append(tracks, t)
		}
	}
	slices.SortStableFunc(tracks, func(a, b Track) int { return cmp.Compare(a.Sound.Microphone, b.Sound.Microphone) })
	return tracks
}

// validate returns an error that names the first field of t or s that contradicts the format.
func (s *Sound) validate(t *Track) error {
	switch {
	case t.Packaging != PackagingLOC:
		return fmt.Errorf("packaging: %.40q, want %q with hcau", t.Packaging, PackagingLOC)
	case t.Codec != CodecOpus:
		return fmt.Errorf("codec: %.40q, want %q with hcau", t.Codec, CodecOpus)
	case t.Samplerate != SoundRate:
		return fmt.Errorf("samplerate: %d, want %d with hcau", t.Samplerate, SoundRate)
	case t.Channels() == 0:
		return fmt.Errorf("channelConfig: %.40q, want 1 or 2 with hcau", t.ChannelConfig)
	case s.Microphone < 0 || s.Microphone > math.MaxUint16:
		return fmt.Errorf("hcau.microphone: %d is not in 0…65535", s.Microphone)
	case s.Packet != SoundPacket:
		return fmt.Errorf("hcau.packet: %d ms, want %d", s.Packet, SoundPacket)
	case !CheckDelivery(s.Delivery):
		return fmt.Errorf("hcau.delivery: %.40q: want %s or %s", s.Delivery, DeliveryStream, DeliveryDatagram)
	case s.Position != nil && len(s.Position) != 3:
		return fmt.Errorf("hcau.position: %d numbers, want x, y and z", len(s.Position))
	}
	for _, v := range s.Position {
		if !(math.Abs(v) <= maxPosition) {
			return fmt.Errorf("hcau.position: %g mm exceeds %d m", v, int(maxPosition/1000))
		}
	}
	return nil
}
