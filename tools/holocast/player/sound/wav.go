package sound

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/go-audio/audio"
	"github.com/go-audio/wav"
)

// WAVLead is the lead of a mixer whose sound goes into a file; see New.
const WAVLead = blockTime

const (
	blockTime    = 10 * time.Millisecond
	blockSamples = SampleRate / 100
	maxWAVBytes  = math.MaxUint32 - 1<<16 // of the file's 32-bit lengths
)

// WAV writes sound to a file: 16 bit, stereo, 48 kHz.
type WAV struct {
	path  string
	file  *os.File
	enc   *wav.Encoder
	block *audio.IntBuffer
	bytes int64
}

// NewWAV creates the file.
func NewWAV(path string) (*WAV, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	const pcm = 1
	return &WAV{path: path, file: file, enc: wav.NewEncoder(file, SampleRate, 16, Channels, pcm), block: &audio.IntBuffer{
		Format: &audio.Format{SampleRate: SampleRate, NumChannels: Channels}, SourceBitDepth: 16,
	}}, nil
}

// Write appends interleaved stereo samples of full scale ±1.
func (w *WAV) Write(samples []float32) error {
	if w.bytes += int64(2 * len(samples)); w.bytes > maxWAVBytes {
		return fmt.Errorf("write %s: a WAV file has at most 4 GiB, 6 hours", w.path)
	}
	w.block.Data = w.block.Data[:0]
	for _, v := range samples {
		w.block.Data = append(w.block.Data, int(math.Round(float64(min(max(v, -1), 1))*math.MaxInt16)))
	}
	return w.enc.Write(w.block)
}

// Close completes the file.
func (w *WAV) Close() error {
	var header error
	if w.bytes == 0 {
		header = w.Write(make([]float32, Channels)) // the encoder writes no header without samples
	}
	return errors.Join(header, w.enc.Close(), w.file.Close())
}

// Record writes the mixer's sound in real time until ctx ends. It calls began with the local time of
// the file's first sample.
func (w *WAV) Record(ctx context.Context, m *Mixer, began func(time.Time)) error {
	tick := time.NewTicker(blockTime)
	defer tick.Stop()
	next := time.Now()
	began(next)
	block := make([]float32, blockSamples*Channels)
	for {
		for ; !next.After(time.Now()); next = next.Add(blockTime) {
			m.Read(block, next)
			if err := w.Write(block); err != nil {
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
