// Package videoinput is the source of 360° video: a file at the pace it was made for, or a
// camera, encoder or stream that is live. A live input that ends, fails or falls silent
// is opened again.
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

// Options say how to play an input.
type Options struct {
	equirect.Options
	Loop bool // begin a file again at its end
	Log  *slog.Logger
}

// Player plays one input.
type Player struct {
	*equirect.Video
	opts    Options
	frames  chan *Frame
	free    chan *equirect.Frame
	packets chan Packet

	// Limits of waiting, for tests.
	silence, firstBackoff time.Duration
}

// Frame is a picture and when it was captured, on this machine's clock.
type Frame struct {
	*equirect.Frame
	Captured time.Time
}

// Packet is a packet of sound, and when its first sample was captured.
type Packet struct {
	Data     []byte
	Captured time.Time
}

// Bounds of what is decoded ahead of its time.
const (
	framesAhead  = 3
	packetsAhead = 100
)

const (
	silence      = 10 * time.Second // without a picture, after which a live input is opened again
	firstBackoff = 500 * time.Millisecond
	maxBackoff   = 10 * time.Second
)

// Open finds out what the input is; Run plays it.
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

// Frames brings the pictures, each when it is due. It is closed at the end. Every frame
// goes back by Release.
func (s *Player) Frames() <-chan *Frame { return s.frames }

// Release gives a frame's memory back.
func (s *Player) Release(f *Frame) { s.free <- f.Frame }

// Packets brings the sound. It is closed at the end.
func (s *Player) Packets() <-chan Packet { return s.packets }

// Run plays the input until ctx ends, a file does (nil) or cannot be decoded.
func (s *Player) Run(ctx context.Context) error {
	defer close(s.frames)
	defer close(s.packets)
	backoff := s.firstBackoff
	for {
		n, err := s.play(ctx)
		if ctx.Err() != nil || !s.Input.Live() {
			if ctx.Err() == nil && err == nil && n == 0 {
				err = fmt.Errorf("%s: there is no picture in it", s.Input)
			}
			return err
		}
		if n > 0 {
			backoff = s.firstBackoff
		}
		s.opts.Log.Warn("input stopped, opening it again", "input", s.Input.String(), "frames", n, "in", backoff, "err", cmp.Or(err, errEnded))
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return ctx.Err()
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

var (
	errEnded  = errors.New("its sender ended it")
	errSilent = errors.New("no picture came for too long")
)

// play decodes the input once and returns how many pictures that brought.
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
				sound.Wait() // what is left of it
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

// timeline tells when what an input brings was captured. A file's first picture is
// captured when it is there; a live input's pictures arrive some time after they were
// captured, and the least of that time is what counts for all.
type timeline struct {
	live  bool
	known chan struct{} // closed once there is an anchor

	mu     sync.Mutex
	anchor time.Time // of media time 0
}

const (
	// maxLag is how late a live picture may arrive before its capture is taken to be later.
	maxLag = time.Second
	// slew is by how much of its lag a live input's time is corrected a picture, so that a
	// camera's clock may differ from this machine's.
	slew = 500
)

// frame returns when the picture of a media time was captured that is there now.
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

// sound returns when the sample of a media time was captured. It waits for the first
// picture.
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
