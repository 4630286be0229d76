// Package videoinput plays 360° video: files at their own rate, and live cameras, encoders and
// streams. It reopens a live input that ends, fails or stops delivering pictures.
package videoinput

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"holocast/internal/equirect"
	"holocast/internal/loc"
)

// Options configures a Player.
type Options struct {
	equirect.Options
	Loop bool // restart a file at its end
	Log  *slog.Logger
}

// Player plays one input.
type Player struct {
	*equirect.Video
	opts    Options
	frames  chan *Frame
	free    chan *equirect.Frame
	packets chan Packet

	// Time limits, shortened by tests.
	silence, firstBackoff time.Duration
}

// Frame is a picture with its capture time, local clock.
type Frame struct {
	*equirect.Frame
	Captured time.Time
}

// Packet is a packet of sound with the capture time of its first sample.
type Packet struct {
	Data     []byte
	Captured time.Time
}

// Buffers of decoded media.
const (
	framesAhead  = 3
	packetsAhead = 100
)

const (
	silence      = 10 * time.Second // time without a picture before a live input is reopened
	firstBackoff = 500 * time.Millisecond
	maxBackoff   = 10 * time.Second
)

// Open probes the input; Run plays it.
func Open(ctx context.Context, input string, opts Options) (*Player, error) {
	v, err := equirect.Open(ctx, input, opts.Options)
	if err != nil {
		return nil, err
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	s := &Player{
		Video: v, opts: opts, frames: make(chan *Frame, framesAhead), free: make(chan *equirect.Frame, framesAhead+2),
		packets: make(chan Packet, packetsAhead), silence: silence, firstBackoff: firstBackoff,
	}
	for range cap(s.free) {
		s.free <- v.NewFrame()
	}
	return s, nil
}

// Frames delivers the pictures when they are due, and is closed at the end. Return every frame with
// Release.
func (s *Player) Frames() <-chan *Frame { return s.frames }

// Release returns a frame's memory.
func (s *Player) Release(f *Frame) { s.free <- f.Frame }

// Packets delivers the sound, and is closed at the end.
func (s *Player) Packets() <-chan Packet { return s.packets }

// Run plays the input until ctx or a file ends (nil), or a file cannot be decoded.
func (s *Player) Run(ctx context.Context) error {
	defer close(s.frames)
	defer close(s.packets)
	backoff := s.firstBackoff
	for {
		n, err := s.play(ctx)
		if ctx.Err() != nil || !s.Input.Live() {
			if ctx.Err() == nil && err == nil && n == 0 {
				err = fmt.Errorf("%s: no pictures", s.Input)
			}
			return err
		}
		if n > 0 {
			backoff = s.firstBackoff
		}
		s.opts.Log.Warn("input stopped, reopening it", "input", s.Input.String(), "frames", n, "in", backoff, "err",
			cmp.Or(err, errEnded))
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return ctx.Err()
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

var (
	errEnded  = errors.New("the sender ended the stream")
	errSilent = errors.New("no picture within the time limit")
)

// play decodes the input once and returns the number of pictures.
func (s *Player) play(ctx context.Context) (n int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, err := s.Start(ctx, s.opts.Loop && !s.Input.Live())
	if err != nil {
		return 0, err
	}
	defer r.Close()
	watchdog := time.AfterFunc(s.silence, func() { cancel(errSilent) })
	defer watchdog.Stop()
	if s.Input.File() != "" {
		watchdog.Stop()
	}
	line := &timeline{live: s.Input.Live(), known: make(chan struct{})}
	var sound sync.WaitGroup
	defer sound.Wait()
	defer cancel(nil)
	if s.Info.Audio {
		sound.Go(func() {
			if err := s.playSound(ctx, r, line); err != nil && ctx.Err() == nil {
				s.opts.Log.Warn("sound ends", "input", s.Input.String(), "err", err)
			}
		})
	}
	for {
		var f *equirect.Frame
		select {
		case f = <-s.free:
		case <-ctx.Done():
			return n, context.Cause(ctx)
		}
		if err := r.Next(f); err != nil {
			s.free <- f
			if context.Cause(ctx) != nil {
				return n, context.Cause(ctx)
			}
			if err == io.EOF {
				sound.Wait() // drain
				return n, nil
			}
			return n, err
		}
		if s.Input.File() == "" {
			watchdog.Reset(s.silence)
		}
		captured := line.frame(s.Since(n), time.Now())
		n++
		if wait := time.Until(captured); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				s.free <- f
				return n, context.Cause(ctx)
			}
		}
		select {
		case s.frames <- &Frame{f, captured}:
		case <-ctx.Done():
			s.free <- f
			return n, context.Cause(ctx)
		}
	}
}

func (s *Player) playSound(ctx context.Context, r *equirect.Reader, line *timeline) error {
	a, err := r.Audio()
	if err != nil {
		return err
	}
	samples := int64(-a.Format.PreSkip)
	for {
		p, err := a.Next()
		if err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		at, err := line.sound(ctx, samplesTime(samples, a.Format))
		if err != nil {
			return err
		}
		samples += int64(p.Samples)
		if wait := time.Until(at); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return nil
			}
		}
		select {
		case s.packets <- Packet{p.Data, at}:
		case <-ctx.Done():
			return nil
		}
	}
}

func samplesTime(n int64, f loc.AudioFormat) time.Duration {
	return time.Duration(n * int64(time.Second) / int64(f.SampleRate))
}

// timeline converts media times to capture times. A file's first picture is captured when it is
// decoded. Live pictures arrive some time after capture; the smallest delay seen applies to all.
type timeline struct {
	live  bool
	known chan struct{} // closed when anchor is set

	mu     sync.Mutex
	anchor time.Time // capture time of media time 0
}

const (
	// maxLag is the lateness at which a live picture restarts the timeline.
	maxLag = time.Second
	// slew is the reciprocal of the share of its lag that each live picture corrects, to follow a
	// camera's clock that differs from this machine's.
	slew = 500
)

// frame returns the capture time of a picture that was decoded now.
func (l *timeline) frame(media time.Duration, now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.anchor.IsZero() {
		l.anchor = now.Add(-media)
		close(l.known)
	}
	lag := now.Sub(l.anchor.Add(media))
	switch {
	case !l.live:
	case lag < 0 || lag > maxLag:
		l.anchor = l.anchor.Add(lag)
	default:
		l.anchor = l.anchor.Add(lag / slew)
	}
	return l.anchor.Add(media)
}

// sound returns the capture time of a sample. It waits for the first picture.
func (l *timeline) sound(ctx context.Context, media time.Duration) (time.Time, error) {
	select {
	case <-l.known:
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.anchor.Add(media), nil
}
