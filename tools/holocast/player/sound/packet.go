package sound

import (
	"errors"
	"fmt"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/loc"
	"holocast/internal/moqt/wire"
)

// MaxPacket bounds a packet in bytes.
const MaxPacket = 1275

// ParsePacket parses a sound object. The mixer checks the packet's duration and channels.
func ParsePacket(properties wire.Properties, payload []byte) (p Packet, err error) {
	if len(payload) > MaxPacket {
		return p, fmt.Errorf("a packet has %d bytes, more than %d", len(payload), MaxPacket)
	}
	x, err := loc.Parse(properties)
	if err != nil {
		return p, err
	}
	return Packet{Timestamp: x.Timestamp, Data: payload, Previous: x.Previous}, nil
}

// FormatOf returns the format of a catalog's track.
func FormatOf(t catalog.Track) Format {
	f := Format{Channels: t.Channels()}
	if t.Sound != nil {
		f.Packet = time.Duration(t.Sound.Packet) * time.Millisecond
	}
	return f
}

// samplesOf returns the number of samples per packet of a track, from its first packet.
func samplesOf(packet []byte) (int, error) {
	n, err := loc.OpusSamples(packet)
	if err == nil && n < SampleRate/100 {
		err = fmt.Errorf("packets of %v are too short", time.Duration(n)*time.Second/SampleRate)
	}
	return n, err
}

// check returns an error if a packet, or its copy of the previous packet, contradicts its track.
func check(p Packet, t *track) error {
	if err := checkOne(p.Data, t); err != nil {
		return err
	}
	if p.Previous != nil {
		if err := checkOne(p.Previous, t); err != nil {
			return fmt.Errorf("copy of the previous packet: %w", err)
		}
	}
	return nil
}

func checkOne(b []byte, t *track) error {
	if len(b) > MaxPacket {
		return fmt.Errorf("a packet has %d bytes, more than %d", len(b), MaxPacket)
	}
	n, err := loc.OpusSamples(b)
	switch {
	case err != nil:
		return err
	case n != t.samples:
		return fmt.Errorf("a packet has %d samples, but the track's have %d", n, t.samples)
	case int(b[0]>>2&1) != t.channels-1:
		return errors.New("a packet's channels differ from the track's")
	}
	return nil
}
