// Package load publishes tracks to a relay and views them there.
package load

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/origin"
	"holocast/tools/lab/bench/internal/direct"
	"holocast/tools/lab/bench/internal/quantile"
)

// Server accepts viewers. It is either a relay or the publisher itself.
type Server interface {
	// Namespace returns the namespace of a publisher's tracks. Publishers are numbered from 0.
	Namespace(publisher int) moqt.Namespace

	// Publish publishes a track until stop is called.
	Publish(ctx context.Context, t *origin.Track) (stop func(), err error)
	// View opens a viewer's session.
	View(ctx context.Context) (*moqt.Session, error)
}

// Direct is a publisher that serves viewers without a relay.
type Direct struct {
	*direct.Server
	Loss float64 // fraction of packets dropped, in each direction
	set  *origin.Set
}

// Listen opens a port on loopback.
func Listen() (*Direct, error) {
	set := &origin.Set{}
	s, err := direct.Listen(netip.MustParseAddr("127.0.0.1"), set.Handler())
	if err != nil {
		return nil, err
	}
	return &Direct{Server: s, set: set}, nil
}

// Namespace implements Server.
func (d *Direct) Namespace(publisher int) moqt.Namespace { return namespace(publisher) }

// Publish implements Server.
func (d *Direct) Publish(_ context.Context, t *origin.Track) (stop func(), err error) {
	d.set.Add(t)
	return func() { t.End(wire.DoneTrackEnded, "") }, nil
}

// View implements Server.
func (d *Direct) View(ctx context.Context) (*moqt.Session, error) {
	return lossy(d.Loss, func(cfg moqt.Config) (*moqt.Session, error) { return d.DialWith(ctx, cfg) })
}

// namespace returns a publisher's namespace at a local relay. Publishers do not share a namespace,
// as relays may refuse a second publisher.
func namespace(publisher int) moqt.Namespace {
	return moqt.Namespace{"holocast", "bench", strconv.Itoa(publisher)}
}

// NewTrack returns a track for the first publisher. It makes name unique.
func NewTrack(s Server, name string) *origin.Track { return newTrack(s, 0, name) }

func newTrack(s Server, publisher int, name string) *origin.Track {
	n := moqt.TrackName{Namespace: s.Namespace(publisher), Name: fmt.Sprint(name, " ", time.Now().UnixNano())}
	return origin.NewTrack(n, nil, origin.Limits{})
}

// Audience publishes tracks and connects n viewers, each with its own session. For every subgroup
// received, it calls each with the index of the track. stop disconnects the viewers, waits for them
// and stops publishing.
func Audience(ctx context.Context, s Server, tracks []*origin.Track, n int,
	each func(track int, r *moqt.SubgroupReader),
) (stop func(), err error) {
	var wg sync.WaitGroup
	var sessions []*moqt.Session
	var published []func()
	leave := func() {
		for _, v := range sessions {
			v.Close(wire.NoError, "")
		}
		wg.Wait()
		for _, unpublish := range published {
			unpublish()
		}
	}
	defer func() {
		if err != nil {
			leave()
		}
	}()
	for _, t := range tracks {
		unpublish, err := s.Publish(ctx, t)
		if err != nil {
			return nil, err
		}
		published = append(published, unpublish)
	}
	for range n {
		v, err := s.View(ctx)
		if err != nil {
			return nil, err
		}
		sessions = append(sessions, v)
		for track, t := range tracks {
			sub, err := v.Subscribe(ctx, t.Name(), moqt.SubscribeOptions{})
			if err != nil {
				return nil, err
			}
			wg.Go(func() {
				for {
					r, err := sub.AcceptSubgroup(ctx)
					if err != nil {
						return
					}
					wg.Go(func() {
						each(track, r)
						_, _ = r.NextObject() // reading to the end releases the stream
					})
				}
			})
		}
	}
	return leave, nil
}

// ReadFrame reads a frame of size bytes like a player and reports success. It leaves the stream's
// end unread, since that may arrive in a later packet.
func ReadFrame(r *moqt.SubgroupReader, size int) bool {
	if _, err := r.NextObject(); err != nil {
		return false
	}
	payload := payloads.Get().(*[]byte)
	defer payloads.Put(payload)
	var err error
	*payload, err = r.ReadPayload(*payload, size)
	return err == nil && len(*payload) == size
}

var payloads = sync.Pool{New: func() any { return new([]byte) }} // frame buffers for reuse

// Frames describes a transfer.
type Frames struct {
	Publishers int // each with a session and a track, to which every viewer subscribes; 0 means 1
	Viewers    int
	Bytes      int           // per frame
	Rate       float64       // frames per second and publisher; 0 sends each frame once all viewers have the previous one
	Time       time.Duration // duration
}

// Sample holds the figures of one transfer.
type Sample struct {
	Delays     []time.Duration // one per frame and viewer
	Sent       int             // frames, over all publishers
	Lost       int             // frames, over all viewers
	Took       time.Duration   // until the last arrival
	publishers int
	bytes      int // per frame
}

// Bits returns the payload received by all viewers.
func (s Sample) Bits() float64 { return float64(len(s.Delays)) * float64(s.bytes) * 8 }

// MbitPerS returns the payload rate of all viewers.
func (s Sample) MbitPerS() float64 { return s.Bits() / s.Took.Seconds() / 1e6 }

// FramesPerS returns the frame rate of each publisher.
func (s Sample) FramesPerS() float64 {
	return float64(s.Sent) / float64(s.publishers) / s.Took.Seconds()
}

// Quantiles returns the delays' quantiles.
func (s Sample) Quantiles() Quantiles {
	return Quantiles{Quantile(s.Delays, 0.5), Quantile(s.Delays, 0.99)}
}

// Quantiles of a delay in milliseconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// Less returns q minus o.
func (q Quantiles) Less(o Quantiles) Quantiles { return Quantiles{q.P50 - o.P50, q.P99 - o.P99} }

// Quantile returns the q-quantile of d in milliseconds, or NaN if d is empty.
func Quantile(d []time.Duration, q float64) float64 {
	if len(d) == 0 {
		return math.NaN()
	}
	return float64(quantile.Of(d, q)) / float64(time.Millisecond)
}

// Feed writes n-byte frames to t, rate per second, until ctx is done. It calls before with the
// group of each frame that it is about to write.
func Feed(ctx context.Context, t *origin.Track, n int, rate float64, before func(group uint64)) error {
	payload := make([]byte, n)
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	for group := uint64(0); ; group++ {
		before(group)
		if err := t.WriteObject(wire.SubgroupHeader{Group: group, FirstObject: true, EndOfGroup: true}, moqt.Object{},
			payload); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// frame identifies a frame within a transfer.
type frame struct {
	track int
	group uint64
}

// Transfer sends frames over new tracks. Frames still missing 2 s after the last one was sent count
// as lost; without a rate, each frame gets 10 s.
func Transfer(ctx context.Context, s Server, f Frames) (Sample, error) {
	f.Publishers = max(1, f.Publishers)
	tracks := make([]*origin.Track, f.Publishers)
	for i := range tracks {
		tracks[i] = newTrack(s, i, "frames")
	}
	var mu sync.Mutex
	out := Sample{publishers: f.Publishers, bytes: f.Bytes}
	var last time.Time // last arrival
	sent := map[frame]time.Time{}
	arrived := make(chan struct{}, 1<<16)
	stop, err := Audience(ctx, s, tracks, f.Viewers, func(track int, r *moqt.SubgroupReader) {
		if !ReadFrame(r, f.Bytes) {
			return
		}
		mu.Lock()
		last = time.Now()
		out.Delays = append(out.Delays, last.Sub(sent[frame{track, r.Group}]))
		mu.Unlock()
		select {
		case arrived <- struct{}{}:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return out, err
	}
	defer stop()
	payload := make([]byte, f.Bytes)
	send := func(group uint64) error { // one frame per publisher
		for track, t := range tracks {
			mu.Lock()
			sent[frame{track, group}] = time.Now()
			mu.Unlock()
			out.Sent++
			if err := t.WriteObject(wire.SubgroupHeader{Group: group, FirstObject: true, EndOfGroup: true},
				moqt.Object{}, payload); err != nil {
				return err
			}
		}
		return nil
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
	all := f.Publishers * f.Viewers

	// The first frames open the congestion windows; they are not measured.
	for group := range uint64(3) {
		if err := send(group); err != nil {
			return out, err
		}
		if err := wait(all, 10*time.Second); err != nil {
			return out, err
		}
	}
	mu.Lock()
	out = Sample{publishers: f.Publishers, bytes: f.Bytes}
	mu.Unlock()
	began := time.Now()
	var ended time.Time // end of sending
	if f.Rate == 0 {
		for group := uint64(3); time.Since(began) < f.Time; group++ {
			if err := send(group); err != nil {
				return out, err
			}
			if err := wait(all, 10*time.Second); err != nil {
				return out, err
			}
		}
		ended = time.Now()
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
		ended = time.Now()
		if err := wait(f.Viewers*out.Sent, 2*time.Second); err != nil {
			return out, err
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if ended.Before(last) {
		ended = last
	}
	out.Took = ended.Sub(began)
	out.Lost = f.Viewers*out.Sent - len(out.Delays)
	out.Delays = slices.Clone(out.Delays)
	return out, nil
}
