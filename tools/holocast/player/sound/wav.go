package sound

import (
	"context"
	"errors"
	"os"
	"time"

	"holocast/internal/wav"
)

// WAVLead is the lead of a mixer whose sound goes into a file; see New.
const WAVLead = blockTime

const (
	blockTime    = 10 * time.Millisecond
	blockSamples = SampleRate / 100
)

// WAV writes sound to a file: 16 bit, stereo, 48 kHz.
type WAV struct {
	file *os.File
	w    *wav.Writer
}

// NewWAV creates the file.
func NewWAV(path string) (*WAV, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	w, err := wav.NewWriter(file, Channels, SampleRate)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &WAV{file, w}, nil
}

// Close completes the file.
func (w *WAV) Close() error { return errors.Join(w.w.Close(), w.file.Close()) }

// Record writes the mixer's sound in real time until ctx is done. It calls began with the local
// time of the file's first sample.
func (w *WAV) Record(ctx context.Context, m *Mixer, began func(time.Time)) error {
	tick := time.NewTicker(blockTime)
	defer tick.Stop()
	next := time.Now()
	began(next)
	block := make([]float32, blockSamples*Channels)
	for {
		for ; !next.After(time.Now()); next = next.Add(blockTime) {
			m.Read(block, next)
			if err := w.w.Write(block); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
