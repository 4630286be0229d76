package audio

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"holocast/capture-server/publish"
	"holocast/internal/catalog"
	"holocast/internal/loc"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/opus"
	"holocast/internal/origin"
)

const (
	// priority is the tracks' publisher priority, ahead of points and pictures.
	priority = 8
	// deliveryTimeout is the age at which packets are dropped.
	deliveryTimeout = 500 * time.Millisecond
)

// microphone is an input and its track. Only run's goroutine publishes.
type microphone struct {
	Microphone
	m       *Medium
	number  int
	track   *origin.Track
	encoder *opus.Encoder
	framer  framer
	first   uint64 // group ID of packet 0
	// previous is the last packet sent, or nil.
	previous []byte

	ended    atomic.Bool
	newest   atomic.Int64 // local time of the newest packet in UNIX ns
	level    atomic.Uint64
	dropouts atomic.Int64
}

func newMicrophone(m *Medium, number int, input Microphone) (*microphone, error) {
	e, err := opus.NewEncoder(input.Channels())
	if err != nil {
		return nil, err
	}
	return &microphone{
		Microphone: input, m: m, number: number, encoder: e, first: publish.FirstGroup(),
		framer: framer{channels: input.Channels(), toRelay: m.session.RelayTime().At},
		track: m.session.NewTrack(publish.Track{
			Name: catalog.SoundTrack(number), Priority: priority, DeliveryTimeout: deliveryTimeout,
		}),
	}, nil
}

// run publishes the input until it ends or ctx is done, and returns why.
func (p *microphone) run(ctx context.Context) error {
	var b Block
	out := packet{samples: make([]float32, opus.PacketSamples*p.Channels())}
	for {
		if err := p.Next(ctx, &b); err != nil {
			return err
		}
		p.framer.push(&b)
		for p.framer.read(&out) {
			if err := p.publish(&out); err != nil {
				return err
			}
		}
	}
}

func (p *microphone) publish(out *packet) error {
	if out.lost {
		p.dropouts.Add(1)
		p.encoder.Reset()
		p.previous = nil
	}
	p.measure(out.samples)
	payload, err := p.encoder.Encode(nil, out.samples)
	if err != nil {
		return err
	}
	stamp := out.time.Add(-time.Duration(p.encoder.Lookahead()) * time.Second / opus.SampleRate)
	if err := p.send(p.first+uint64(out.number), loc.Properties{Timestamp: stamp}, payload); err != nil {
		return err
	}
	p.previous = payload
	p.m.metrics.packets.WithLabelValues(p.Name()).Inc()
	return nil
}

// send writes a packet to the track. A datagram also carries the previous packet if it fits.
func (p *microphone) send(group uint64, props loc.Properties, payload []byte) error {
	if p.m.delivery != catalog.DeliveryDatagram {
		h := wire.SubgroupHeader{
			Group: group, Priority: priority, HasProperties: true, EndOfGroup: true, FirstObject: true,
		}
		return p.track.WriteObject(h, moqt.Object{Properties: props.Append(nil)}, payload)
	}
	if len(p.previous)+len(payload) <= publish.MaxDatagram(p.track)-propertiesSize {
		props.Previous = p.previous
	}
	p.track.SendDatagram(moqt.Datagram{
		Group: group, Priority: priority, EndOfGroup: true, Properties: props.Append(nil), Payload: payload,
	})
	return nil
}

// propertiesSize is the maximum size of a packet's properties without the previous packet's bytes.
const propertiesSize = 32

// measure stores the packet's level, the root mean square of its samples.
func (p *microphone) measure(samples []float32) {
	sum := 0.0
	for _, x := range samples {
		sum += float64(x) * float64(x)
	}
	p.level.Store(math.Float64bits(math.Sqrt(sum / float64(len(samples)))))
	p.newest.Store(time.Now().UnixNano())
}

// delivering reports whether the microphone has delivered within the last second.
func (p *microphone) delivering() bool {
	return time.Since(time.Unix(0, p.newest.Load())) < time.Second
}
