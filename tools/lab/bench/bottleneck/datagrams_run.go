//go:build linux

package bottleneck

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
	"holocast/internal/origin"
	"holocast/internal/parts"
	"holocast/internal/pause"
	"holocast/tools/lab/bench/internal/load"
	"holocast/tools/lab/bench/internal/quantile"
)

// measureDatagrams measures frames on streams and in datagrams.
func measureDatagrams(ctx context.Context, o Options) (runs []DatagramRun, err error) {
	warm, duration := 1500*time.Millisecond, 20*time.Second
	hops, transports := []DatagramRun{
		{Hop: downstream},
		{Hop: downstream, Loss: 0.0005},
		{Hop: downstream, Loss: 0.01},
		{Hop: upstream, Loss: 0.01},
	}, []string{"moqt", "https"}
	if o.Quick {
		duration, transports = 4*time.Second, transports[:1]
		hops = hops[:3]
	}
	binary, remove, err := load.Binary(ctx, "")
	if err != nil {
		return nil, err
	}
	defer remove()
	for _, hop := range hops {
		for _, transport := range transports {
			for _, delivery := range []string{catalog.DeliveryStream, catalog.DeliveryDatagram} {
				for attempt := 1; ; attempt++ {
					run := hop
					run.Transport, run.Delivery = map[string]string{"moqt": "QUIC", "https": "WebTransport"}[transport],
						delivery
					if err := run.measure(ctx, binary, transport, warm, duration); err != nil {
						return nil, fmt.Errorf("%s over %s, %g %% loss: %w", delivery, run.Transport, 100*run.Loss, err)
					}
					if len(run.Failures) > 0 && attempt < attempts && !o.Quick {
						continue
					}
					fmt.Fprintf(o.Log, "%g %% loss %s, %s, %s: %.1f frames/s, delay p50 %.1f p99 %.1f ms, %d "+
						"repaired, %d parts lost\n",
						100*run.Loss, run.Hop, run.Transport, delivery, run.FPS, run.DelayP50, run.DelayP99,
						run.Parts.Repaired, run.Parts.PartsLost)
					runs = append(runs, run)
					break
				}
			}
		}
	}
	return runs, nil
}

// measure runs a publisher on host a and a viewer on host b. The relay's host determines which hop
// is emulated.
func (r *DatagramRun) measure(ctx context.Context, binary, transport string, warm, duration time.Duration) (err error) {
	t, err := topology.OnePath("datagrams", fmt.Sprintf("rate: %dMbit, delay: %dms, queue: 30ms, loss: %g%%",
		datagramRate, datagramDelay, 100*r.Loss))
	if err != nil {
		return err
	}
	lab, err := netlab.Start(t, netlab.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	a, b := lab.Node("a"), lab.Node("b")
	at := a
	if r.Hop == upstream {
		at = b
	}
	relay, err := load.StartAt(binary, at.Addr.String(), at.Start)
	if err != nil {
		return err
	}
	defer relay.Stop()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	track := origin.NewTrack(trackName, properties(Timeout), origin.Limits{MaxAge: time.Second})
	var set origin.Set
	set.Add(track)
	dial := func(n *netlab.Node, scheme string, h moqt.Handler) (s *moqt.Session, err error) {
		err = n.Namespace.Do(func() error {
			s, err = relay.Dial(ctx, scheme, h)
			return err
		})
		return s, err
	}
	publisher, err := dial(a, "moqt", set.Handler())
	if err != nil {
		return err
	}
	defer publisher.Close(wire.NoError, "")
	if _, err := publisher.PublishNamespace(ctx, track.Name().Namespace); err != nil {
		return err
	}
	viewerSession, err := dial(b, transport, moqt.Handler{})
	if err != nil {
		return err
	}
	defer viewerSession.Close(wire.NoError, "")
	sub, err := viewerSession.Subscribe(ctx, track.Name(), moqt.SubscribeOptions{})
	if err != nil {
		return err
	}
	if err := lab.Begin(); err != nil {
		return err
	}
	v := &viewer{began: time.Now(), session: viewerSession, frameBytes: datagramFrameBytes}
	receiver := parts.NewReceiver(ctx, sub, parts.Limits{MaxPayload: datagramFrameBytes, Timeout: Timeout},
		func(p parts.Payload) {
			if len(p.Bytes) == datagramFrameBytes {
				v.add(p.Bytes, 0)
			}
		})
	running.Go(func() { _ = receiver.Run() }) // until ctx is done
	running.Go(func() { _ = v.receive(ctx, sub) })
	running.Go(func() { _ = sendFrames(ctx, v.began, datagramFrameBytes, sender(track, r.Delivery)) })
	if err := pause.For(ctx, warm); err != nil {
		return err
	}
	lab.Mark()
	cpu, err := relay.CPU()
	if err != nil {
		return err
	}
	from, received, before := time.Since(v.began), viewerSession.Stats().BytesReceived, receiver.Stats()
	if err := pause.For(ctx, duration); err != nil {
		return err
	}
	to, received := time.Since(v.began), viewerSession.Stats().BytesReceived-received
	cpuEnd, err := relay.CPU()
	if err != nil {
		return err
	}
	if err := pause.For(ctx, Timeout+100*time.Millisecond); err != nil { // for frames in flight
		return err
	}
	r.Parts = receiver.Stats().Since(before)
	r.Unsent = publisher.Stats().DatagramsUnsent
	r.figures(v, from, to)
	bits := float64(8*datagramFrameBytes*FramesPerS) * r.Seconds
	r.Overhead = 8*float64(received)/bits - 1
	r.CPU = (cpuEnd - cpu).Seconds() / (bits / 1e9)
	report, err := lab.Finish()
	if err != nil {
		return err
	}
	r.Failures = report.Failures
	return nil
}

// sender writes frames to t on streams or in datagrams.
func sender(t *origin.Track, delivery string) func(context.Context, uint64, []byte) error {
	first := uint64(time.Now().UnixMilli())
	return func(_ context.Context, n uint64, frame []byte) error {
		group := first + n
		if delivery == catalog.DeliveryDatagram {
			for d := range parts.Cut(moqt.Datagram{Group: group, Priority: wire.DefaultPriority, EndOfGroup: true},
				frame) {
				t.SendDatagram(d)
			}
			return nil
		}
		_ = t.WriteObject(header(group), moqt.Object{}, frame) // fails once the session ends
		return nil
	}
}

// figures computes the figures of frames sent between from and to.
func (r *DatagramRun) figures(v *viewer, from, to time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var delays []float64
	for _, f := range v.frames {
		if d := f.arrived - f.captured; f.captured >= from && f.captured < to && d <= Timeout {
			delays = append(delays, float64(d)/1e6)
		}
	}
	r.Seconds = (to - from).Seconds()
	r.FPS = float64(len(delays)) / r.Seconds
	r.DelayP50, r.DelayP95, r.DelayP99 = quantile.Of(delays, 0.5), quantile.Of(delays, 0.95), quantile.Of(delays, 0.99)
}
