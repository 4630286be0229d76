package audio

import (
	"context"
	"time"

	"holocast/internal/opus"
)

// Generated is mono sound computed from its time.
type Generated struct {
	Label string
	// Start returns the local time of sample 0. Next calls it once.
	Start func() time.Time
	// Fill computes the samples from sample from on, at 48 kHz.
	Fill func(dst []float32, from int64)

	pace  pacer
	block [opus.PacketSamples]float32
}

// Name implements Input.
func (g *Generated) Name() string { return g.Label }

// Channels implements Input.
func (g *Generated) Channels() int { return 1 }

// Drift implements Input.
func (g *Generated) Drift() float64 { return 0 }

// Close implements Input.
func (g *Generated) Close() error { return nil }

// Next implements Input.
func (g *Generated) Next(ctx context.Context, b *Block) error {
	if g.pace.rate == 0 {
		g.pace = pacer{start: g.Start(), rate: opus.SampleRate}
	}
	first, at, lost, err := g.pace.wait(ctx, opus.PacketSamples)
	if err != nil {
		return err
	}
	g.Fill(g.block[:], first)
	*b = Block{Samples: g.block[:], Rate: opus.SampleRate, Time: at, Lost: lost}
	return nil
}
