package audio

import (
	"context"
	"time"
)

// Input is a microphone, a recording or generated sound.
type Input interface {
	Name() string  // such as "USB Audio"
	Channels() int // 1 or 2
	// Drift returns the input's clock rate relative to the local clock, minus 1; 0 if unknown.
	Drift() float64
	// Next waits for the next samples and fills b. An unplugged microphone blocks until it is back.
	// Next returns io.EOF at the end, and ctx.Err() if ctx is done; any other error is final.
	Next(ctx context.Context, b *Block) error
	Close() error
}

// Block is a piece of sound.
type Block struct {
	Samples []float32 // interleaved, full scale ±1; valid until the next call of Next
	Rate    int       // Hz
	Time    time.Time // local time at which the first sample was captured
	// Lost reports that samples are missing before the block.
	Lost bool
}

// pacer times an input that has no device, by the local clock.
type pacer struct {
	start time.Time // of sample 0
	rate  int
	at    int64 // next sample
}

// maxBehind is how late a paced input may be before it skips samples.
const maxBehind = time.Second

// wait blocks until n samples are captured. It returns the first sample's number and time, and
// whether samples before it were skipped.
func (p *pacer) wait(ctx context.Context, n int64) (first int64, at time.Time, lost bool, err error) {
	if behind := time.Since(p.timeOf(p.at + n)); behind > maxBehind {
		p.at += int64(behind.Seconds() * float64(p.rate))
		lost = true
	}
	first, at = p.at, p.timeOf(p.at)
	timer := time.NewTimer(time.Until(p.timeOf(p.at + n)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return 0, time.Time{}, false, ctx.Err()
	}
	p.at += n
	return first, at, lost, nil
}

func (p *pacer) timeOf(sample int64) time.Time {
	seconds, rest := sample/int64(p.rate), sample%int64(p.rate)
	return p.start.Add(time.Duration(seconds)*time.Second + time.Duration(rest)*time.Second/time.Duration(p.rate))
}
