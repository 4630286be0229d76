package audio

import (
	"math"
	"time"

	"holocast/internal/opus"
)

// packetTime is the duration of a packet.
const packetTime = 10 * time.Millisecond

const (
	// maxError bounds the offset of samples from their packet's time; more counts as an
	// interruption.
	maxError = 40 * time.Millisecond
	// maxStretch bounds the change of pitch by which samples are kept at their packets' times: 5
	// cents.
	maxStretch = 0.003
	// maxSkip bounds the samples dropped because they are older than the next packet. If the
	// relay's clock is set back by more, packets are delayed instead.
	maxSkip = time.Second
)

// framer cuts an input's sound into packets of 10 ms by the relay's clock. Packet k is captured
// k·10 ms after packet 0. Samples are resampled to fit, which compensates for clock drift.
type framer struct {
	channels int
	toRelay  func(time.Time) time.Time

	rate     int
	r        *resampler
	newest   time.Time // local time of the end of r's input
	origin   time.Time // relay time of packet 0
	next     int64     // number of the next packet
	started  bool
	resynced bool // the next packet follows an interruption
}

// packet is 10 ms of sound.
type packet struct {
	number  int64
	time    time.Time // of the first sample, on the relay's clock
	samples []float32 // overwritten by the next packet
	lost    bool      // sound is missing before the packet
}

// push adds a block.
func (f *framer) push(b *Block) {
	if f.r == nil || b.Rate != f.rate {
		f.rate = b.Rate
		f.r = newResampler(f.channels, f.rate, opus.SampleRate)
		f.resynced = true
	} else if b.Lost {
		f.r.clear()
		f.resynced = true
	}
	f.r.push(b.Samples)
	f.newest = b.Time.Add(f.duration(float64(len(b.Samples) / f.channels)))
}

func (f *framer) duration(samples float64) time.Duration {
	return time.Duration(math.Round(samples / float64(f.rate) * float64(time.Second)))
}

// due returns the time of the next packet, and position the time of the next sample.
func (f *framer) due() time.Time { return f.origin.Add(time.Duration(f.next) * packetTime) }

func (f *framer) position() time.Time { return f.toRelay(f.newest.Add(-f.duration(f.r.available()))) }

// read returns the next packet in p, filling p.samples, or false if it is incomplete.
func (f *framer) read(p *packet) bool {
	if f.r == nil {
		return false
	}
	if !f.started {
		f.started, f.resynced = true, false
		f.origin = f.position()
	}
	late := f.due().Sub(f.position())
	if f.resynced || late.Abs() > maxError {
		if !f.resync(late) {
			return false
		}
		late = f.due().Sub(f.position())
	}
	stretch := min(max(late.Seconds(), -maxStretch), maxStretch)
	if !f.r.read(p.samples, float64(f.rate)/opus.SampleRate*(1+stretch)) {
		return false
	}
	p.number, p.time, p.lost = f.next, f.due(), f.resynced
	f.resynced = false
	f.next++
	return true
}

// resync continues after an interruption. late is the time from the next sample to the next packet.
// It reports false while all samples are older than the packet.
func (f *framer) resync(late time.Duration) bool {
	f.resynced = true
	switch {
	case late < 0: // samples are missing
		f.next += int64((-late + packetTime - 1) / packetTime)
		late = f.due().Sub(f.position())
	case late > maxSkip:
		f.origin = f.origin.Add(-late)
		late = 0
	}
	skip := late.Seconds() * float64(f.rate)
	if skip > f.r.available()-reach {
		return false
	}
	f.r.at += skip
	return true
}
