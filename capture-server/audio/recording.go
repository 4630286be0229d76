package audio

import (
	"context"
	"fmt"
	"io"
	"math"
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

	start  func() time.Time // of the first pass
	period float64          // samples from one pass to the next
}

// OpenRecording opens a WAV file. It starts at the first call of Next and loops if loop is set.
func OpenRecording(path string, loop bool) (Input, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	r := &recording{name: filepath.Base(path), file: f, loop: loop, start: time.Now}
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
	r.period = float64(r.sound.Length)
	return r, nil
}

// OpenLoop opens a WAV file that plays from the beginning at start, and again after each period; 0 is the
// file's length. A shorter file is followed by silence. Next calls start once.
func OpenLoop(path string, start func() time.Time, period time.Duration) (Input, error) {
	input, err := OpenRecording(path, true)
	if err != nil {
		return nil, err
	}
	r := input.(*recording)
	r.start = start
	if period > 0 {
		r.period = period.Seconds() * float64(r.sound.Rate)
	}
	return r, nil
}

func (r *recording) Name() string   { return r.name }
func (r *recording) Channels() int  { return r.sound.Channels }
func (r *recording) Drift() float64 { return 0 }
func (r *recording) Close() error   { return r.file.Close() }

func (r *recording) Next(ctx context.Context, b *Block) error {
	if r.pace.start.IsZero() {
		r.pace.start = r.start()
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

// read fills the block, starting at sample from of all passes.
func (r *recording) read(from int64) error {
	for rest := r.block; len(rest) > 0; {
		at, left := r.place(from)
		n := min(int64(len(rest)/r.sound.Channels), left)
		piece := rest[:int(n)*r.sound.Channels]
		sounding := max(0, min(n, r.sound.Length-at))
		if sounding > 0 {
			if err := r.sound.Read(piece[:int(sounding)*r.sound.Channels], at); err != nil {
				return err
			}
		}
		clear(piece[int(sounding)*r.sound.Channels:])
		rest, from = rest[len(piece):], from+n
	}
	return nil
}

// place returns a sample's place in its pass, and the number of samples until the next pass.
func (r *recording) place(sample int64) (at, left int64) {
	begin := func(pass float64) int64 { return int64(math.Ceil(pass * r.period)) }
	pass := math.Floor(float64(sample) / r.period)
	if begin(pass) > sample {
		pass--
	}
	return sample - begin(pass), begin(pass+1) - sample
}
