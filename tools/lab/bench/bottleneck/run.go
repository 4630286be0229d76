//go:build linux

package bottleneck

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
	"holocast/internal/pause"
	"holocast/internal/quiccc"
	"holocast/tools/lab/bench/internal/direct"
	"holocast/tools/lab/bench/internal/part"
	"holocast/tools/lab/bench/internal/quantile"
)

// attempts limits how many times a measurement runs if the emulator is late.
const attempts = 3

// paths returns the camera part's paths, with a round-trip time of 60 ms and queues of 120 ms.
func paths(quick bool) []Path {
	path := func(rate, loss float64) Path { return Path{RateMbps: rate, DelayMs: 30, QueueMs: 120, Loss: loss} }
	if quick {
		return []Path{path(15, 0.001)}
	}
	return []Path{
		path(10, 0.001), path(15, 0.001), path(25, 0.001), path(34, 0.001), path(40, 0.001), path(60, 0.001),
		path(15, 0.01),
	}
}

// Run runs the benchmark. It needs permission to create network namespaces.
func Run(ctx context.Context, o Options) (Result, error) {
	if err := errors.Join(part.Check(o.Parts, Parts()), netlab.Supported()); err != nil {
		return Result{}, err
	}
	if !quiccc.Patched() {
		return Result{}, errors.New("this program lacks our quic-go patches (congestion control, stream " +
			"priorities): build it with make")
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	repeat, warmup, duration := 3, 2*time.Second, 4*time.Second
	if o.Quick {
		repeat, duration = 1, 2*time.Second
	}
	r := Result{FrameBytes: FrameBytes, FramesPerS: FramesPerS, TimeoutMs: Timeout.Milliseconds(), Began: time.Now()}

	// Contenders alternate, so a busy machine slows all of them alike.
	turns := func(paths []Path, measure func(Path, string) (failures []string, accept func(), err error)) error {
		for _, path := range paths {
			for _, contender := range Contenders() {
				for attempt := 1; ; attempt++ {
					failures, accept, err := measure(path, contender)
					if err := errors.Join(err, ctx.Err()); err != nil {
						return fmt.Errorf("%v, %s: %w", path, contender, err)
					}
					if len(failures) > 0 && attempt < attempts && !o.Quick {
						r.Repeated++
						continue
					}
					accept()
					break
				}
			}
		}
		return nil
	}
	for range repeat {
		var err error
		if o.has(cameraPart) {
			err = turns(paths(o.Quick), func(path Path, contender string) ([]string, func(), error) {
				run, err := measure(ctx, path, contender, warmup, duration)
				return run.Failures, func() {
					fmt.Fprintf(o.Log, "%v, %s: %.1f frames/s of %.1f, delay p50 %.0f ms, %.0f %% wasted\n",
						path, contender, run.FPS, path.fits(), run.DelayP50Ms, run.Wasted)
					r.Runs = append(r.Runs, run)
				}, err
			})
		}
		if err == nil && o.has(tilesPart) {
			err = turns(tilePaths(o.Quick), func(path Path, contender string) ([]string, func(), error) {
				run, err := measureTiles(ctx, path, contender, warmup, duration)
				return run.Failures, func() {
					fmt.Fprintf(o.Log, "%d tracks, %v, %s: base %.0f %% complete, %.1f tiles of %.1f, %.0f %% "+
						"inverted, %.0f %% wasted\n",
						1+Tiles, path, contender, run.Base, run.Complete, path.tilesFit(), run.Inverted, run.Wasted)
					r.Tiles = append(r.Tiles, run)
				}, err
			})
		}
		if err != nil {
			return Result{}, err
		}
	}
	if o.has(datagramsPart) {
		r.DatagramsBegan = time.Now()
		var err error
		if r.Datagrams, err = measureDatagrams(ctx, o); err != nil {
			return Result{}, err
		}
	}
	r.Seconds = time.Since(r.Began).Seconds()
	r.summarize()
	return r, nil
}

// link is a session from host b to a server on host a over one emulated path.
type link struct {
	lab     *netlab.Lab
	server  *direct.Server
	session *moqt.Session
}

func open(ctx context.Context, path Path, handler moqt.Handler) (l *link, err error) {
	t, err := topology.OnePath("bottleneck", path.conditions())
	if err != nil {
		return nil, err
	}
	l = &link{}
	if l.lab, err = netlab.Start(t, netlab.Options{}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if err := l.lab.Node("a").Namespace.Do(func() (err error) {
		l.server, err = direct.Listen(l.lab.Node("a").Addr, handler)
		return err
	}); err != nil {
		return nil, err
	}
	if err := l.lab.Node("b").Namespace.Do(func() (err error) {
		l.session, err = l.server.Dial(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *link) close() error {
	if l.session != nil {
		l.session.Close(wire.NoError, "")
	}
	if l.server != nil {
		_ = l.server.Close()
	}
	return l.lab.Close()
}

// measure sends frames from host a to host b over one path.
func measure(ctx context.Context, path Path, contender string, warmup, duration time.Duration) (r Measurement,
	err error,
) {
	src := newSource(contender)
	defer func() { src.wait() }()
	l, err := open(ctx, path, src.handler)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	v := &viewer{began: time.Now(), session: l.session, frameBytes: FrameBytes}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer v.session.Close(wire.NoError, "")
	defer cancel() // runs before the session's close, which then does not count as a failure
	sub, err := v.session.Subscribe(ctx, trackName, moqt.SubscribeOptions{})
	if err != nil {
		return r, err
	}
	if err := l.lab.Begin(); err != nil {
		return r, err
	}
	failed := make(chan error, 2)
	running.Go(func() { failed <- v.receive(ctx, sub) })
	running.Go(func() { failed <- sendFrames(ctx, v.began, FrameBytes, src.send) })
	if err := pause.Unless(failed, warmup); err != nil {
		return r, err
	}
	l.lab.Mark()
	v.measuring.Store(true)
	from, received := time.Since(v.began), v.session.Stats().BytesReceived
	if err := pause.Unless(failed, duration); err != nil {
		return r, err
	}
	v.measuring.Store(false)
	to, received := time.Since(v.began), v.session.Stats().BytesReceived-received
	if err := pause.Unless(failed, lateFrame); err != nil { // for frames in flight
		return r, err
	}
	r = Measurement{Path: path, Contender: contender, Seconds: (to - from).Seconds()}
	r.Figures = v.figures(from, to, received)
	report, err := l.lab.Finish()
	if err != nil {
		return r, err
	}
	forward := report.Paths[0]
	r.QueueP50Ms, r.DepartureP99Us = forward.Wait.P50, forward.Late.P99
	r.Failures, r.Warnings = report.Failures, report.Warnings
	return r, nil
}

// sendFrames sends n-byte frames until ctx is done. Each starts with its capture time in ns since
// began.
func sendFrames(ctx context.Context, began time.Time, n int, send func(ctx context.Context, group uint64,
	frame []byte) error,
) error {
	next := time.Now()
	for group := uint64(0); ; group++ {
		frame := make([]byte, n)
		binary.BigEndian.PutUint64(frame, uint64(time.Since(began)))
		if err := send(ctx, group, frame); err != nil {
			return fmt.Errorf("send frame %d: %w", group, err)
		}
		next = next.Add(time.Second / FramesPerS)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(next)):
		}
	}
}

// viewer records the complete frames of one track. Times are relative to began.
type viewer struct {
	session    *moqt.Session
	began      time.Time
	frameBytes int
	measuring  atomic.Bool

	mu     sync.Mutex
	frames []frame
}

// frame is one complete frame.
type frame struct {
	captured, arrived time.Duration
	measured          int // bytes received during the measurement
}

// receive reads frames on streams until the subscription ends or ctx is done.
func (v *viewer) receive(ctx context.Context, sub *moqt.Subscription) error {
	var reading sync.WaitGroup
	defer reading.Wait()
	for {
		sg, err := sub.AcceptSubgroup(ctx)
		if err != nil {
			return fmt.Errorf("subscription ended: %w", err)
		}
		reading.Go(func() { v.read(sg) })
	}
}

func (v *viewer) read(sg *moqt.SubgroupReader) {
	if _, err := sg.NextObject(); err != nil {
		return
	}
	measured := 0
	payload := make([]byte, v.frameBytes)
	for at := 0; at < len(payload); {
		n, err := sg.Read(payload[at:])
		if v.measuring.Load() {
			measured += n
		}
		if at += n; err != nil && at < len(payload) {
			return
		}
	}
	v.add(payload, measured)
	_, _ = sg.NextObject() // reading to the end releases the stream
}

func (v *viewer) add(payload []byte, measured int) {
	f := frame{
		captured: time.Duration(binary.BigEndian.Uint64(payload)), arrived: time.Since(v.began),
		measured: measured,
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.frames = append(v.frames, f)
}

// figures computes the figures between from and to, given the bytes received in that time.
func (v *viewer) figures(from, to time.Duration, received uint64) (f Figures) {
	v.mu.Lock()
	defer v.mu.Unlock()
	within := func(t time.Duration) bool { return t >= from && t < to }
	var delays []time.Duration
	inTime, useful := 0, 0
	for _, frame := range v.frames {
		delay := frame.arrived - frame.captured
		if within(frame.captured) && delay < lateFrame {
			inTime++
		}
		if within(frame.arrived) {
			delays = append(delays, delay)
		}
		useful += frame.measured
	}
	f.FPS = float64(inTime) / (to - from).Seconds()
	f.DelayP50Ms, f.DelayP95Ms = ms(quantile.Of(delays, 0.5)), ms(quantile.Of(delays, 0.95))
	f.Wasted = 100 * max(0, 1-float64(useful)/float64(max(received, 1)))
	return f
}
