// Package k4arecording plays Azure Kinect recordings (internal/k4amkv) at their recorded rate, in
// step with other recordings, optionally in a loop.
package k4arecording

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"holocast/capture-server/source"
	"holocast/capture-server/source/pace"
	"holocast/internal/camera"
	"holocast/internal/k4amkv"
)

// Options configures a Player.
type Options struct {
	// Take is the take to join. Device times keep growing from pass to pass. If Take is nil, the
	// recording plays alone and does not loop.
	Take *pace.Take
	// Name is the source's name. If it is "", the name is the camera's serial number, or the file's
	// name if the recording has no serial number.
	Name string
}

// Player is a source.Source that plays one recording.
type Player struct {
	path    string
	options Options
	cal     camera.Calibration
	reader  *k4amkv.Reader
	dropped atomic.Int64

	mu    sync.Mutex
	spare []*k4amkv.Capture // released by callers of Next

	part      *pace.Part
	delivered bool // a frame was returned in this pass
}

// Open opens a recording, which must have depth and a calibration.
func Open(path string, options Options) (*Player, error) {
	r, err := k4amkv.Open(path)
	if err != nil {
		return nil, fmt.Errorf("k4amkv: %w", err)
	}
	p := &Player{path: path, options: options, reader: r}
	if err := p.configure(); err != nil {
		return nil, errors.Join(fmt.Errorf("k4amkv: %s: %w", path, err), r.Close())
	}
	start := r.Config.StartOffset
	first := p.capture()
	if r.Next(first) == nil {
		start = first.Time()
	}
	p.release(first)
	if err := r.SeekTo(0); err != nil {
		return nil, errors.Join(fmt.Errorf("k4amkv: %s: %w", path, err), r.Close())
	}
	if p.options.Take == nil {
		p.options.Take = pace.NewTake(false, nil)
	}
	p.part = p.options.Take.Join(p.options.Name, start, time.Second/time.Duration(r.Config.FPS))
	return p, nil
}

func (p *Player) configure() (err error) {
	c := &p.reader.Config
	switch {
	case !c.Depth:
		return errors.New("the recording has no depth track")
	case c.Calibration == nil:
		return errors.New("the recording has no calibration.json, so its depth cannot be converted to points")
	}
	if p.cal, err = camera.Parse(c.Calibration, c.DepthMode, c.ColorMode); err != nil {
		return err
	}
	if p.options.Name == "" {
		p.options.Name = c.Serial
	}
	if p.options.Name == "" {
		p.options.Name = strings.TrimSuffix(filepath.Base(p.path), filepath.Ext(p.path))
	}
	return nil
}

// Name implements source.Source.
func (p *Player) Name() string { return p.options.Name }

// Calibration implements source.Source.
func (p *Player) Calibration() camera.Calibration { return p.cal }

// FPS implements source.Source. It returns the frame rate set when recording.
func (p *Player) FPS() float64 { return float64(p.reader.Config.FPS) }

// Dropped implements source.Source. It counts captures without depth, and captures more than a
// frame overdue when Next was called.
func (p *Player) Dropped() int64 { return p.dropped.Load() }

// Close implements source.Source.
func (p *Player) Close() error {
	p.part.Leave()
	return p.reader.Close()
}

// Next implements source.Source. For damaged data it returns a *source.DamageError, after all
// captures before the damage.
func (p *Player) Next(ctx context.Context, f *source.Frame) error {
	err := p.next(ctx, f)
	if damage := (*source.DamageError)(nil); err != nil && !errors.As(err, &damage) {
		p.part.Leave()
	}
	return err
}

func (p *Player) next(ctx context.Context, f *source.Frame) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		c := p.capture()
		err := p.reader.Next(c)
		if err != nil {
			p.release(c)
		}
		if errors.Is(err, io.EOF) {
			if err := p.again(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return p.failure(err)
		}
		m, err := p.part.Wait(ctx, c.Time())
		if err != nil {
			p.release(c)
			return err
		}
		p.delivered = p.delivered || c.Depth != nil
		if c.Depth == nil || m.Late {
			p.release(c)
			p.dropped.Add(1)
			continue
		}
		*f = source.Frame{
			Depth: c.Depth, Color: c.Color, Format: p.reader.Config.ColorFormat, IR: c.IR,
			DeviceTime: m.Device, CaptureTime: m.Due,
			Free: func() { p.release(c) },
		}
		return nil
	}
}

// capture returns a capture whose buffers are free for reuse.
func (p *Player) capture() *k4amkv.Capture {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.spare) - 1
	if n < 0 {
		return &k4amkv.Capture{}
	}
	c := p.spare[n]
	p.spare = p.spare[:n]
	return c
}

func (p *Player) release(c *k4amkv.Capture) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spare = append(p.spare, c)
}

// failure adds the recording's path to an error of its reader.
func (p *Player) failure(err error) error {
	named := fmt.Errorf("k4amkv: %s: %w", p.path, err)
	var damage *k4amkv.DamageError
	if errors.As(err, &damage) {
		return &source.DamageError{Err: named}
	}
	return named
}

// again waits for the next pass. It returns io.EOF if the recording does not loop, and an error if
// no capture of this pass had depth.
func (p *Player) again(ctx context.Context) error {
	if !p.delivered {
		return fmt.Errorf("k4amkv: %s: no capture in the recording has depth", p.path)
	}
	p.delivered = false
	if err := p.part.Again(ctx); err != nil {
		return err
	}
	return p.reader.SeekTo(0)
}
