// Package load publishes a track to a relay and views it there, as often as a benchmark
// wants.
package load

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/tools/bench/internal/direct"
	"holocast/tools/bench/internal/quantile"
)

// Server is what viewers connect to: a relay, or the publisher itself.
type Server interface {
	// Publish offers a track; stop takes it back.
	Publish(ctx context.Context, t *origin.Track) (stop func(), err error)
	// View opens a viewer's session.
	View(ctx context.Context) (*moqt.Session, error)
}

// Direct is the publisher as a server of its own.
type Direct struct {
	*direct.Server
	set *origin.Set
}

// Listen opens a port of loopback for viewers.
func Listen() (*Direct, error) {
	set := &origin.Set{}
	s, err := direct.Listen(netip.MustParseAddr("127.0.0.1"), set.Handler())
	if err != nil {
		return nil, err
	}
	return &Direct{s, set}, nil
}

// Publish adds t to what viewers may subscribe to; stop ends it.
func (d *Direct) Publish(_ context.Context, t *origin.Track) (stop func(), err error) {
	d.set.Add(t)
	return func() { t.End(wire.DoneTrackEnded, "") }, nil
}

// View opens a viewer's session.
func (d *Direct) View(ctx context.Context) (*moqt.Session, error) { return d.Dial(ctx) }

// NewTrack is a track whose name nobody else has.
func NewTrack(name string) *origin.Track {
	n := moqt.TrackName{Namespace: moqt.Namespace{"holocast", "bench"}, Name: fmt.Sprint(name, " ", time.Now().UnixNano())}
	return origin.NewTrack(n, nil, origin.Limits{})
}

// Audience connects n viewers to a new track and calls each for every subgroup that they
// get. stop waits until all have left.
func Audience(ctx context.Context, s Server, t *origin.Track, n int, each func(*moqt.SubgroupReader)) (stop func(), err error) {
	unpublish, err := s.Publish(ctx, t)
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	var sessions []*moqt.Session
	stop = func() {
		for _, v := range sessions {
			v.Close(wire.NoError, "")
		}
		wg.Wait()
		unpublish()
	}
	for range n {
		v, err := s.View(ctx)
		if err != nil {
			stop()
			return nil, err
		}
		sessions = append(sessions, v)
		sub, err := v.Subscribe(ctx, t.Name(), moqt.SubscribeOptions{})
		if err != nil {
			stop()
			return nil, err
		}
		wg.Go(func() {
			for {
				r, err := sub.AcceptSubgroup(ctx)
				if err != nil {
					return
				}
				wg.Go(func() { each(r) })
			}
		})
	}
	return stop, nil
}

// Frames are what Transfer sends.
type Frames struct {
	Viewers int
	Bytes   int           // of a frame
	Rate    float64       // frames a second; 0 = each when all viewers have the last
	Time    time.Duration // how long
}

// Sample is one transfer of frames.
type Sample struct {
	Delays []time.Duration // of each frame at each viewer
	Sent   int             // frames
	Lost   int             // frames, of all viewers together
	Took   time.Duration
	bytes  int // of a frame
}

// Bits is how much all viewers together received.
func (s Sample) Bits() float64 { return float64(len(s.Delays)) * float64(s.bytes) * 8 }

// MbitPerS is the rate of all viewers together.
func (s Sample) MbitPerS() float64 { return s.Bits() / s.Took.Seconds() / 1e6 }

// FramesPerS is the publisher's rate.
func (s Sample) FramesPerS() float64 { return float64(s.Sent) / s.Took.Seconds() }

// Quantiles are those of the delays.
func (s Sample) Quantiles() Quantiles {
	return Quantiles{Quantile(s.Delays, 0.5), Quantile(s.Delays, 0.99)}
}

// Quantiles of a delay, milliseconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// Quantile is the q-quantile of d in milliseconds, NaN of nothing.
func Quantile(d []time.Duration, q float64) float64 {
	if len(d) == 0 {
		return math.NaN()
	}
	return float64(quantile.Of(d, q)) / float64(time.Millisecond)
}

// Transfer sends frames over a new track. A frame that is not there 2 s after the last was
// sent is lost.
func Transfer(ctx context.Context, s Server, f Frames) (Sample, error) {
	t := NewTrack("frames")
	var mu sync.Mutex
	out := Sample{bytes: f.Bytes}
	sent := map[uint64]time.Time{}
	arrived := make(chan struct{}, 1<<16)
	stop, err := Audience(ctx, s, t, f.Viewers, func(r *moqt.SubgroupReader) {
		if _, err := r.NextObject(); err != nil {
			return
		}
		if got, err := io.Copy(io.Discard, r); err != nil || got != int64(f.Bytes) {
			return
		}
		now := time.Now()
		mu.Lock()
		out.Delays = append(out.Delays, now.Sub(sent[r.Group]))
		mu.Unlock()
		arrived <- struct{}{}
	})
	if err != nil {
		return out, err
	}
	defer stop()
	payload := make([]byte, f.Bytes)
	send := func(group uint64) error {
		mu.Lock()
		sent[group] = time.Now()
		mu.Unlock()
		out.Sent++
		return t.WriteObject(wire.SubgroupHeader{Group: group, FirstObject: true, EndOfGroup: true}, moqt.Object{}, payload)
	}
	wait := func(count int, limit time.Duration) error {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		for range count {
			select {
			case <-arrived:
			case <-timer.C:
				return nil // counted as lost
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	// A first frame opens the congestion windows.
	for group := range uint64(3) {
		if err := send(group); err != nil {
			return out, err
		}
		if err := wait(f.Viewers, 10*time.Second); err != nil {
			return out, err
		}
	}
	mu.Lock()
	out = Sample{bytes: f.Bytes}
	mu.Unlock()
	began := time.Now()
	if f.Rate == 0 {
		for group := uint64(3); time.Since(began) < f.Time; group++ {
			if err := send(group); err != nil {
				return out, err
			}
			if err := wait(f.Viewers, 10*time.Second); err != nil {
				return out, err
			}
		}
	} else {
		tick := time.NewTicker(time.Duration(float64(time.Second) / f.Rate))
		defer tick.Stop()
		for group := uint64(3); time.Since(began) < f.Time; group++ {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return out, ctx.Err()
			}
			if err := send(group); err != nil {
				return out, err
			}
		}
		if err := wait(f.Viewers*out.Sent, 2*time.Second); err != nil {
			return out, err
		}
	}
	mu.Lock()
	defer mu.Unlock()
	out.Took = time.Since(began)
	out.Lost = f.Viewers*out.Sent - len(out.Delays)
	out.Delays = slices.Clone(out.Delays)
	return out, nil
}
