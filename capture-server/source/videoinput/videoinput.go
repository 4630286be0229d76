// Package videoinput plays 360° video from files, at their own rate, and from live cameras,
// encoders and streams. It reopens a live input that ends, fails or stops delivering frames.
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
	opened  bool // play was called

	// Time limits, shortened by tests.
	silence, firstBackoff time.Duration
}

// Frame is a video frame with its capture time by the local clock.
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
	silence      = 10 * time.Second // time without a frame before a live input is reopened
	httpSilence  = time.Minute      // silence over HTTP, where FFmpeg itself waits for a playlist's next segment
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
	if !v.Input.Live() {
		s.silence = httpSilence
	}
	for range cap(s.free) {
		s.free <- v.NewFrame()
	}
	return s, nil
}

// Frames delivers the frames when they are due. Run closes it when it returns. Return every frame with
// Release.
func (s *Player) Frames() <-chan *Frame { return s.frames }

// Release returns a frame's memory.
func (s *Player) Release(f *Frame) { s.free <- f.Frame }

// Packets delivers the sound. Run closes it when it returns.
func (s *Player) Packets() <-chan Packet { return s.packets }

// Run plays the input. It returns nil when a file ends, an error if a file cannot be decoded, and
// ctx's error once ctx is done.
func (s *Player) Run(ctx context.Context) error {
	defer close(s.frames)
	defer close(s.packets)
	backoff := s.firstBackoff
	for {
		n, err := s.play(ctx)
		if ctx.Err() != nil || !s.Endless() {
			if ctx.Err() == nil && err == nil && n == 0 {
				err = fmt.Errorf("%s: no frames", s.Input)
			}
			return err
		}
		if n > 0 {
			backoff = s.firstBackoff
		}
		s.opts.Log.Warn("input stopped; reopening it", "input", s.Input.String(), "frames", n, "in", backoff, "err",
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
	errSilent = errors.New("no frame within the time limit")
)

// play plays the input once, or a looping file forever. It returns the number of frames.
func (s *Player) play(ctx context.Context) (n int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(s.silence, func() { cancel(errSilent) })
	defer watchdog.Stop()
	if s.Input.File() != "" {
		watchdog.Stop()
	}
	if s.opened {
		notes, err := s.Reopen(ctx)
		if err != nil {
			return 0, cmp.Or(context.Cause(ctx), err)
		}
		for _, note := range notes {
			s.opts.Log.Warn("360° video changed after reopening", "input", s.Input.String(), "change", note)
		}
	}
	s.opened = true
	r, err := s.Start(ctx)
	if err != nil {
		return 0, err
	}
	loop := s.opts.Loop && !s.Endless()
	line := &timeline{live: s.Input.Live(), endless: s.Endless(), known: make(chan struct{})}
	for l := (lap{Player: s, line: line, loop: loop, r: r}); ; {
		played, err := l.play(ctx, watchdog)
		n += played
		if err != nil || !loop || played == 0 {
			return n, err
		}
		if l, err = l.following(ctx, played); err != nil {
			return n, err
		}
	}
}

// lap plays a file from its start to its end. It replaces FFmpeg's own loop (-stream_loop), which
// repeats after the length of the sound, even if that is shorter than the video.
type lap struct {
	*Player
	line  *timeline
	loop  bool
	first int64 // number of its first frame, counted from the start of the first lap
	r     *equirect.Reader
	next  *equirect.Reader // decoder of the next lap, if already started
	heard time.Duration    // length of the sound
}

const (
	// prefetch is how long before a lap's end the next lap's decoder starts.
	prefetch = 2 * time.Second
	// soundExcess is how much longer than the video the sound may be without delaying the next lap.
	soundExcess = 100 * time.Millisecond
)

// following returns the lap that follows l; played is the number of frames of l.
func (l *lap) following(ctx context.Context, played int64) (lap, error) {
	audible := l.first + int64((l.heard-soundExcess).Seconds()*float64(l.FPSNum)/float64(l.FPSDen))
	next := lap{Player: l.Player, line: l.line, loop: l.loop, first: max(l.first+played, audible), r: l.next}
	if next.r != nil {
		return next, nil
	}
	var err error
	next.r, err = l.Start(ctx)
	return next, err
}

// play plays the lap and returns the number of frames.
func (l *lap) play(ctx context.Context, watchdog *time.Timer) (n int64, err error) {
	audible, cancel := context.WithCancel(ctx)
	var sound sync.WaitGroup
	defer func() {
		cancel()
		l.r.Close()
		if err != nil && l.next != nil {
			l.next.Close()
		}
		sound.Wait()
	}()
	if l.r.HasAudio() {
		sound.Go(func() {
			if err := l.playSound(audible); err != nil && audible.Err() == nil {
				l.opts.Log.Warn("sound ended early", "input", l.Input.String(), "err", err)
			}
		})
	}
	for {
		var f *equirect.Frame
		select {
		case f = <-l.free:
		case <-ctx.Done():
			return n, context.Cause(ctx)
		}
		if err := l.r.Next(f); err != nil {
			l.free <- f
			if context.Cause(ctx) != nil {
				return n, context.Cause(ctx)
			}
			if err == io.EOF {
				sound.Wait() // drain
				return n, nil
			}
			return n, err
		}
		if l.Input.File() == "" {
			watchdog.Reset(l.silence)
		}
		if l.loop && l.next == nil && l.Info.Duration > 0 && l.Since(n) >= l.Info.Duration-prefetch {
			if l.next, err = l.Start(ctx); err != nil {
				return n, err
			}
		}
		captured := l.line.frame(l.Since(l.first+n), time.Now())
		n++
		if wait := time.Until(captured); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				l.free <- f
				return n, context.Cause(ctx)
			}
		}
		select {
		case l.frames <- &Frame{f, captured}:
		case <-ctx.Done():
			l.free <- f
			return n, context.Cause(ctx)
		}
	}
}

func (l *lap) playSound(ctx context.Context) error {
	a, err := l.r.Audio()
	if err != nil {
		return err
	}
	samples := int64(-a.Format.PreSkip)
	begin := l.Since(l.first)
	for {
		p, err := a.Next()
		if err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		start := samplesTime(samples, a.Format)
		if l.loop && l.Info.Duration > 0 && start >= l.Info.Duration && start < l.Info.Duration+soundExcess {
			samples += int64(p.Samples)
			continue // the encoder's padding would overlap the next lap
		}
		at, err := l.line.sound(ctx, begin+start)
		if err != nil {
			return err
		}
		samples += int64(p.Samples)
		l.heard = samplesTime(samples, a.Format)
		if wait := time.Until(at); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return nil
			}
		}
		select {
		case l.packets <- Packet{p.Data, at}:
		case <-ctx.Done():
			return nil
		}
	}
}

func samplesTime(n int64, f loc.AudioFormat) time.Duration {
	return time.Duration(n * int64(time.Second) / int64(f.SampleRate))
}

// timeline converts media times to capture times. A file's first frame counts as captured when it
// is decoded. Live frames arrive some time after capture; timeline assumes the smallest delay seen
// for all of them.
//
// Frames of a live playlist arrive in bursts. They are paced like a file's unless they are late.
type timeline struct {
	live    bool
	endless bool
	known   chan struct{} // closed when anchor is set

	mu     sync.Mutex
	anchor time.Time // capture time of media time 0
}

const (
	// maxLag is the lag above which a frame of an endless input restarts the timeline.
	maxLag = time.Second
	// slew limits how fast the timeline follows a camera's clock: each live frame corrects 1/slew
	// of its lag.
	slew = 500
)

// frame returns the capture time of a frame that has just been decoded.
func (l *timeline) frame(media time.Duration, now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.anchor.IsZero() {
		l.anchor = now.Add(-media)
		close(l.known)
	}
	lag := now.Sub(l.anchor.Add(media))
	switch {
	case l.endless && lag > maxLag, l.live && lag < 0:
		l.anchor = l.anchor.Add(lag)
	case l.live:
		l.anchor = l.anchor.Add(lag / slew)
	}
	return l.anchor.Add(media)
}

// sound returns the capture time of a sample. It waits for the first frame.
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
