package main

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/loc"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/opus"
)

const (
	// soundPriority is the publisher priority of sound.
	soundPriority = 8
	// beep is the duration of a beep, which starts at every whole second of the session's clock.
	beep = 100 * time.Millisecond
	// pitch of the beep in Hz.
	pitch = 440
)

// packetTime is the duration of a packet.
const packetTime = catalog.SoundPacket * time.Millisecond

// beeper encodes sound that beeps.
type beeper struct {
	encoder  *opus.Encoder
	previous []byte
}

func newBeeper() (*beeper, error) {
	e, err := opus.NewEncoder(1)
	return &beeper{encoder: e}, err
}

// packet encodes the sound captured from the given time on.
func (b *beeper) packet(at time.Time) ([]byte, loc.Properties, error) {
	var samples [opus.PacketSamples]float32
	for i := range samples {
		t := at.Add(time.Duration(i) * time.Second / opus.SampleRate)
		if since := t.Sub(t.Truncate(time.Second)); since < beep {
			samples[i] = float32(0.5 * math.Sin(2*math.Pi*pitch*since.Seconds()))
		}
	}
	payload, err := b.encoder.Encode(nil, samples[:])
	lookahead := time.Duration(b.encoder.Lookahead()) * time.Second / opus.SampleRate
	props := loc.Properties{Timestamp: at.Add(-lookahead), Previous: b.previous}
	b.previous = payload
	return payload, props, err
}

// soundTrack describes the microphone, which is 1 m to the right of the subject.
func (o *options) soundTrack() catalog.Track {
	return catalog.Track{
		Name: catalog.SoundTrack(0), Packaging: catalog.PackagingLOC, IsLive: true, Role: catalog.RoleAudio,
		Codec: catalog.CodecOpus, Samplerate: catalog.SoundRate, ChannelConfig: "1",
		Sound: &catalog.Sound{
			MicrophoneName: "beeper", Position: []float64{1000, 1200, 0}, Delivery: o.sound, Packet: catalog.SoundPacket,
		},
	}
}

// produceSound publishes a packet every 10 ms. It drops every 20th datagram.
func (p *publisher) produceSound(ctx context.Context) error {
	b, err := newBeeper()
	if err != nil {
		return err
	}
	defer b.encoder.Close()
	tick := time.NewTicker(packetTime / 2)
	defer tick.Stop()
	next := p.clock.Now().Truncate(packetTime)
	for group := p.group; ; {
		for ; next.Before(p.clock.Now().Add(-packetTime)); next = next.Add(packetTime) {
			payload, props, err := b.packet(next)
			if err != nil {
				return err
			}
			group++
			if p.sound == catalog.DeliveryStream || group%20 != 0 {
				p.sendSound(group, props, payload)
			}
			for range p.flood {
				group = p.attackSound(group, next)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// sendSound publishes a packet. Packets too large for a datagram are sent on streams.
func (p *publisher) sendSound(group uint64, props loc.Properties, payload []byte) {
	if p.sound == catalog.DeliveryDatagram && len(payload)+len(props.Previous) < 1100 {
		p.audio.SendDatagram(moqt.Datagram{
			Group: group, Priority: soundPriority, EndOfGroup: true, Properties: props.Append(nil), Payload: payload,
		})
		return
	}
	h := wire.SubgroupHeader{
		Group: group, Priority: soundPriority, EndOfGroup: true, FirstObject: true, HasProperties: true,
	}
	_ = p.audio.WriteObject(h, moqt.Object{Properties: props.Append(nil)}, payload) // fails for a full cache
}

// attackSound publishes a packet that a viewer must refuse or survive.
func (p *publisher) attackSound(group uint64, at time.Time) uint64 {
	props := loc.Properties{Timestamp: at}
	payload := []byte{0xf0, byte(group)} // 10 ms of CELT
	switch group++; rand.IntN(8) {
	case 0: // beyond the limit
		if group%10 == 0 {
			payload = make([]byte, 60000)
		}
	case 1:
		payload = payload[:1]
	case 2: // 60 ms of SILK
		payload[0] = 0x18
	case 3: // two channels
		payload[0] |= 4
	case 4: // noise
		payload = append(payload, make([]byte, 100)...)
		for i := range payload[1:] {
			payload[1+i] = byte(rand.Uint32())
		}
	case 5:
		props.Timestamp = at.Add(time.Hour)
	case 6:
		props.Timestamp = time.UnixMicro(0)
	case 7: // a copy beyond the limit
		props.Previous = make([]byte, 1276)
	}
	p.sendSound(group, props, payload)
	return group
}
