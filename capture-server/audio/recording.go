package audio

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"holocast/internal/wav"
)

// recording plays a WAV file.
type recording struct {
	name  string
	file  *os.File
	sound *wav.File
	loop  bool
	pace  pacer
	block []float32
}

// OpenRecording opens a WAV file. It starts at the first call of Next and loops if loop is set.
func OpenRecording(path string, loop bool) (Input, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r := &recording{name: filepath.Base(path), file: f, loop: loop}
	info, err := f.Stat()
	if err == nil {
		r.sound, err = wav.New(f, info.Size())
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r.pace.rate = r.sound.Rate
	r.block = make([]float32, r.sound.Rate/100*r.sound.Channels)
	return r, nil
}

func (r *recording) Name() string   { return r.name }
func (r *recording) Channels() int  { return r.sound.Channels }
func (r *recording) Drift() float64 { return 0 }
func (r *recording) Close() error   { return r.file.Close() }

func (r *recording) Next(ctx context.Context, b *Block) error {
	if r.pace.start.IsZero() {
		r.pace.start = time.Now()
	}
	n := int64(len(r.block) / r.sound.Channels)
	first, at, lost, err := r.pace.wait(ctx, n)
	if err != nil {
		return err
	}
	if !r.loop && first+n > r.sound.Length {
		return io.EOF
	}
	if err := r.read(first); err != nil {
		return err
	}
	*b = Block{Samples: r.block, Rate: r.sound.Rate, Time: at, Lost: lost}
	return nil
}

// read fills the block, starting at sample from and repeating the file as often as needed.
func (r *recording) read(from int64) error {
	for rest := r.block; len(rest) > 0; {
		at := from % r.sound.Length
		n := min(int64(len(rest)/r.sound.Channels), r.sound.Length-at)
		piece := rest[:int(n)*r.sound.Channels]
		if err := r.sound.Read(piece, at); err != nil {
			return err
		}
		rest, from = rest[len(piece):], from+n
	}
	return nil
}
