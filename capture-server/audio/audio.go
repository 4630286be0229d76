// Package audio publishes microphones, recordings and generated sound (docs/spec/sound.md). Each
// microphone has a track audio/<number> of 10 ms Opus packets, timed by the relay's clock.
package audio

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"holocast/capture-server/publish"
	"holocast/internal/catalog"
	"holocast/internal/moqt/wire"
	"holocast/internal/opus"
)

// Microphone is an input and its position.
type Microphone struct {
	Input
	// Position is x, y, z in studio space in millimetres, or nil.
	Position []float64
}

// Medium publishes the microphones of a session.
type Medium struct {
	session     *publish.Publisher
	delivery    string
	metrics     *metrics
	microphones []*microphone
}

var _ publish.Medium = (*Medium)(nil)

// New creates a medium that owns the microphones. delivery is catalog.DeliveryStream (the default)
// or catalog.DeliveryDatagram. If New fails, the caller still owns the microphones.
func New(session *publish.Publisher, delivery string, microphones []Microphone) (*Medium, error) {
	m := &Medium{session: session, delivery: delivery, metrics: newMetrics()}
	for i, input := range microphones {
		p, err := newMicrophone(m, i, input)
		if err != nil {
			m.release()
			return nil, fmt.Errorf("microphone %s: %w", input.Name(), err)
		}
		m.microphones = append(m.microphones, p)
	}
	session.Register(m.metrics.collectors(m)...)
	return m, nil
}

// Name implements publish.Medium.
func (m *Medium) Name() string { return "sound" }

// Close implements publish.Medium. It frees the encoders and closes the microphones.
func (m *Medium) Close() {
	m.release()
	for _, p := range m.microphones {
		if err := p.Close(); err != nil {
			m.session.Log().Warn("could not close a microphone", "name", p.Name(), "err", err)
		}
	}
}

func (m *Medium) release() {
	for _, p := range m.microphones {
		p.encoder.Close()
	}
}

// Describe implements publish.Medium.
func (m *Medium) Describe(c *catalog.Catalog) error {
	renderGroup := 1
	for _, p := range m.microphones {
		if p.ended.Load() {
			continue
		}
		c.Tracks = append(c.Tracks, catalog.Track{
			Name: p.track.Name().Name, Packaging: catalog.PackagingLOC, IsLive: true, Role: catalog.RoleAudio,
			Label: p.Name(), RenderGroup: &renderGroup, Codec: catalog.CodecOpus, Samplerate: catalog.SoundRate,
			ChannelConfig: fmt.Sprint(p.Channels()), AvgBitrate: int64(opus.Bitrate(p.Channels())),
			Sound: &catalog.Sound{
				Microphone: p.number, MicrophoneName: p.Name(), Position: p.Position, Delivery: m.delivery,
				Packet: catalog.SoundPacket,
			},
		})
	}
	return nil
}

// errNoMicrophone is returned by Run if a microphone failed and none is left.
var errNoMicrophone = errors.New("no microphone is left to publish")

// Run implements publish.Medium. It returns nil if ctx is done or all microphones end, otherwise the
// first failure.
func (m *Medium) Run(ctx context.Context) error {
	log := m.session.Log()
	var g errgroup.Group
	for _, p := range m.microphones {
		g.Go(func() error {
			err := p.run(ctx)
			if ctx.Err() != nil {
				return nil //nolint:nilerr // canceled, not failed
			}
			p.ended.Store(true)
			p.track.End(wire.DoneTrackEnded, "the microphone has ended")
			m.session.Changed()
			if !errors.Is(err, io.EOF) {
				log.Error("microphone failed", "name", p.Name(), "err", err)
				return fmt.Errorf("%w; %s: %w", errNoMicrophone, p.Name(), err)
			}
			log.Info("microphone ended", "name", p.Name())
			return nil
		})
	}
	return g.Wait()
}
