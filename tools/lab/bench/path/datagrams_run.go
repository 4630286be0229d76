//go:build linux

package path

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"holocast/internal/catalog"
	"holocast/internal/moqt"
	"holocast/internal/moqt/wire"
	"holocast/internal/netlab"
	"holocast/internal/netlab/topology"
	"holocast/internal/origin"
	"holocast/internal/parts"
	"holocast/internal/quiccc"
	"holocast/tools/lab/bench/internal/load"
	"holocast/tools/lab/bench/internal/pause"
	"holocast/tools/lab/bench/internal/quantile"
)

// attempts is how often a measurement is made whose emulator was late.
const attempts = 3

// canMeasureDatagrams says what is missing for it.
func canMeasureDatagrams() error {
	if !quiccc.Patched() {
		return errors.New("frames in datagrams: this program has the published quic-go, which drops what it receives beyond 128 datagrams: build it with the tree of tools/quicpatch (make build)")
	}
	return netlab.Supported()
}

// datagrams measures frames on streams and in datagrams.
func datagrams(ctx context.Context, o Options) (runs []DatagramRun, err error) {
	warm, duration := 1500*time.Millisecond, 20*time.Second
	hops, transports := []DatagramRun{{Hop: downstream}, {Hop: downstream, Loss: 0.0005}, {Hop: downstream, Loss: 0.01}, {Hop: upstream, Loss: 0.01}}, []string{"moqt", "https"}
	if o.Quick {
		duration, transports = 4*time.Second, transports[:1]
		hops = hops[:3]
	}
	binary, remove, err := load.Binary(ctx, o.Relay)
	if err != nil {
		return nil, err
	}
	defer remove()
	for _, hop := range hops {
		for _, transport := range transports {
			for _, delivery := range []string{catalog.DeliveryStream, catalog.DeliveryDatagram} {
				for attempt := 1; ; attempt++ {
					run := hop
					run.Transport, run.Delivery = map[string]string{"moqt": "QUIC", "https": "WebTransport"}[transport], delivery
					if err := run.measure(ctx, binary, transport, warm, duration); err != nil {
						return nil, fmt.Errorf("%s over %s, %g %% loss: %w", delivery, run.Transport, 100*run.Loss, err)
					}
					if len(run.Failures) > 0 && attempt < attempts && !o.Quick {
						continue
					}
					fmt.Fprintf(o.Log, "%g %% loss %s, %s, %s: %.1f frames/s, delay p50 %.1f p99 %.1f ms, %d repaired, %d parts lost\n",
						100*run.Loss, run.Hop, run.Transport, delivery, run.FPS, run.DelayP50, run.DelayP99, run.Parts.Repaired, run.Parts.PartsLost)
					runs = append(runs, run)
					break
				}
			}
		}
	}
	return runs, nil
}

// measure has a publisher on host a, a viewer on host b, and the relay on the host that
// makes the path the hop that is measured.
func (r *DatagramRun) measure(ctx context.Context, binary, transport string, warm, duration time.Duration) (err error) {
	t, err := topology.OnePath("datagrams", fmt.Sprintf("rate: %dMbit, delay: %dms, queue: 30ms, loss: %g%%", datagramRate, datagramDelay, 100*r.Loss))
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

	ms := uint64(Timeout.Milliseconds())
	track := origin.NewTrack(moqt.TrackName{Namespace: moqt.Namespace{"holocast", "bench"}, Name: "points/0/full"},
		wire.AppendKeyValues(nil, wire.KeyValue{Type: wire.PropertyObjectDeliveryTimeout, Int: ms}, wire.KeyValue{Type: wire.PropertySubgroupDeliveryTimeout, Int: ms}), origin.Limits{MaxAge: time.Second})
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
	viewer, err := dial(b, transport, moqt.Handler{})
	if err != nil {
		return err
	}
	defer viewer.Close(wire.NoError, "")
	sub, err := viewer.Subscribe(ctx, track.Name(), moqt.SubscribeOptions{})
	if err != nil {
		return err
	}
	if err := lab.Begin(); err != nil {
		return err
	}
	v := &frameLog{began: time.Now()}
	receiver := v.receive(ctx, &running, sub)
	running.Go(func() { v.shoot(ctx, track, r.Delivery) })
	if err := pause.For(ctx, warm); err != nil {
		return err
	}
	lab.Mark()
	cpu, err := relay.CPU()
	if err != nil {
		return err
	}
	from, received, before := time.Since(v.began), viewer.Stats().BytesReceived, receiver.Stats()
	if err := pause.For(ctx, duration); err != nil {
		return err
	}
	to, received := time.Since(v.began), viewer.Stats().BytesReceived-received
	cpuEnd, err := relay.CPU()
	if err != nil {
		return err
	}
	if err := pause.For(ctx, Timeout+100*time.Millisecond); err != nil { // for the last frames
		return err
	}
	r.Parts = receiver.Stats().Since(before)
	r.Unsent = publisher.Stats().DatagramsUnsent
	v.figures(r, from, to)
	bits := float64(8*FrameBytes*FramesPerS) * r.Seconds
	r.Overhead = 8*float64(received)/bits - 1
	r.CPU = (cpuEnd - cpu).Seconds() / (bits / 1e9)
	report, err := lab.Finish()
	if err != nil {
		return err
	}
	r.Failures = report.Failures
	return nil
}

// frameLog is the frames of a measurement. Times are since began.
type frameLog struct {
	began time.Time

	mu     sync.Mutex
	frames []frameTimes
}

type frameTimes struct{ sent, whole time.Duration }

// shoot sends frames until ctx ends. They begin with the time at which they were sent.
func (l *frameLog) shoot(ctx context.Context, t *origin.Track, delivery string) {
	next := time.Now()
	for group := uint64(next.UnixMilli()); ; group++ {
		frame := make([]byte, FrameBytes)
		binary.BigEndian.PutUint64(frame, uint64(time.Since(l.began)))
		if delivery == catalog.DeliveryDatagram {
			for d := range parts.Cut(moqt.Datagram{Group: group, Priority: wire.DefaultPriority, EndOfGroup: true}, frame) {
				t.SendDatagram(d)
			}
		} else {
			_ = t.WriteObject(wire.SubgroupHeader{Group: group, Mode: wire.SubgroupIDExplicit, Priority: wire.DefaultPriority, FirstObject: true, EndOfGroup: true}, moqt.Object{}, frame)
		}
		next = next.Add(time.Second / FramesPerS)
		if pause.For(ctx, time.Until(next)) != nil {
			return
		}
	}
}

// receive takes frames, whichever way they come, until ctx ends.
func (l *frameLog) receive(ctx context.Context, running *sync.WaitGroup, sub *moqt.Subscription) *parts.Receiver {
	whole := func(frame []byte) {
		now := time.Since(l.began)
		if len(frame) != FrameBytes {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.frames = append(l.frames, frameTimes{time.Duration(binary.BigEndian.Uint64(frame)), now})
	}
	r := parts.NewReceiver(ctx, sub, parts.Limits{MaxPayload: FrameBytes, Timeout: Timeout}, func(p parts.Payload) { whole(p.Bytes) })
	running.Go(func() { _ = r.Run() }) // until ctx ends
	running.Go(func() {
		for {
			g, err := sub.AcceptSubgroup(ctx)
			if err != nil {
				return
			}
			running.Go(func() {
				if _, err := g.NextObject(); err != nil {
					return
				}
				if b, err := g.ReadPayload(nil, FrameBytes); err == nil {
					whole(b)
				}
				_, _ = io.Copy(io.Discard, g)
				_, _ = g.NextObject() // the stream's end, so that another may be opened
			})
		}
	})
	return r
}

// figures are of the frames sent from from to to.
func (l *frameLog) figures(r *DatagramRun, from, to time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var delays []float64
	for _, f := range l.frames {
		if d := f.whole - f.sent; f.sent >= from && f.sent < to && d <= Timeout {
			delays = append(delays, float64(d)/1e6)
		}
	}
	r.Seconds = (to - from).Seconds()
	r.FPS = float64(len(delays)) / r.Seconds
	r.DelayP50, r.DelayP95, r.DelayP99 = quantile.Of(delays, 0.5), quantile.Of(delays, 0.95), quantile.Of(delays, 0.99)
}
